//! What passes through a shim: bytes of any number and kind, and no secret.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::Ordering;
use std::thread;

use labproxy::session::shim::LOCAL_WINDOW;

use crate::rig::{KEY, World, is_there, until};

/// A line of JSON of so many bytes, with its newline.
fn json_line(length: usize) -> Vec<u8> {
    let head = br#"{"type":"assistant","x":""#;
    let tail = b"\"}\n";
    let mut line = head.to_vec();
    let letters = (b'a'..=b'z').cycle();
    line.extend(letters.take(length - head.len() - tail.len()));
    line.extend_from_slice(tail);
    line
}

/// Sends everything through `cat` on the other side and gives what came back.
fn echoed(world: &World, sent: &[u8]) -> Vec<u8> {
    let mut shim = world.shim(&["cat"]).spawn().unwrap();
    let mut stdin = shim.stdin.take().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(sent).unwrap());
        let output = shim.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{:?}", output.stderr);
        output.stdout
    })
}

/// Long lines pass both ways at once, byte for byte: those that broke SDKs, and longer ones.
#[test]
fn tb01_tb02_tu08_long_lines_arrive_whole() {
    let world = World::new();
    for length in [70_000, 10 << 20, 16 << 20] {
        let sent = json_line(length);
        assert_eq!(sent.len(), length);
        assert!(echoed(&world, &sent) == sent, "{length}");
    }
    let lines: Vec<u8> = (0..20_000).flat_map(|_| json_line(1_024)).collect();
    assert!(echoed(&world, &lines) == lines);
}

/// The documentation shows the setting that lets an SDK take such lines, and names the error that it shows
/// without it, which is not the link's.
#[test]
fn tb02_tb04_users_are_told_of_the_sdks_limit() {
    let text = include_str!("../../docs/remote.md");
    let python = text.split("```python").nth(1).unwrap();
    let python = python.split("```").next().unwrap();
    let set = python
        .lines()
        .find(|line| line.contains("max_buffer_size="));
    let mebibytes = set.unwrap().trim().strip_prefix("max_buffer_size=");
    let mebibytes = mebibytes.unwrap().strip_suffix(" * 1024 * 1024,").unwrap();
    assert!(mebibytes.parse::<u32>().unwrap() >= 16);
    assert!(text.contains("exceeded maximum buffer size"));
}

/// Both outputs are separate, and one that nobody reads does not hold up the other.
#[test]
fn outputs_do_not_wait_for_each_other() {
    let world = World::new();
    let text = "head -c 10000000 /dev/zero >&2 & echo out; wait; echo end >&2";
    let mut shim = world.sh(text).spawn().unwrap();
    let mut out = String::new();
    let mut byte = [0; 4];
    shim.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    out.push_str(std::str::from_utf8(&byte).unwrap());
    assert_eq!(out, "out\n");
    let output = shim.wait_with_output().unwrap();
    assert_eq!(output.stderr.len(), 10_000_004);
    assert!(output.stderr.ends_with(b"\0end\n"));
}

/// The end of input arrives without the end of output, also when input was there and over before the
/// program began.
#[test]
fn tb08_input_may_come_before_the_program_and_its_end_is_half_a_close() {
    let world = World::new();
    let mut shim = world
        .sh("read -r first; cat; echo \"$first after\"")
        .spawn()
        .unwrap();
    let mut stdin = shim.stdin.take().unwrap();
    stdin.write_all(b"early\nlate\n").unwrap();
    drop(stdin);
    let output = shim.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"late\nearly after\n");
}

/// What nobody reads stays with the program: between it and the reader stand the window and the pipes,
/// however much it writes.
#[test]
fn an_unread_output_stops_the_program() {
    const PIPE: u64 = 64 * 1024;
    let world = World::new();
    let mut shim = world.sh("head -c 67108864 /dev/zero").spawn().unwrap();
    let mut out = shim.stdout.take().unwrap();
    let mut buffer = vec![0; 4096];
    let (mut read, mut most) = (0_u64, 0_u64);
    loop {
        let accepted = world.local.accepted.load(Ordering::SeqCst);
        most = most.max(accepted.saturating_sub(read));
        let count = out.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        read += count as u64;
    }
    assert_eq!(read, 67_108_864);
    assert!(shim.wait().unwrap().success());
    assert!(most <= LOCAL_WINDOW + 2 * PIPE, "{most}");
}

/// Arguments, variables and the working directory arrive as bytes.
#[test]
fn tu03_arguments_are_bytes() {
    let world = World::new();
    let odd = OsStr::from_bytes(b"\xff\n'\"$\\ \xc3\xa9");
    let long = "x".repeat(131_000);
    let mut shim = world.shim(&["printf", "%s|", "", &long, "-v", "--", "--config"]);
    let output = shim.arg(odd).env("ODD", odd).output().unwrap();
    let expected = [
        b"||",
        long.as_bytes(),
        b"|-v|--|--config|",
        odd.as_bytes(),
        b"|",
    ];
    let expected = expected.concat();
    assert_eq!(output.stdout, expected.get(1..).unwrap());
    assert_eq!(world.asked().last().unwrap(), odd);
    let asked = world.local.asked.lock().unwrap();
    let variables = &asked[0].environment;
    assert!(variables.contains(&("ODD".into(), odd.to_owned())));
    let here = world.path("").canonicalize().unwrap();
    assert_eq!(asked[0].directory, here);
}

/// Several at once do not mix.
#[test]
fn launches_at_once_do_not_mix() {
    let world = World::new();
    thread::scope(|scope| {
        for number in 0..12_u8 {
            let world = &world;
            scope.spawn(move || {
                let sent = vec![b'a' + number; 300_000];
                assert!(echoed(world, &sent) == sent, "{number}");
            });
        }
    });
    assert_eq!(world.launches(), 12);
}

/// The credential in what an SDK writes ends the launch by a sentence, and never arrives whole, however
/// it is cut.
#[test]
fn t05_the_credential_does_not_pass_through_standard_input() {
    for pieces in [vec![KEY], KEY.split_inclusive('-').collect()] {
        let world = World::new();
        let got = world.path("got");
        let text = format!("cat > '{}'", got.display());
        let mut shim = world.sh(&text).spawn().unwrap();
        let mut stdin = shim.stdin.take().unwrap();
        stdin.write_all(b"{\"env\":\"").unwrap();
        for piece in pieces {
            // The shim may have ended before the last piece.
            let _over = stdin.write_all(piece.as_bytes());
        }
        let _over = stdin.write_all(b"\"}\n");
        let output = shim.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(
            stderr.contains("standard input holds the provider's"),
            "{stderr}"
        );
        assert!(!stderr.contains(KEY), "{stderr}");
        until("the program ends", || !is_there(world.pid()));
        let arrived = std::fs::read(&got).unwrap_or_default();
        assert!(!arrived.windows(KEY.len()).any(|at| at == KEY.as_bytes()));
    }
}
