//! How a shim ends: as its program, when it is killed, when its session is gone.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::rig::{VERSION, World, is_there, kill, line, until};

/// Every status is the program's own; a signal ends the shim as it ended the program, so that 137 and
/// KILL are told apart.
#[test]
fn tu09_statuses_are_told_apart() {
    let world = World::new();
    for status in [0, 1, 7, 126, 127, 137, 143, 255] {
        let output = world.sh(&format!("exit {status}")).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    for signal in [Signal::KILL, Signal::TERM, Signal::SEGV, Signal::PIPE] {
        let text = format!("kill -{} $$", signal.as_raw());
        let output = world.sh(&text).output().unwrap();
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{output:?}");
    }
}

/// A program that does not start has a shell's status and a sentence; a launch that the session refuses
/// has 125 and the reason, escaped.
#[test]
fn what_does_not_start_is_told() {
    let world = World::new();
    let plain = world.path("plain");
    std::fs::write(&plain, "").unwrap();
    for (arguments, status, said) in [
        (vec!["/absent/program"], 127, "was not found on the host"),
        (
            vec![plain.to_str().unwrap()],
            126,
            "cannot be executed on the host",
        ),
        (vec!["refuse"], 125, "nothing of\\x1b[2J that kind"),
    ] {
        let output = world.shim(&arguments).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(
            stderr.starts_with("labproxy: ") && stderr.contains(said),
            "{stderr}"
        );
    }
}

/// The version costs no launch.
#[test]
fn tu04_a_version_asks_nobody() {
    let world = World::new();
    for option in ["-v", "-V", "--version"] {
        let output = world.shim(&[option]).output().unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap().trim_end(),
            VERSION
        );
    }
    assert_eq!(world.launches(), 0);
}

/// Signals reach the program, which decides what they mean; the shim ends when it does.
#[test]
fn signals_are_the_programs() {
    let world = World::new();
    let text = "trap 'echo int' INT; trap 'echo hup' HUP; trap 'echo term; exit 9' TERM; \
                echo ready; while :; do read -r _ || sleep 0.01; done";
    let mut shim = world.sh(text).spawn().unwrap();
    let mut out = shim.stdout.take().unwrap();
    assert_eq!(line(&mut out), "ready");
    for (signal, said) in [
        (Signal::INT, "int"),
        (Signal::HUP, "hup"),
        (Signal::TERM, "term"),
    ] {
        // Input is what wakes the program up to look at its traps.
        kill(&shim, signal);
        let _ended = writeln!(shim.stdin.as_ref().unwrap());
        assert_eq!(line(&mut out), said);
    }
    assert_eq!(shim.wait().unwrap().code(), Some(9));
}

/// An SDK's way to end a CLI: its input ends, and one that does not mind that ends at SIGTERM.
#[test]
fn an_sdk_ends_a_stubborn_cli_with_term() {
    let world = World::new();
    let mut shim = world
        .sh("cat > /dev/null; echo eof; while :; do sleep 0.01; done")
        .spawn()
        .unwrap();
    let mut out = shim.stdout.take().unwrap();
    drop(shim.stdin.take());
    assert_eq!(line(&mut out), "eof");
    assert_eq!(shim.try_wait().unwrap(), None);
    kill(&shim, Signal::TERM);
    assert_eq!(shim.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    assert!(!is_there(world.pid()));
}

/// A killed shim takes its program with it: input ends and TERM comes at once, KILL when that does not
/// help.
#[test]
fn tu05_a_killed_shim_ends_its_program() {
    for stubborn in ["", "trap '' TERM HUP INT; "] {
        let world = World::new();
        let text = format!("{stubborn}echo ready; while :; do sleep 0.01; done");
        let mut shim = world.sh(&text).spawn().unwrap();
        assert_eq!(line(shim.stdout.as_mut().unwrap()), "ready");
        let pid = world.pid();
        assert!(is_there(pid));
        kill(&shim, Signal::KILL);
        shim.wait().unwrap();
        until("the program ends", || !is_there(pid));
    }
}

/// A program whose output nobody reads any more learns it by its next write, as it would here, and the
/// shim ends as it ends.
#[test]
fn a_reader_that_left_ends_the_program_that_writes() {
    for (stream, redirect) in [("stdout", ""), ("stderr", " >&2")] {
        let world = World::new();
        let text = format!("while :; do echo y{redirect}; done");
        let mut shim = world.sh(&text).spawn().unwrap();
        match stream {
            "stdout" => drop(shim.stdout.take()),
            _ => drop(shim.stderr.take()),
        }
        let end = shim.wait().unwrap();
        assert_eq!(end.signal(), Some(Signal::PIPE.as_raw()), "{stream}");
        until("the program ends", || !is_there(world.pid()));
    }
}

/// One that does not mind goes on, and its own status is the shim's.
#[test]
fn a_reader_that_left_ends_no_program_that_goes_on() {
    let world = World::new();
    let text = "trap '' PIPE; while echo y; do :; done 2>/dev/null; \
                echo noticed >&2; cat >/dev/null; exit 7";
    let mut shim = world.sh(text).spawn().unwrap();
    drop(shim.stdout.take());
    assert_eq!(line(shim.stderr.as_mut().unwrap()), "noticed");
    drop(shim.stdin.take());
    assert_eq!(shim.wait().unwrap().code(), Some(7));
}

/// Without its session a shim says so; one that runs when the session ends is told, and its program
/// ends.
#[test]
fn a_shim_without_its_session_says_so() {
    let mut world = World::new();
    let mut shim = world.sh("echo ready; cat").spawn().unwrap();
    assert_eq!(line(shim.stdout.as_mut().unwrap()), "ready");
    let pid = world.pid();
    world.end_session();
    let output = shim.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("the session ended"), "{stderr}");
    until("the program ends", || !is_there(pid));
    let output = world.sh("true").stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("does not run any more"), "{stderr}");
}
