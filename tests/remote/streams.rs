//! Bytes of programs, in any amount and at any speed, arrive exactly; memory stays constant.

use std::fs;

use labproxy::wire::link::{ExecEnd, ExecId, OutputKind, ToHost, WINDOW};

use crate::client::{Client, shell, spec};
use crate::rig::Host;

/// Resident memory of a process, KiB.
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Far above what the supervisor needs for its frames, far below what is sent through it.
const RESIDENT_MAX_KIB: u64 = 24 * 1024;

/// Many lines, one long line, and much on standard error.
#[test]
fn tb01_tb02_tu08_lines_of_any_length_arrive_whole() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let line = "x".repeat(1023);
    let script = format!("i=0; while [ $i -lt 20000 ]; do echo {line}; i=$((i+1)); done");
    let done = client.run(1, &shell(&script), b"");
    assert_eq!(done.stdout.len(), 20_000 * 1024);
    assert!(
        done.stdout
            .chunks(1024)
            .all(|part| part == format!("{line}\n").as_bytes())
    );
    for (id, length) in [(2, 70_000), (3, 10 << 20), (4, 16 << 20)] {
        let script = format!("head -c {length} /dev/zero | tr '\\0' y; echo");
        let done = client.run(id, &shell(&script), b"");
        assert_eq!(done.stdout.len(), length + 1);
        assert!(done.stdout[..length].iter().all(|byte| *byte == b'y'));
    }
    let done = client.run(5, &shell("head -c 10000000 /dev/zero >&2; echo done"), b"");
    assert_eq!(
        (done.stderr.len(), done.stdout.as_slice()),
        (10_000_000, &b"done\n"[..])
    );
    let used = resident(host.supervisor().pid);
    assert!(used < RESIDENT_MAX_KIB, "{used} KiB");
    client.end(100);
}

/// Bytes of input that differ at every place of a window.
fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (offset..offset + length as u64)
        .map(|at| (at % 251) as u8)
        .collect()
}

/// Much both ways at once, through one program, within the windows: no deadlock, every byte in its
/// place, constant memory. `LABPROXY_SOAK_MIB` sets how much, a mebibyte is the unit.
#[test]
fn much_both_ways_at_once_is_exact() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let mebibytes = std::env::var("LABPROXY_SOAK_MIB").map_or(64, |text| text.parse().unwrap());
    let total: u64 = mebibytes << 20;
    let exec = client.start(1, &spec(&["cat"]));
    let (mut sent, mut received, mut ended) = (0_u64, 0_u64, false);
    while client.execs[&exec]
        .exited
        .is_none_or(|(_, length, _)| length > received)
    {
        while sent < total && sent - client.execs[&exec].taken < WINDOW - 65_536 {
            let bytes = pattern(sent, 65_536);
            client.send(&ToHost::Stdin {
                exec,
                offset: sent,
                bytes: bytes.into(),
            });
            sent += 65_536;
        }
        if sent == total && !ended {
            ended = true;
            client.send(&ToHost::StdinEnd {
                exec,
                length: total,
            });
        }
        take_pattern(&mut client, exec, &mut received);
    }
    assert_eq!(received, total);
    assert_eq!(client.execs[&exec].end(), ExecEnd::Exited(0));
    let used = resident(host.supervisor().pid);
    assert!(used < RESIDENT_MAX_KIB, "{used} KiB");
    client.end(100);
}

/// Takes one message in, without keeping output.
fn take_pattern(client: &mut Client, exec: ExecId, received: &mut u64) {
    use labproxy::wire::frame;
    use labproxy::wire::link::FromHost;
    let message = client.next(crate::rig::PATIENCE).expect("a live link");
    match frame::decode::<FromHost<'_>>(&message).unwrap() {
        FromHost::Output { offset, bytes, .. } => {
            assert_eq!(offset, *received);
            assert!(pattern(offset, bytes.len()) == *bytes, "bytes at {offset}");
            *received += bytes.len() as u64;
            client.send(&ToHost::Received {
                exec,
                output: OutputKind::Stdout,
                offset: *received,
            });
        }
        _ => client.take(&message),
    }
}

/// Input that the program does not read waits on the host, and the other streams go on.
#[test]
fn an_unread_stream_holds_up_no_other() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let stuck = client.start(1, &shell("sleep 600"));
    let mut sent = 0;
    while sent < WINDOW {
        client.send(&ToHost::Stdin {
            exec: stuck,
            offset: sent,
            bytes: pattern(sent, 65_536).into(),
        });
        sent += 65_536;
    }
    // One whose output nobody acknowledges stops at its window.
    let flood = client.start(2, &spec(&["cat", "/dev/zero"]));
    client.of(flood).deaf = true;
    client.pump(|client| client.execs[&flood].stdout.len() as u64 == WINDOW);
    let done = client.run(3, &shell("cat; echo err >&2"), b"free\n");
    assert_eq!(
        (done.stdout.as_slice(), done.stderr.as_slice()),
        (&b"free\n"[..], &b"err\n"[..])
    );
    assert_eq!(client.execs[&flood].stdout.len() as u64, WINDOW);
    let used = resident(host.supervisor().pid);
    assert!(used < RESIDENT_MAX_KIB, "{used} KiB");
    let report = client.end(0);
    assert_eq!(report.left, []);
}

/// A program that closes its input is told of; one that is waited for gets what came before it
/// started.
#[test]
fn tb08_input_is_there_at_the_start_and_its_end_is_told() {
    let host = Host::new();
    let mut client = Client::new(&host);
    // The bytes are under way before anybody knows whether the program started.
    let done = client.run(1, &shell("read line; echo \"$line\""), b"first\nsecond\n");
    assert_eq!(done.stdout, b"first\n");
    let exec = client.start(2, &shell("exec 0<&-; echo closed; sleep 600"));
    client.pump(|client| client.execs[&exec].stdin_closed);
    assert!(client.execs[&exec].exited.is_none());
    client.end(0);
}

/// A program's end does not wait for a descendant that keeps its output open, and what came before
/// it is whole.
#[test]
fn an_end_is_told_with_what_was_written_until_then() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let done = client.run(
        1,
        &shell("(sleep 600; echo late) & echo early; exit 4"),
        b"",
    );
    assert_eq!(
        (done.stdout.as_slice(), done.end()),
        (&b"early\n"[..], ExecEnd::Exited(4))
    );
    let report = client.end(0);
    assert!(
        report.left.is_empty() && report.ended + report.killed > 0,
        "{report:?}"
    );
}

/// Output that the disk does not take waits for room; nothing of it is lost.
#[test]
fn a_full_disk_holds_output_up_and_loses_nothing() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::new();
    let disk = host.home.join("disk");
    fs::create_dir(&disk).unwrap();
    let options = ["-t", "tmpfs", "-o", "size=1m,mode=700", "none"];
    let mounted = std::process::Command::new("mount")
        .args(options)
        .arg(&disk)
        .status();
    assert!(mounted.unwrap().success());
    let open = crate::client::Open {
        workdir: disk.to_str().unwrap().into(),
        ..Default::default()
    };
    let mut client = Client::connect(&host, &open);
    client.attach();
    let exec = client.start(1, &shell("head -c 5000000 /dev/zero; echo end"));
    // Nothing is acknowledged until the disk is full.
    client.of(exec).deaf = true;
    client.pump(|_| rustix::fs::statvfs(&disk).unwrap().f_bavail == 0);
    client.of(exec).deaf = false;
    let offset = client.execs[&exec].stdout.len() as u64;
    client.send(&ToHost::Received {
        exec,
        output: OutputKind::Stdout,
        offset,
    });
    let done = client.wait(exec);
    client.end(0);
    crate::rig::until("the disk is free", || {
        let status = std::process::Command::new("umount").arg(&disk).status();
        status.unwrap().success()
    });
    assert_eq!(done.stdout.len(), 5_000_004);
    assert!(done.stdout.ends_with(b"end\n"));
    assert_eq!(done.end(), ExecEnd::Exited(0));
}
