//! The line that says how far it is, on a real pseudo-terminal.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::rig::Rig;

/// Pushes with stderr on a terminal of so many columns; returns what it drew.
fn drawn(rig: &Rig, columns: u16, variables: &[(&str, &str)]) -> String {
    let terminal = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&terminal).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let inside: OwnedFd = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&inside, size).unwrap();
    let (local, far) = (rig.path("local"), rig.path("far"));
    let words = [
        "mirror".as_ref(),
        "push".as_ref(),
        local.as_os_str(),
        far.as_os_str(),
    ];
    let mut command = rig.command(words);
    command
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::from(inside));
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut drawn = Vec::new();
    // Linux ends a terminal that nobody holds open any more with an error instead of an end.
    let _end = File::from(terminal).read_to_end(&mut drawn);
    assert!(child.wait().unwrap().success());
    String::from_utf8(drawn).unwrap()
}

/// One line that is drawn over, never wider than the terminal, and gone at the end.
#[test]
fn progress_is_one_line_and_gone_at_the_end() {
    for (columns, variables) in [(80, &[][..]), (12, &[("NO_COLOR", "1")][..])] {
        let rig = Rig::new();
        rig.write("local/a", "one");
        rig.push("");
        rig.write("local/b", "two");
        let text = drawn(&rig, columns, variables);
        assert!(
            text.contains("\rsending") && text.contains("\rverifying"),
            "{text:?}"
        );
        assert!(!text.contains(['\x1b', '\n']), "{text:?}");
        let wide = text.split('\r').map(|part| part.chars().count()).max();
        assert!(wide < Some(usize::from(columns)), "{text:?}");
        let last = text.trim_end_matches('\r').rsplit('\r').next().unwrap();
        assert_eq!(last.trim(), "", "{text:?}");
    }
}

#[test]
fn a_terminal_that_cannot_is_left_alone() {
    let rig = Rig::new();
    rig.write("local/a", "one");
    rig.push("");
    assert_eq!(drawn(&rig, 80, &[("TERM", "dumb")]), "");
}
