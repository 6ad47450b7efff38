//! The fuzz target's seeds replayed, and random changes of them.

use std::fs;
use std::path::{Path, PathBuf};

use labproxy::wire::frame;
use labproxy::wire::link::{
    ExecId, ExecProgress, ExecSignal, ForwardEnd, OutputKind, ToHost, WindowSize,
};
use proptest::prelude::*;

use crate::client::shell;
use crate::oracle::check;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/host_link")
}

fn seeds() -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Each seed keeps what `oracle` says.
#[test]
fn seeds_of_links_keep_their_promises() {
    let seeds = seeds();
    assert!(seeds.len() >= 5, "{}", seeds.len());
    for seed in seeds {
        check(&seed);
    }
}

proptest! {
    /// So do seeds with changed bytes, cut and put together.
    #[test]
    fn changed_links_keep_their_promises(
        picks in proptest::collection::vec((any::<proptest::sample::Index>(), 0..2000_usize), 1..4),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let seeds = seeds();
        let mut input = Vec::new();
        for (seed, length) in picks {
            let seed = seed.get(&seeds);
            input.extend_from_slice(&seed[..length.min(seed.len())]);
        }
        for (at, byte) in changes {
            if !input.is_empty() {
                let at = at.index(input.len());
                input[at] = byte;
            }
        }
        check(&input);
    }
}

/// Writes the seeds: to be run by hand when a message changes.
#[test]
#[ignore = "writes the seeds anew"]
fn write_seeds() {
    let exec = ExecId(1);
    let spec = postcard::to_extend(&shell("echo seed"), Vec::new()).unwrap();
    let (first, second) = spec.split_at(30);
    let length = spec.len() as u64;
    let bytes = |text: &'static [u8]| text.into();
    let start = vec![
        ToHost::Attach { execs: Vec::new() },
        ToHost::Spec {
            exec,
            offset: 0,
            part: first.into(),
        },
        ToHost::Spec {
            exec,
            offset: 10,
            part: spec[10..40].into(),
        },
        ToHost::Spec {
            exec,
            offset: 30,
            part: second.into(),
        },
        ToHost::Start { exec, length },
        ToHost::Start { exec, length },
    ];
    let streams = vec![
        ToHost::Stdin {
            exec,
            offset: 0,
            bytes: bytes(b"hello"),
        },
        ToHost::Stdin {
            exec,
            offset: 3,
            bytes: bytes(b"lo, world"),
        },
        ToHost::StdinEnd { exec, length: 12 },
        ToHost::Received {
            exec,
            output: OutputKind::Stderr,
            offset: 3,
        },
        ToHost::Signal {
            exec,
            number: 2,
            signal: ExecSignal::Interrupt,
        },
        ToHost::Signal {
            exec,
            number: 2,
            signal: ExecSignal::Kill,
        },
        ToHost::Resize {
            exec,
            size: WindowSize {
                rows: 1,
                columns: 2,
            },
        },
        ToHost::CloseOutput {
            exec,
            output: OutputKind::Stdout,
        },
    ];
    let rest = vec![
        ToHost::Ping(7),
        ToHost::Pong(7),
        ToHost::Forward(ForwardEnd::Port(61_000)),
        ToHost::Attach {
            execs: vec![ExecProgress {
                exec,
                stdout: 1,
                stderr: 2,
            }],
        },
        ToHost::Forget { exec },
        ToHost::Start { exec, length },
        ToHost::End { grace_ms: 100 },
    ];
    write_all(&start, &streams, &rest);
}

fn write_all(start: &[ToHost<'_>], streams: &[ToHost<'_>], rest: &[ToHost<'_>]) {
    let exec = ExecId(1);
    let gap = [ToHost::Stdin {
        exec,
        offset: 9,
        bytes: (&b"gap"[..]).into(),
    }];
    let unnamed = [
        ToHost::Attach { execs: Vec::new() },
        start.last().unwrap().clone(),
    ];
    let lists: [(&str, u8, &[&[ToHost<'_>]]); 5] = [
        ("start", 7, &[start]),
        ("streams", 14, &[start, streams]),
        ("whole", 255, &[start, streams, rest]),
        ("gap", 3, &[start, &gap]),
        ("unnamed", 40, &[start, &unnamed]),
    ];
    fs::create_dir_all(folder()).unwrap();
    for (name, choice, parts) in lists {
        let mut seed = vec![choice];
        for message in parts.iter().copied().flatten() {
            frame::encode(message, &mut seed).unwrap();
        }
        fs::write(folder().join(name), seed).unwrap();
    }
}
