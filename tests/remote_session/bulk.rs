//! Much in both directions at once, through ssh: exact, and in constant memory on both sides.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use labproxy::remote::record::Record;

use crate::sshd::World;

/// Mebibytes each way; `LABPROXY_SOAK_MIB` sets another number, as for each side alone.
const MEBIBYTES: u64 = 128;
/// Bytes that are made and compared at once.
const PIECE: usize = 64 * 1024;
/// Measured: 177 MiB after 320 MiB each way and after 800. Less than what would be kept if anything
/// were.
const CONTROLLER_MAX_KIB: u64 = 224 * 1024;
/// As in the test of the host side alone.
const HOST_MAX_KIB: u64 = 24 * 1024;

/// The most memory that a process ever had, KiB.
fn most_memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// A piece of a stream whose bytes repeat late.
fn piece(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(PIECE).collect()
}

#[test]
fn much_both_ways_at_once_is_exact_in_constant_memory() {
    let mebibytes =
        std::env::var("LABPROXY_SOAK_MIB").map_or(MEBIBYTES, |text| text.parse().unwrap());
    let pieces = (mebibytes << 20) / PIECE as u64;
    let world = World::new();
    let mut labproxy = world
        .start(&[], &["sh", "-c", "tee /dev/stderr"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = labproxy.stdin.take().unwrap();
    let mut stdout = labproxy.stdout.take().unwrap();
    let mut stderr = labproxy.stderr.take().unwrap();
    let controller = i32::try_from(labproxy.id()).unwrap();
    let loud = thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()).unwrap());
    let begun = Instant::now();
    let writer = thread::spawn(move || {
        let mut hash = blake3::Hasher::new();
        for number in 0..pieces {
            let piece = piece(number);
            hash.update(&piece);
            stdin.write_all(&piece).unwrap();
        }
        (stdin, hash.finalize())
    });
    let mut came = vec![0; PIECE];
    let mut hash = blake3::Hasher::new();
    for number in 0..pieces {
        stdout.read_exact(&mut came).unwrap();
        hash.update(&came);
        assert!(came == piece(number), "piece {number}");
    }
    let took = begun.elapsed();
    let session = world.there(&world.rig.session());
    let record = Record::read(&OwnedFd::from(File::open(session).unwrap())).unwrap();
    let (here, there) = (most_memory(controller), most_memory(record.supervisor.pid));
    let (stdin, sent) = writer.join().unwrap();
    let received = hash.finalize();
    eprintln!(
        "{mebibytes} MiB each way in {took:?}: {here} KiB here, {there} KiB there; sent {sent}, \
         received {received}"
    );
    assert_eq!(sent, received);
    assert!(here < CONTROLLER_MAX_KIB, "{here} KiB");
    assert!(there < HOST_MAX_KIB, "{there} KiB");
    drop(stdin);
    assert_eq!(stdout.read(&mut came).unwrap(), 0);
    assert!(labproxy.wait().unwrap().success());
    assert!(loud.join().unwrap() >= mebibytes << 20);
}
