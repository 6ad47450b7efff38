//! What stops a session before it begins: everything is told at once, and nothing is forwarded.

use crate::rig::{KEY_VARIABLE, Rig, finish, prices};

/// No cap, no session.
#[test]
fn k25_without_a_cap_nothing_starts() {
    let rig = Rig::new();
    let url = rig.standin.url();
    let done = rig.labproxy(&["session", "start", "--upstream", &url, "--", "true"]);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains("no cap"), "{done:?}");
    assert!(rig.list().is_empty());
}

/// Several things that are wrong are told in one go.
#[test]
fn every_problem_is_told_at_once() {
    let rig = Rig::new();
    let done = finish(&mut rig.start(
        &["--cap", "1e3", "--receipt", "/no/such/place/r.json"],
        &["no-such-agent"],
    ));
    assert_eq!(done.code, Some(125), "{done:?}");
    for told in ["1e3", "/no/such/place", "no-such-agent"] {
        assert!(done.stderr.contains(told), "{told}: {done:?}");
    }
}

/// A named credential that is not there is an error; for an upstream that none is named for, a
/// worthless one is sent in place of the real one (threat 19).
#[test]
fn t19_the_real_key_goes_only_where_it_was_named_for() {
    let rig = Rig::new();
    let done = finish(rig.start(&[], &["true"]).env_remove(KEY_VARIABLE));
    assert_eq!(done.code, Some(125));
    assert!(done.stderr.contains(KEY_VARIABLE), "{done:?}");
    let url = rig.standin.url();
    let start = ["session", "start", "--cap", "2", "--upstream", &url];
    let agent = ["--", "sh", "-c", "$CALL hello"];
    let arguments = [&start[..], &agent].concat();
    let done = finish(
        rig.command(&arguments)
            .env("ANTHROPIC_API_KEY", crate::rig::KEY),
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    let seen = rig.standin.requests();
    assert_eq!(seen.len(), 1, "{done:?}");
    assert_ne!(seen[0].credential, "expected");
}

/// A receipt place that cannot be written is refused before the agent starts.
#[test]
fn an_unwritable_receipt_stops_the_start() {
    let rig = Rig::new();
    let done = finish(&mut rig.start(
        &["--receipt", "/no/such/place/r.json"],
        &["touch", "started"],
    ));
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(!rig.path("work/started").exists());
}

/// A state directory that cannot be written, and a disk that takes nothing: clear text, no agent.
#[test]
fn without_a_ledger_nothing_is_sent() {
    let rig = Rig::new();
    let script = "touch started; $CALL hello";
    let agent = ["sh", "-c", script];
    let done = finish(rig.start(&[], &agent).env("XDG_STATE_HOME", "/proc/none"));
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains("/proc/none"), "{done:?}");
    // A limit on the size of files stands in for a full disk: the same error path, without a mount.
    let inner = rig.start(&[], &agent);
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(rig.path("work"))
        .env_clear()
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let done = finish(&mut limited);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains("ledger"), "{done:?}");
    assert_eq!(rig.arrived(), 0);
    assert!(!rig.path("work/started").exists());
}

/// Prices that were checked long ago, and a clock that is far behind, refuse the start; the flag
/// lets the first through (threat 23).
#[test]
fn t23_stale_prices_need_a_flag() {
    let rig = Rig::new();
    let old = prices("5");
    let file = rig.path("old.toml");
    std::fs::write(&file, old).unwrap();
    let with = |options: &[&str]| {
        let mut command = rig.start(options, &["true"]);
        command
            .env_remove("LABPROXY_PRICING_ALLOW_STALE")
            .env("LABPROXY_PRICING_FILE", &file);
        finish(&mut command)
    };
    let done = with(&[]);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains("--allow-stale-prices"), "{done:?}");
    assert_eq!(with(&["--allow-stale-prices"]).code, Some(0));
}

/// A configuration file that changes during a session does not reach it, and the end says so.
#[test]
fn a_changed_configuration_is_named_at_the_end() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path("config/labproxy")).unwrap();
    let config = rig.path("config/labproxy/config.toml");
    std::fs::write(&config, "[session]\non_cap = \"clamp\"\n").unwrap();
    let script = format!("echo 'broken = ' > {}; $CALL hello", config.display());
    let done = rig.run(&[], &["sh", "-c", &script]);
    assert_eq!(done.stdout, "200", "{done:?}");
    assert!(
        done.stderr.contains("changed during the session"),
        "{done:?}"
    );
}
