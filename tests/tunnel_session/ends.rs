//! How programs and tunnels end.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use labproxy::tunnel::exec::{Status, Stdio};
use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::{ExecEnd, ExecSignal, StartError};

use crate::rig::{Kept, Program, Rig, end, eventually, is_alive, sh, spec};

const LEASE: Duration = Duration::from_secs(30);

/// Every status is the program's own; a signal is told from a status that looks like one.
#[tokio::test(flavor = "multi_thread")]
async fn tu09_exit_statuses_and_signals_are_told_apart() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    for status in [0, 1, 7, 126, 127, 137, 143, 255] {
        let mut program = Program::start(&tunnel, &sh(&format!("exit {status}"), &[]), None);
        assert_eq!(program.end().await, ExecEnd::Exited(status));
    }
    for (name, signal) in [("KILL", 9), ("TERM", 15), ("SEGV", 11)] {
        let mut program = Program::start(&tunnel, &sh(&format!("kill -{name} $$"), &[]), None);
        let out_of_memory = false;
        assert_eq!(
            program.end().await,
            ExecEnd::Signaled {
                signal,
                out_of_memory
            }
        );
    }
    end(tunnel).await;
}

/// A program that is not there, or is no program, is told from one that ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_run_is_told_from_one_that_did() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let why = |status| match status {
        Status::NotStarted(why) => why,
        other => panic!("{other:?}"),
    };
    let mut absent = Program::start(&tunnel, &spec("no-such-agent", &["no-such-agent"]), None);
    assert_eq!(why(absent.status().await), StartError::NotFound);
    let plain = rig.path("plain");
    std::fs::write(&plain, "text").unwrap();
    let path = plain.to_str().unwrap();
    let mut plain = Program::start(&tunnel, &spec(path, &[path]), None);
    assert!(matches!(
        why(plain.status().await),
        StartError::NotExecutable { .. }
    ));
    let mut elsewhere = sh("exit 0", &[]);
    elsewhere.directory = ByteString::from("/no/such/directory");
    let mut elsewhere = Program::start(&tunnel, &elsewhere, None);
    assert!(matches!(
        why(elsewhere.status().await),
        StartError::Directory { .. }
    ));
    end(tunnel).await;
}

/// Each signal reaches the program, once.
#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_program() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let script = "trap 'echo INT' INT; trap 'echo HUP' HUP; trap 'echo USR1' USR1; \
                  trap 'echo TERM; exit 3' TERM; echo ready; \
                  while :; do sleep 0.05; done";
    let mut program = Program::start(&tunnel, &sh(script, &[]), None);
    let mut wanted = "ready\n".to_owned();
    program.wrote(wanted.len()).await;
    for (signal, name) in [
        (ExecSignal::Interrupt, "INT"),
        (ExecSignal::HangUp, "HUP"),
        (ExecSignal::User1, "USR1"),
        (ExecSignal::Interrupt, "INT"),
        (ExecSignal::Terminate, "TERM"),
    ] {
        program.exec.signal(signal);
        writeln!(wanted, "{name}").unwrap();
        program.wrote(wanted.len()).await;
    }
    assert_eq!(program.end().await, ExecEnd::Exited(3));
    assert_eq!(program.stdout.text(), wanted);
    end(tunnel).await;
}

/// The end of a session ends what its programs started, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn tb19_the_end_is_confirmed_by_the_host() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let script = "setsid sh -c 'setsid sleep 1000 & echo $!; wait' & wait";
    let mut program = Program::start(&tunnel, &sh(script, &[]), None);
    program.wrote(2).await;
    let pid: u32 = eventually("a pid", || {
        program.stdout.text().strip_suffix('\n')?.parse().ok()
    })
    .await;
    assert!(is_alive(pid));
    let report = end(tunnel).await;
    assert!(report.ended + report.killed > 0, "{report:?}");
    assert!(!is_alive(pid));
    assert!(rig.session().join("workspace").is_dir());
    assert!(program.status().await.is_final());
}

/// Takes one piece, and then nobody reads any more.
struct Leaves(Option<Kept>);

impl Write for Leaves {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut kept = self.0.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        kept.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whoever writes on after its reader has left is told so by SIGPIPE, whichever output it is, and
/// with the other output still there; a program that minds no signal gets an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_leaves_is_told_to_the_program() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let scripts = [
        "yes; echo ended with $? >&2",
        "yes >&2; echo ended with $?",
        "trap '' PIPE; yes 2>&-; echo ended with $? >&2",
    ];
    for (script, status) in scripts.into_iter().zip([141, 141, 1]) {
        let (first, other) = (Kept::default(), Kept::default());
        let leaves = Box::new(Leaves(Some(first.clone())));
        let mut streams = Stdio {
            stdin: None,
            stdout: leaves,
            stderr: Box::new(other.clone()),
        };
        if script.contains("yes >&2") {
            std::mem::swap(&mut streams.stdout, &mut streams.stderr);
        }
        let mut program = Program {
            exec: tunnel.launch(&sh(script, &[]), streams).unwrap(),
            stdout: first.clone(),
            stderr: other.clone(),
        };
        assert_eq!(program.end().await, ExecEnd::Exited(0));
        assert!(first.text().starts_with("y\ny\n"));
        assert_eq!(other.text(), format!("ended with {status}\n"));
    }
    end(tunnel).await;
}

/// A reader that leaves while there is no link: the next link tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_leaves_during_a_loss_is_told_later() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let (leave, stays) = std::sync::mpsc::channel::<()>();
    let kept = Kept::default();
    let streams = Stdio {
        stdin: None,
        stdout: Box::new(LeavesWhenTold(stays, kept.clone())),
        stderr: Box::new(Kept::default()),
    };
    let script = "while echo y; do sleep 0.01; done";
    let mut program = Program {
        exec: tunnel.launch(&sh(script, &[]), streams).unwrap(),
        stdout: kept.clone(),
        stderr: Kept::default(),
    };
    program.wrote(1).await;
    rig.pipes.refused.store(true, Ordering::SeqCst);
    rig.pipes.cut();
    eventually("the loss", || {
        (rig.watcher.lost.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    drop(leave);
    rig.pipes.refused.store(false, Ordering::SeqCst);
    let out_of_memory = false;
    let signal = 13;
    let end_of = ExecEnd::Signaled {
        signal,
        out_of_memory,
    };
    assert_eq!(program.end().await, end_of);
    end(tunnel).await;
}

/// Breaks when its other half is dropped.
struct LeavesWhenTold(std::sync::mpsc::Receiver<()>, Kept);

impl Write for LeavesWhenTold {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.try_recv() {
            Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            _ => self.1.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
