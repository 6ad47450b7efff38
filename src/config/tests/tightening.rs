//! What a working directory's file may do, and how it is trusted.

use super::{User, cap_of, trust};

/// Threat 1: every setting that reaches outside or loosens is refused by name, with its line and
/// the user's own file, and nothing of it is in force.
#[test]
fn t01_a_working_file_sets_nothing_that_reaches_outside() {
    for (text, key) in [
        (
            "[session]\non_client_gone = \"cancel\"",
            "session.on_client_gone",
        ),
        (
            "[session]\npass_env = [\"AWS_SECRET_ACCESS_KEY\"]",
            "session.pass_env",
        ),
        ("[limits]\ndaily_usd = \"1\"", "limits.daily_usd"),
        ("[limits]\nmax_connections = 1", "limits.max_connections"),
        (
            "[upstream.anthropic]\nbase_url = \"https://evil.example\"",
            "upstream.anthropic.base_url",
        ),
        (
            "upstream.anthropic.credential = { command = [\"/bin/touch\", \"x\"] }",
            "upstream.anthropic.credential",
        ),
        (
            "[upstream.anthropic]\nallow_private = true",
            "upstream.anthropic.allow_private",
        ),
        (
            "[upstream.anthropic]\nproxy = \"http://evil.example:1\"",
            "upstream.anthropic.proxy",
        ),
        (
            "[upstream.anthropic]\nca_file = \"evil.pem\"",
            "upstream.anthropic.ca_file",
        ),
        ("[pricing]\nfile = \"cheap.toml\"", "pricing.file"),
        ("[pricing]\nallow_stale = true", "pricing.allow_stale"),
        ("[agent]\nbinary = \"./evil\"", "agent.binary"),
    ] {
        let problems = User::new().working_file(text).problems();
        let line = text.lines().count();
        assert_eq!(
            problems,
            [format!(
                "labproxy.toml:{line}: {key}: a working directory's file does not set this; set it \
                 in ~/.config/labproxy/config.toml, or trust this file: labproxy config trust \
                 ./labproxy.toml"
            )]
        );
    }
}

/// What a user has opened, and the bounds they set; a file may go below each, never above.
const OPEN: &str = "\
[session]
cap_usd = \"5\"
on_cap = \"clamp\"
lease = \"60s\"
wait = \"60s\"
[gate]
accept = [\"a\", \"b\"]
web_search = { tokens_per_use = 1000, max_uses = 5 }
compaction = true
remote_content = true
known_usage = [\"c\"]
strict_bound = false
";

/// Threat 1: settings that tighten stand, whether they change something or repeat it.
#[test]
fn t01_a_working_file_may_tighten() {
    for text in [
        "session.cap_usd = \"5\"",
        "session.cap_usd = \"0.01\"",
        "session.on_cap = \"refuse\"",
        "session.on_cap = \"clamp\"",
        "session.lease = \"1s\"",
        "session.wait = \"60000ms\"",
        "gate.accept = [\"b\"]",
        "gate.accept = []",
        "gate.web_search = false",
        "gate.web_search = { tokens_per_use = 1000, max_uses = 4 }",
        "gate.web_search = { tokens_per_use = 2000, max_uses = 5 }",
        "gate.compaction = false",
        "gate.remote_content = false",
        "gate.known_usage = []",
        "gate.strict_bound = true",
    ] {
        let user = User::new().user_file(OPEN).working_file(text);
        assert!(user.load().is_ok(), "{text}: {:?}", user.load());
    }
    let user = User::new()
        .user_file(OPEN)
        .working_file("session.cap_usd = \"0.01\"");
    assert_eq!(cap_of(&user.load().unwrap()), "$0.01");
}

/// Threat 1: settings that loosen are refused, and the message names what they would loosen.
#[test]
fn t01_a_working_file_may_not_loosen() {
    for text in [
        "session.cap_usd = \"5.000000000001\"",
        "session.on_cap = \"soft\"",
        "session.lease = \"61s\"",
        "session.wait = \"60001ms\"",
        "gate.accept = [\"a\", \"z\"]",
        "gate.web_search = { tokens_per_use = 999, max_uses = 5 }",
        "gate.web_search = { tokens_per_use = 1000, max_uses = 6 }",
        "gate.known_usage = [\"d\"]",
    ] {
        let problems = User::new().user_file(OPEN).working_file(text).problems();
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        let says = "may only tighten, and it is looser than the one from ~/.config/labproxy/";
        assert!(problems[0].contains(says), "{problems:?}");
    }
    let closed = User::new().user_file("gate.strict_bound = true\nsession.on_cap = \"refuse\"");
    let user = closed.working_file(
        "gate.strict_bound = false\ngate.compaction = true\ngate.remote_content = true\n\
         gate.web_search = { tokens_per_use = 1 }\nsession.on_cap = \"clamp\"\n",
    );
    assert_eq!(user.problems().len(), 5, "{:?}", user.problems());
}

/// Threat 1: where the user has no cap, a file of the working directory cannot bring one in.
#[test]
fn t01_a_working_file_cannot_bring_in_a_cap() {
    let problems = User::new()
        .working_file("session.cap_usd = \"1\"")
        .problems();
    assert!(
        problems[0].contains("there is none yet that it could lower"),
        "{problems:?}"
    );
}

/// Threat 1: a file is trusted by the hash of what it holds: one byte more, and it is not.
#[test]
fn t01_trust_is_in_the_content() {
    let text = "[session]\ncap_usd = \"100\"\n";
    let user = User::new().working_file(text);
    assert!(user.load().is_err());
    let path = user.work().join("labproxy.toml");
    trust::trust(&user.paths(), &path, text).unwrap();
    trust::trust(&user.paths(), &path, text).unwrap();
    assert_eq!(cap_of(&user.load().unwrap()), "$100.00");
    let list = std::fs::read_to_string(user.paths().trusted()).unwrap();
    assert_eq!(list.lines().count(), 1, "trusting twice is trusting once");
    let user = user.working_file(&format!("{text}\n"));
    assert_eq!(user.problems().len(), 1);
}

/// Threat 1: a list of trusted files that others can read or write is worth nothing.
#[test]
fn t01_a_list_of_trust_that_is_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let text = "session.wait = \"999s\"";
    let user = User::new().working_file(text);
    trust::trust(&user.paths(), &user.work(), text).unwrap();
    let list = user.paths().trusted();
    let mode = std::fs::metadata(&list).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o644)).unwrap();
    let problems = user.problems();
    assert!(
        problems[0].contains("can be changed by other users"),
        "{problems:?}"
    );
}

/// Threat 1: more may be left out, and nothing that the user leaves out is taken back in.
#[test]
fn t01_a_working_file_leaves_out_more_and_never_less() {
    let user = || User::new().user_file("mirror.exclude = [\"*.key\"]");
    let config = user().working_file("mirror.exclude = [\"data/\"]").load();
    assert_eq!(config.unwrap().mirror.patterns(), ["*.key", "data/"]);
    let loose = "[mirror]\nexclude = [\"data/\", \"!my.key\"]";
    let problems = user().working_file(loose).problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("labproxy.toml:2: mirror.exclude: "));
    assert!(
        problems[0].contains("'!my.key' takes back in"),
        "{problems:?}"
    );
    let trusted = user().working_file(loose);
    let path = trusted.work().join("labproxy.toml");
    trust::trust(&trusted.paths(), &path, loose).unwrap();
    let config = trusted.load();
    assert_eq!(
        config.unwrap().mirror.patterns(),
        ["*.key", "data/", "!my.key"]
    );
}
