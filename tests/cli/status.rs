//! Exit statuses, and what stands on which stream.

use super::{User, ran};

/// Without a program to run: 0 when it went well, 2 for a wrong command line or configuration.
#[test]
fn a_wrong_command_line_is_2_and_says_what_was_meant() {
    let user = User::new();
    assert_eq!(user.run("config show").code, 0);
    for (line, says) in [
        ("sesion list", "tip: a similar subcommand exists: 'session'"),
        ("config shwo", "tip: a similar subcommand exists: 'show'"),
        (
            "config show --jsn",
            "tip: a similar argument exists: '--json'",
        ),
        (
            "config show --log-format xml",
            "possible values: text, json",
        ),
        (
            "config trust",
            "the following required arguments were not provided",
        ),
        ("completions basch", "a similar value exists: 'bash'"),
        ("session start --cap 2 claude", "stand after '--'"),
        ("session start --cap -1", "'-1' is not an amount in dollars"),
        ("session topup ses_a -1", "'-1' is not an amount in dollars"),
        ("man sesion", "did you mean 'session'?"),
        ("", "Usage: labproxy"),
    ] {
        let ran = user.run(line);
        assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{line}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{line}");
    }
}

/// A word that is no command is a wrong command line, never a prompt or a program, whatever follows it.
#[test]
fn tb12_a_word_that_is_no_command_is_not_a_prompt() {
    let user = User::new();
    for line in [
        "ssh",
        "ssh gpu1 claude",
        "claude -p hello",
        "session ssh gpu1",
    ] {
        let ran = user.run(line);
        assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("unrecognized subcommand"),
            "{}",
            ran.stderr
        );
        assert_eq!(ran.stdout, "", "{line}");
    }
}

/// With a program to run every failure of labproxy's own is 125, so that it is not taken for the
/// program's: the command line, its options, the configuration.
#[test]
fn with_a_program_to_run_every_failure_of_ours_is_125() {
    let user = User::new();
    for line in [
        "session start --bogus -- true",
        "sesion start --cap 1 -- true",
        "session strat -- true",
        "--log-format xml session start --cap 1 -- true",
        "--config missing.toml session start --cap 1 -- true",
    ] {
        let ran = user.run(line);
        assert_eq!(ran.code, 125, "{line}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty());
        assert_eq!(ran.stdout, "", "{line}");
    }
}

/// Something that was tried and did not work is 1.
#[test]
fn a_failure_is_1() {
    let user = User::new();
    user.work_file("");
    let state = user.path("home/.local/state");
    std::fs::create_dir_all(state.parent().unwrap()).unwrap();
    std::fs::write(&state, "in the way").unwrap();
    let ran = user.run("config trust labproxy.toml");
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: the state directory "));
    assert!(ran.stderr.contains("hint: "));
}

/// Help and version are data: stdout, status 0, whatever is configured.
#[test]
fn help_and_version_are_data() {
    let user = User::new();
    user.configure("nonsense = 1");
    for (line, says) in [
        ("--version", concat!("labproxy ", env!("CARGO_PKG_VERSION"))),
        ("--help", "labproxy session start --cap 2 -- claude"),
        ("-h", "Usage: labproxy [OPTIONS] <COMMAND>"),
        ("help config", "Usage: labproxy config"),
        (
            "config trust --help",
            "labproxy config trust ./labproxy.toml",
        ),
    ] {
        let ran = user.run(line);
        assert_eq!(ran.code, 0, "{line}");
        assert!(ran.stdout.contains(says), "{line}: {}", ran.stdout);
        assert_eq!(ran.stderr, "", "{line}");
    }
}

/// A reader that left, as in `labproxy … | head -0`, is no failure and leaves no message.
#[test]
fn a_closed_pipe_is_quiet() {
    let user = User::new();
    for line in [
        "config show",
        "config show --json",
        "--help",
        "pricing show",
        "session list --json",
        "man",
        "completions bash",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = user.command(line.split_whitespace());
        command.stdout(writer).stderr(std::process::Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{line}");
    }
}

/// A full disk behind stdout is a failure: data was lost.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_behind_stdout_is_a_failure() {
    let user = User::new();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = user.command(["config", "show"]);
    command.stdout(full).stderr(std::process::Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with("error: standard output does not take the data"),
        "{stderr}"
    );
}

/// What the user typed is shown escaped too: a name with control characters may be pasted.
#[test]
fn t37_a_wrong_word_is_shown_escaped() {
    let user = User::new();
    for words in [["config", "\x1b[2Jx\u{202e}"], ["man", "\x1b[2Jx\u{202e}"]] {
        let ran = ran(user.command(words));
        assert_eq!(ran.code, 2);
        assert!(
            !ran.stderr.contains(['\x1b', '\u{202e}']),
            "{:?}",
            ran.stderr
        );
        assert!(ran.stderr.contains("x\\u{202e}"), "{}", ran.stderr);
    }
}
