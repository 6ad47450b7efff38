//! Configuration as a user meets it.

use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Value, json};

use super::{User, ran};

/// `config show --json` with its keys as a map.
fn shown(stdout: &str) -> std::collections::BTreeMap<String, Value> {
    let entries: Vec<Value> = serde_json::from_str(stdout).unwrap();
    let pair = |entry: Value| (entry["key"].as_str().unwrap().to_owned(), entry);
    entries.into_iter().map(pair).collect()
}

/// Each value is shown with the layer and the line it came from, in a table and as JSON.
#[test]
fn config_show_names_the_source_of_every_value() {
    let user = User::new();
    user.configure("[session]\ncap_usd = \"5.00\"\n\n[gate]\naccept = [\"a\", \"b\"]\n");
    user.work_file("[session]\non_cap = \"refuse\"\n");
    let mut command = user.command(["config", "show", "--json"]);
    command.env("LABPROXY_SESSION_WAIT", "1500ms");
    let entries = shown(&ran(command).stdout);
    let path = user.user_config();
    assert_eq!(
        entries["session.cap_usd"],
        json!({ "key": "session.cap_usd", "value": "5.00",
                "source": { "file": { "path": path, "line": 2 } } })
    );
    assert_eq!(
        entries["session.on_cap"]["source"],
        json!({ "file": { "path": "labproxy.toml", "line": 2 } })
    );
    assert_eq!(entries["session.wait"]["value"], "1500ms");
    assert_eq!(
        entries["session.wait"]["source"],
        json!({ "variable": "LABPROXY_SESSION_WAIT" })
    );
    assert_eq!(entries["session.lease"]["source"], "default");
    assert_eq!(entries["limits.daily_usd"]["value"], Value::Null);

    let table = user.run("config show").stdout;
    assert!(table.starts_with("SETTING  "), "{table}");
    let line = table
        .lines()
        .find(|line| line.starts_with("gate.accept "))
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let place = format!("{}:5", path.display());
    assert_eq!(words, ["gate.accept", "a,", "b", &place]);
}

/// No form of `config show` holds a secret: not the key in the environment or a file, not what a
/// command is told.
#[test]
fn config_show_never_shows_a_secret() {
    let user = User::new();
    let key = user.path("home/key");
    std::fs::write(&key, "sk-ant-canary-file").unwrap();
    for credential in [
        "{ env = \"ANTHROPIC_API_KEY\" }".to_owned(),
        format!("{{ file = {key:?} }}"),
        "{ command = [\"vault\", \"--token=sk-ant-canary-argument\"] }".to_owned(),
    ] {
        user.configure(&format!("upstream.anthropic.credential = {credential}"));
        for line in ["config show", "config show --json", "-vvv config show"] {
            let mut command = user.command(line.split_whitespace());
            command.env("ANTHROPIC_API_KEY", "sk-ant-canary-variable");
            let ran = ran(command);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            assert!(!ran.stdout.contains("canary"), "{}", ran.stdout);
            assert!(!ran.stderr.contains("canary"), "{}", ran.stderr);
        }
    }
}

/// Everything that is wrong, in all layers, in one failure, each with its place; status 2.
#[test]
fn all_problems_are_reported_at_once() {
    let user = User::new();
    user.configure(
        "[session]\ncap_usd = 5.0\n\n[upstream.anthropic]\nbase_url = \"http://x.example\"\n",
    );
    user.work_file("[session]\nlease = \"999h\"\nleas = \"1s\"\n");
    let mut command = user.command(["config", "show"]);
    command.env("LABPROXY_SESSION_ON_CAP", "hard");
    command.env("LABPROXY_SESION_WAIT", "1s");
    let ran = ran(command);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stdout, "");
    let path = user.user_config().display().to_string();
    let stderr = ran.stderr.replace(&path, "USER");
    let lines: Vec<&str> = stderr.lines().collect();
    let places = [
        "error: the configuration has 6 problems",
        "  USER:2: session.cap_usd: ",
        "  USER:5: upstream.anthropic.base_url: http would carry the credential in the clear",
        "  labproxy.toml:2: session.lease: '999h' is longer than 30 days",
        "  labproxy.toml:3: unknown key 'session.leas' (did you mean 'lease'?)",
        "  LABPROXY_SESION_WAIT: no setting has this name; the nearest are LABPROXY_SESSION_WAIT",
        "  LABPROXY_SESSION_ON_CAP: 'hard' is not one of \"clamp\", \"refuse\", \"soft\"",
    ];
    assert_eq!(lines.len(), places.len(), "{stderr}");
    for (line, place) in lines.iter().zip(places) {
        assert!(line.starts_with(place), "{line:?} begins {place:?}");
    }
}

/// `LABPROXY_…` names that mean nothing are errors; those of audits and of the log are not.
#[test]
fn an_unknown_variable_is_an_error() {
    let user = User::new();
    for (name, code) in [
        ("LABPROXY_SESSION_CAP", 2),
        ("LABPROXY_", 2),
        ("LABPROXY_AUDITS", 2),
        ("LABPROXY_AUDIT_WORKSPACE", 0),
        ("LABPROXY_AUDIT_ANYTHING", 0),
        ("labproxy_session_cap", 0),
    ] {
        let mut command = user.command(["config", "show"]);
        command.env(name, "1");
        let ran = ran(command);
        assert_eq!(ran.code, code, "{name}: {}", ran.stderr);
        assert!(code == 0 || ran.stderr.contains(name), "{}", ran.stderr);
    }
    let mut command = user.command(["config", "show"]);
    command.env(std::ffi::OsStr::from_bytes(b"LABPROXY_\xff"), "1");
    assert_eq!(ran(command).code, 2, "a name that is not text");
    let mut command = user.command(["config", "show"]);
    command.env("LABPROXY_LOG", "hyper=trace");
    let ran = ran(command);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("'hyper' is not a part of labproxy"),
        "{}",
        ran.stderr
    );
}

/// `config trust` makes exactly this content trusted, and works although the file is refused.
#[test]
fn t01_config_trust_lets_a_file_set_everything_until_it_changes() {
    let user = User::new();
    user.work_file("[pricing]\nallow_stale = true\n");
    assert_eq!(user.run("config show").code, 2);
    let trusted = user.run("config trust labproxy.toml");
    assert_eq!(trusted.code, 0, "{}", trusted.stderr);
    assert!(
        trusted.stderr.starts_with("trusted: "),
        "{}",
        trusted.stderr
    );
    let show = user.run("config show --json");
    assert_eq!(show.code, 0, "{}", show.stderr);
    assert_eq!(shown(&show.stdout)["pricing.allow_stale"]["value"], true);
    user.work_file("[pricing]\nallow_stale = true # and more\n");
    assert_eq!(user.run("config show").code, 2);
}

/// A file named on the command line may set everything, and needs no trust.
#[test]
fn a_file_named_by_a_flag_may_set_everything() {
    let user = User::new();
    user.work_file("nonsense = 1");
    std::fs::write(
        user.path("work/mine.toml"),
        "[limits]\nmax_connections = 3\n",
    )
    .unwrap();
    let show = user.run("config show --json --config mine.toml");
    assert_eq!(show.code, 0, "{}", show.stderr);
    let entry = &shown(&show.stdout)["limits.max_connections"];
    assert_eq!(entry["value"], 3);
    assert_eq!(
        entry["source"],
        json!({ "file": { "path": "mine.toml", "line": 2 } })
    );
}
