//! Colour, on a real pseudo-terminal.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;

use super::User;

/// Runs a command line with stdout and stderr on a new terminal; returns what it drew.
fn on_a_terminal(user: &User, line: &str, variables: &[(&str, &str)]) -> String {
    let terminal = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&terminal).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let inside: OwnedFd = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let mut command = user.command(line.split_whitespace());
    command
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stdout(Stdio::from(inside.try_clone().unwrap()))
        .stderr(Stdio::from(inside));
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut drawn = Vec::new();
    // Linux ends a terminal that nobody holds open any more with an error instead of an end.
    let _end = File::from(terminal).read_to_end(&mut drawn);
    child.wait().unwrap();
    String::from_utf8(drawn).unwrap()
}

/// Tables, help and errors are coloured on a terminal, and never when `NO_COLOR` is set.
#[test]
fn no_color_is_honoured() {
    let user = User::new();
    for (line, text) in [
        ("config show", "SETTING"),
        ("--help", "Usage:"),
        ("config show --config missing.toml", "error:"),
    ] {
        let colored = on_a_terminal(&user, line, &[]);
        assert!(
            colored.contains('\x1b') && colored.contains(text),
            "{colored:?}"
        );
        for off in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let plain = on_a_terminal(&user, line, &[off]);
            assert!(
                !plain.contains('\x1b') && plain.contains(text),
                "{off:?}: {plain:?}"
            );
        }
    }
}

/// Without a terminal there is no colour, asked for or not.
#[test]
fn a_pipe_gets_no_colour() {
    let user = User::new();
    for line in ["config show", "--help", "config show --config missing.toml"] {
        let mut command = user.command(line.split_whitespace());
        command.env("TERM", "xterm").env("CLICOLOR_FORCE", "1");
        let ran = super::ran(command);
        assert!(
            !ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'),
            "{line}"
        );
    }
}

/// labproxy closes itself before it reads anything: no core dump, not dumpable.
#[test]
#[cfg(target_os = "linux")]
fn t40_the_process_is_not_dumpable_and_leaves_no_core() {
    use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};

    let before = labproxy::cli::hardening::harden();
    assert_eq!(getrlimit(Resource::Core).current, Some(0));
    assert_eq!(getrlimit(Resource::Core).maximum, before.core.maximum);
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
}
