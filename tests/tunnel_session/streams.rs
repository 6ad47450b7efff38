//! The three streams of a program, byte for byte.

use std::io::{Cursor, Read};
use std::time::Duration;

use labproxy::wire::link::ExecEnd;

use crate::rig::{Program, Rig, end, sh};

const LEASE: Duration = Duration::from_secs(30);

/// Bytes that repeat late, so that a lost or repeated piece shows.
pub(crate) struct Pattern {
    at: u64,
    length: u64,
}

impl Pattern {
    pub(crate) fn of(length: u64) -> Self {
        Self { at: 0, length }
    }

    pub(crate) fn byte(at: u64) -> u8 {
        let mixed = (at / 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at;
        u8::try_from((mixed >> 32) & 0xff).unwrap()
    }

    pub(crate) fn bytes(length: u64) -> Vec<u8> {
        (0..length).map(Self::byte).collect()
    }
}

impl Read for Pattern {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = usize::try_from(self.length - self.at)
            .unwrap()
            .min(buffer.len());
        for (at, byte) in (self.at..).zip(&mut buffer[..count]) {
            *byte = Self::byte(at);
        }
        self.at += count as u64;
        Ok(count)
    }
}

/// Three streams, each its own; the end of the input is the end of the program.
#[tokio::test(flavor = "multi_thread")]
async fn input_output_and_errors_are_three_streams() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let script = "while read -r line; do echo \"out $line\"; echo \"err $line\" >&2; done; exit 7";
    let stdin = Box::new(Cursor::new(b"one\ntwo\n".to_vec()));
    let mut program = Program::start(&tunnel, &sh(script, &[]), Some(stdin));
    assert_eq!(program.end().await, ExecEnd::Exited(7));
    assert_eq!(program.stdout.text(), "out one\nout two\n");
    assert_eq!(program.stderr.text(), "err one\nerr two\n");
    end(tunnel).await;
}

/// Lines of every length pass: nothing on the way knows what a line is.
#[tokio::test(flavor = "multi_thread")]
async fn tb01_tb02_tu08_a_line_of_16_mib_arrives_whole() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    for length in [70_000, 10 << 20, 16 << 20] {
        let mut line = vec![b'x'; length];
        line.push(b'\n');
        let stdin = Box::new(Cursor::new(line.clone()));
        let mut program = Program::start(&tunnel, &sh("cat", &[]), Some(stdin));
        assert_eq!(program.end().await, ExecEnd::Exited(0));
        assert!(program.stdout.bytes() == line, "{length}");
    }
    end(tunnel).await;
}

/// 20,000 lines of a KiB each way, while 10 MB go to stderr: in order, whole, no deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn many_lines_and_a_loud_stderr_do_not_wait_for_each_other() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let lines: Vec<u8> = (0..20_000)
        .flat_map(|number| format!("{number:01023}\n").into_bytes())
        .collect();
    let script = "head -c 10000000 /dev/zero >&2 & cat; wait";
    let stdin = Box::new(Cursor::new(lines.clone()));
    let mut program = Program::start(&tunnel, &sh(script, &[]), Some(stdin));
    assert_eq!(program.end().await, ExecEnd::Exited(0));
    assert!(program.stdout.bytes() == lines);
    assert_eq!(program.stderr.len(), 10_000_000);
    end(tunnel).await;
}

/// Both directions at once, many windows long. `LABPROXY_SOAK_MIB` makes it longer.
#[tokio::test(flavor = "multi_thread")]
async fn much_passes_both_ways_at_once() {
    let mib = std::env::var("LABPROXY_SOAK_MIB").map_or(48, |mib| mib.parse().unwrap());
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let stdin = Box::new(Pattern::of(mib << 20));
    let mut program = Program::start(&tunnel, &sh("exec cat", &[]), Some(stdin));
    assert_eq!(program.end().await, ExecEnd::Exited(0));
    assert!(program.stdout.bytes() == Pattern::bytes(mib << 20));
    end(tunnel).await;
}

/// Programs share a link, and each has its own bytes.
#[tokio::test(flavor = "multi_thread")]
async fn several_programs_run_at_once() {
    let rig = Rig::new();
    let tunnel = rig.open(LEASE).await;
    let mut programs: Vec<_> = (0..8_u64)
        .map(|number| {
            let stdin = Box::new(Pattern::of(number << 18));
            Program::start(&tunnel, &sh("exec cat", &[]), Some(stdin))
        })
        .collect();
    for (number, program) in (0_u64..).zip(&mut programs) {
        assert_eq!(program.end().await, ExecEnd::Exited(0));
        assert!(program.stdout.bytes() == Pattern::bytes(number << 18));
    }
    end(tunnel).await;
}
