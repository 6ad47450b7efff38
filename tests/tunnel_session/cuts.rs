//! Links that are lost: within the lease nothing is, after it everything ends.

use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use labproxy::tunnel::error::TunnelError;
use labproxy::tunnel::exec::Status;
use labproxy::wire::link::{ExecEnd, ExecSignal};

use crate::rig::{LOOK_EVERY, Program, Rig, end, eventually, is_alive, sh};
use crate::streams::Pattern;

/// A pseudo-random sequence of its own.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// Input that comes in the pace of a reader that is slower than the cuts.
struct Slow<R>(R);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(1));
        let most = buffer.len().min(16 * 1024);
        self.0.read(&mut buffer[..most])
    }
}

/// Links cut at random places while both streams are full: exact, and exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn random_cuts_lose_and_repeat_nothing() {
    let rig = Rig::new();
    let seed = std::env::var("PROPTEST_RNG_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    rig.pipes
        .cut_after
        .store(1_000 + random.below(2_000_000), Ordering::SeqCst);
    let tunnel = rig.open(Duration::from_mins(1)).await;
    let length = 24 << 20;
    let stdin = Box::new(Slow(Pattern::of(length)));
    let script = "tee /dev/stderr";
    let mut program = Program::start(&tunnel, &sh(script, &[]), Some(stdin));
    let mut cuts = 0;
    while !program.exec.status().is_final() {
        if rig.pipes.cut_after.load(Ordering::SeqCst) == 0 && cuts < 25 {
            cuts += 1;
            rig.pipes
                .cut_after
                .store(1 + random.below(3_000_000), Ordering::SeqCst);
        }
        if random.below(100) == 0 && cuts < 25 {
            cuts += 1;
            rig.pipes.cut();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    assert_eq!(program.end().await, ExecEnd::Exited(0));
    let wanted = Pattern::bytes(length);
    assert!(program.stdout.bytes() == wanted);
    assert!(program.stderr.bytes() == wanted);
    let lost = rig.watcher.lost.load(Ordering::SeqCst);
    assert!(lost >= 5, "{lost} links were lost");
    end(tunnel).await;
}

/// A program keeps its pid, its input and its output over a cut; the user is told once of each.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_does_not_notice_a_cut() {
    let rig = Rig::new();
    let tunnel = rig.open(Duration::from_secs(30)).await;
    let script = "trap 'echo INT' INT; echo $$; while :; do echo tick; sleep 0.05; done";
    let mut program = Program::start(&tunnel, &sh(script, &[]), None);
    program.wrote(20).await;
    rig.pipes.refused.store(true, Ordering::SeqCst);
    rig.pipes.cut();
    eventually("the loss", || {
        (rig.watcher.lost.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    program.exec.signal(ExecSignal::Interrupt);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let then = program.stdout.len();
    rig.pipes.refused.store(false, Ordering::SeqCst);
    eventually("the new link", || {
        (rig.watcher.back.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    program.wrote(then + 100).await;
    eventually("the signal", || {
        program.stdout.text().contains("INT\n").then_some(())
    })
    .await;
    program.exec.signal(ExecSignal::Kill);
    assert!(matches!(
        program.end().await,
        ExecEnd::Signaled { signal: 9, .. }
    ));
    let text = program.stdout.text();
    assert_eq!(text.matches("INT\n").count(), 1, "{text}");
    assert_eq!(rig.watcher.lost.load(Ordering::SeqCst), 1);
    end(tunnel).await;
}

/// Twenty losses leave one process here and one supervisor there.
#[tokio::test(flavor = "multi_thread")]
async fn tb20_losses_do_not_pile_processes_up() {
    let rig = Rig::new();
    let tunnel = rig.open(Duration::from_mins(1)).await;
    let mut program = Program::start(
        &tunnel,
        &sh("echo $$; exec cat", &[]),
        Some(Box::new(Never)),
    );
    program.wrote(2).await;
    for loss in 1..=20 {
        rig.pipes.cut();
        eventually("a new link", || {
            (rig.watcher.back.load(Ordering::SeqCst) == loss).then_some(())
        })
        .await;
    }
    let attached = processes_with("attach");
    assert!(attached <= 2, "{attached} channel processes");
    program.exec.signal(ExecSignal::Terminate);
    assert!(matches!(
        program.end().await,
        ExecEnd::Signaled { signal: 15, .. }
    ));
    end(tunnel).await;
}

/// A source that gives nothing and does not end.
struct Never;

impl Read for Never {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        loop {
            std::thread::park();
        }
    }
}

/// Children of this test that run the host's program in a role.
fn processes_with(role: &str) -> usize {
    let own = std::process::id();
    let is_ours = |pid: u32| {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return false;
        };
        let rest = stat.rsplit_once(')').unwrap().1;
        rest.split_ascii_whitespace().nth(1) == Some(&own.to_string())
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter(|pid| is_ours(*pid))
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0)
                .any(|word| word == role.as_bytes())
        })
        .count()
}

/// After the lease both sides say so, and nothing of the session is left but its workspace.
#[tokio::test(flavor = "multi_thread")]
async fn t13_after_the_lease_everything_ends_but_the_workspace() {
    let rig = Rig::new();
    let lease = Duration::from_secs(3);
    let tunnel = rig.open(lease).await;
    let script = "echo kept > file; setsid sleep 1000 & echo $!; wait";
    let mut program = Program::start(&tunnel, &sh(script, &[]), None);
    let pid: u32 = eventually("a pid", || {
        program.stdout.text().strip_suffix('\n')?.parse().ok()
    })
    .await;
    rig.pipes.refused.store(true, Ordering::SeqCst);
    rig.pipes.cut();
    let begun = Instant::now();
    eventually("the end on the host", || (!is_alive(pid)).then_some(())).await;
    assert!(begun.elapsed() >= lease, "{:?}", begun.elapsed());
    assert!(begun.elapsed() < lease + Duration::from_secs(30));
    rig.pipes.refused.store(false, Ordering::SeqCst);
    let Status::Lost(error) = program.status().await else {
        panic!("{:?}", program.exec.status());
    };
    assert!(
        matches!(&*error, TunnelError::LeaseOver { lease: of, .. } if *of == lease),
        "{error:?}"
    );
    let text = error.failure("gpu1").render(labproxy::table::Style::Plain);
    assert!(text.contains("the lease of 3 s is over"), "{text}");
    let file = rig.session().join("workspace/file");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "kept\n");
}

/// A supervisor that is gone before the lease is over is told from a lease that is over, at once.
#[tokio::test(flavor = "multi_thread")]
async fn tb15_a_supervisor_that_is_gone_is_a_typed_end() {
    let rig = Rig::new();
    let tunnel = rig.open(Duration::from_mins(1)).await;
    let mut program = Program::start(&tunnel, &sh("echo $PPID; exec sleep 1000", &[]), None);
    let supervisor: i32 = eventually("a pid", || {
        program.stdout.text().strip_suffix('\n')?.parse().ok()
    })
    .await;
    let begun = Instant::now();
    let pid = rustix::process::Pid::from_raw(supervisor).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let Status::Lost(error) = program.status().await else {
        panic!("{:?}", program.exec.status());
    };
    assert!(matches!(&*error, TunnelError::SupervisorGone), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}
