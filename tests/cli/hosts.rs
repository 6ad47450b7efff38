//! Naming a host: what is none, what cannot be used yet, and what ssh does not know.

use super::{User, ran};

/// Runs `host check` on exactly this word.
fn check(user: &User, host: &str) -> super::Ran {
    ran(user.command(["host", "check", "--", host]))
}

/// What ssh would take for an option, and what is no name, is refused before anything is started.
#[test]
fn b14_what_is_no_host_is_refused_with_the_reason() {
    let user = User::new();
    let canary = user.path("canary");
    let option = format!("-oProxyCommand=touch {}", canary.display());
    for (host, says) in [
        (option.as_str(), "a host cannot begin with '-'"),
        ("-l", "a host cannot begin with '-'"),
        ("ada@-l", "a host cannot begin with '-'"),
        ("gpu lab", "a host cannot hold ' '"),
        ("", "a host is missing"),
        ("ada@", "a host is missing"),
        ("gpu;ls", "a host cannot hold ';'"),
        ("$(ls)", "a host cannot hold '$'"),
        ("gpu:22", "write ssh://gpu:22"),
        ("ssh://gpu:0", "is no port"),
        ("tcp://gpu", "is not for ssh"),
        ("\u{1b}[2Jgpu", "is no host"),
    ] {
        let ran = check(&user, host);
        assert_eq!(ran.code, 2, "{host}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(says), "{host}: {}", ran.stderr);
        assert!(!ran.stderr.contains('\u{1b}'), "{host}: {}", ran.stderr);
    }
    assert!(!canary.exists(), "ssh took an option");
    let ran = user.run("host check -oProxyCommand=x");
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    user.configure("[host.gpu1]\n");
    let ran = check(&user, "gpu1 ");
    assert!(
        ran.stderr.contains("did you mean 'gpu1'?"),
        "{}",
        ran.stderr
    );
}

/// Settings that a session would not follow are refused with their lines, and so are files that ssh
/// would silently do without; all at once.
#[test]
fn b15_settings_that_cannot_be_followed_are_told_at_once() {
    let user = User::new();
    user.configure(
        "[host.gpu1]\nssh = \"gpu.example\"\nuser = \"bob\"\nport = 22\n\
         key_path = \"absent-key\"\nssh_config = \"/dev/null\"\ngpu_ids = [\"0\"]\n\
         setup_commands = [\"module load cuda\"]\n",
    );
    let ran = check(&user, "gpu1");
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let file = user.user_config().display().to_string();
    for (line, says) in [
        (5, "host.gpu1.key_path: "),
        (
            6,
            "host.gpu1.ssh_config: /dev/null: it is not a regular file",
        ),
        (7, "host.gpu1.gpu_ids: arrives with the workbench"),
        (8, "host.gpu1.setup_commands: arrives with the workbench"),
    ] {
        let wanted = format!("{file}:{line}: {says}");
        assert!(ran.stderr.contains(&wanted), "{wanted}\n{}", ran.stderr);
    }
    // Other commands do not need this host.
    assert_eq!(user.run("config show").code, 0);
}

/// A name that ssh does not know fails at its step, with a configured name that is like it; what
/// has no effect yet is noted.
#[test]
fn b16_an_unknown_alias_fails_where_it_is_looked_up() {
    let user = User::new();
    user.configure("[host.gpu1]\nssh = \"absent.invalid\"\nsudo = true\n");
    let ran = check(&user, "gpu2");
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.starts_with("failed   resolve "),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("the configuration has 'gpu1'"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.ends_with("a session would not start\n"),
        "{}",
        ran.stdout
    );
    let ran = ran_json(&user, "gpu1");
    assert_eq!(ran["works"], false);
    assert_eq!(ran["destination"], "absent.invalid");
    assert_eq!(ran["steps"][0]["step"], "resolve");
    assert_eq!(ran["steps"][0]["verdict"], "failed");
    assert_eq!(ran["steps"][1]["verdict"], "skipped");
    assert_eq!(ran["steps"].as_array().unwrap().len(), 12);
    assert!(ran["machine"].is_null());
}

fn ran_json(user: &User, host: &str) -> serde_json::Value {
    let ran = ran(user.command(["host", "check", "--json", "--", host]));
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}
