//! Recorded conversations with bytes turned, cut, doubled and put elsewhere: thousands at either end.

use std::fs;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};

use labproxy::mirror::error::MirrorError;
use labproxy::mirror::peer::{Input, Output};
use labproxy::mirror::pull::PullOptions;
use labproxy::tree::content::ContentId;
use labproxy::tree::entry::{File, LinkText, Seen};
use labproxy::tree::step::Step;
use labproxy::wire::mirror::{Landed, Patch, Pieces, ToMirror, Wish};
use labproxy::wire::{delta, frame};

use super::host::{Host, channels, path};
use super::oracle::{HostPlace, check_peer, converse_fully};
use super::world::World;

/// Mutations at each end; `make soak` sets more.
const RUNS: u64 = 4_000;

fn runs(of: u64) -> u64 {
    let set = std::env::var("LABPROXY_SOAK_MUTATIONS").ok();
    set.map_or(of, |runs| runs.parse().unwrap())
}

/// A generator of numbers: the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Bytes that mean something to a decoder: ends of numbers, kinds of messages, parts of paths.
const TELLING: [&[u8]; 10] = [
    b"\0",
    b"\x01",
    b"\x7f",
    b"\x80\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"..",
    b"/",
    b"out/precious",
    b"\xff\xff\xff\xff",
];

/// A changed copy of frames: whole frames are moved as well as bytes within them, whose lengths are
/// set right again most of the time so that the change gets past the frame.
fn mutated(frames: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut frames = frames.to_vec();
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(frames.len());
        match numbers.below(8) {
            0 => {
                let other = numbers.below(frames.len());
                frames.swap(at, other);
            }
            1 => {
                let again = frames[at].clone();
                frames.insert(at, again);
            }
            2 if frames.len() > 1 => {
                frames.remove(at);
            }
            _ => {
                let frame = &mut frames[at];
                let inside = frame::PREFIX.min(frame.len() - 1);
                let place = inside + numbers.below(frame.len() - inside);
                match numbers.below(4) {
                    0 => frame[place] ^= 1 << numbers.below(8),
                    1 => frame[place] = numbers.next() as u8,
                    2 => {
                        let telling = TELLING[numbers.below(TELLING.len())];
                        let end = (place + numbers.below(3)).min(frame.len());
                        frame.splice(place..end, telling.iter().copied());
                    }
                    _ => frame.truncate(place.max(frame::PREFIX + 1)),
                }
                if numbers.below(8) != 0 {
                    let length = (frame.len() - frame::PREFIX) as u32;
                    frame[..frame::PREFIX].copy_from_slice(&length.to_le_bytes());
                }
            }
        }
    }
    let mut bytes = frames.concat();
    if numbers.below(8) == 0 {
        let end = numbers.below(bytes.len());
        bytes.truncate(end);
    }
    bytes
}

/// Keeps what was read.
struct Tee<R>(R, Arc<Mutex<Vec<u8>>>);

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.lock().unwrap().extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

fn host() -> Host {
    Host::of(&[
        ("a", b"first"),
        ("d/b", b"second"),
        ("d/c", b""),
        ("g", &vec![7; 80 << 10]),
    ])
}

fn frames_of(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some((message, rest)) = frame::split(bytes).unwrap() {
        frames.push(bytes[..frame::PREFIX + message.len()].to_vec());
        bytes = rest;
    }
    frames
}

/// Everything that a host says while `listen` works with it.
fn said(listen: impl FnOnce(Box<dyn Input>, Box<dyn Output>)) -> Vec<Vec<u8>> {
    let host = host();
    let (input, output, orders, wire) = channels();
    let kept = Arc::default();
    let input = Tee(input, Arc::clone(&kept));
    std::thread::scope(|scope| {
        let host = &host;
        scope.spawn(move || host.serve(&orders, wire, &mut |_, _| {}));
        listen(Box::new(input), Box::new(output));
    });
    let bytes = kept.lock().unwrap();
    frames_of(&bytes)
}

/// Orders of a pull and of a push to the tree that the oracle's root has.
fn orders() -> Vec<Vec<u8>> {
    let content = ContentId::of(b"pushed");
    let file = File {
        size: 6,
        executable: true,
        content,
        seen: Seen::default(),
    };
    let wish = |text: &str, length| Wish {
        path: path(text),
        offset: 0,
        length,
    };
    let text = LinkText::new(&b"../beside"[..]).unwrap();
    let orders = [
        ToMirror::Scan,
        ToMirror::List {
            directories: vec![path(""), path("d"), path("d/e")],
        },
        ToMirror::Groups { content },
        ToMirror::Fetch {
            wishes: vec![wish("a", 5), wish("d/b", 6), wish("out/precious", 8)],
            packs: true,
        },
        ToMirror::Take { any: true },
        ToMirror::Here,
        ToMirror::Stage {
            contents: vec![(content, 6), (ContentId::of(b""), 0)],
        },
        ToMirror::Pieces(Pieces {
            parts: vec![(0, 6), (1, 0)],
            length: 6,
            packed: false,
            bytes: b"pushed"[..].into(),
        }),
        ToMirror::Stage {
            contents: vec![(ContentId::of(b"patched"), 7)],
        },
        ToMirror::Patch(Patch {
            content: 0,
            base: wish("a", 5),
            delta: delta::delta(delta::signature(b""), b"patched")
                .unwrap()
                .into(),
            length: 7,
            hash: ContentId::of(b"patched"),
        }),
        ToMirror::StageEnd,
        ToMirror::Steps(steps(&file, text)),
        ToMirror::Run,
        ToMirror::Scan,
        ToMirror::Fetch {
            wishes: vec![wish("n/m", 6), wish("d/key", 8)],
            packs: false,
        },
        ToMirror::Sign(wish("d/key", 8)),
        ToMirror::Delta {
            wish: wish("d/key", 8),
            signature: delta::signature(b"another").into(),
        },
        ToMirror::Glance {
            files: vec![path("d/key"), path("out/precious"), path("none")],
        },
        ToMirror::Locate { landing: true },
        ToMirror::Landed {
            files: vec![Landed {
                path: path("out/precious"),
                content: ContentId::of(b"precious"),
                size: 8,
            }],
        },
        ToMirror::Unstage,
    ];
    let framed = |order: &ToMirror<'_>| {
        let mut bytes = Vec::new();
        frame::encode(order, &mut bytes).unwrap();
        bytes
    };
    orders.iter().map(framed).collect()
}

fn steps(file: &File, text: LinkText) -> Vec<Step> {
    let at = |text: &str| path(text);
    let file = || file.clone();
    let second = || File {
        size: 6,
        executable: false,
        content: ContentId::of(b"second"),
        seen: Seen::default(),
    };
    vec![
        Step::MakeDirectory { path: at("n") },
        Step::Move {
            from: at("a"),
            to: at("n/a"),
        },
        Step::Copy {
            from: at("d/b"),
            to: at("n/b"),
            file: second(),
        },
        Step::Write {
            path: at("n/m"),
            file: file(),
        },
        Step::Write {
            path: at("d/key"),
            file: file(),
        },
        Step::Link {
            path: at("n/l"),
            text,
        },
        Step::SetExecutable {
            path: at("d/b"),
            executable: true,
        },
        Step::Remove { path: at("out") },
        Step::RemoveDirectory { path: at("d/e") },
    ]
}

/// M-14: the controller's end, for thousands of changed conversations; the one that is not changed
/// goes to its end, so that the changed ones come far.
#[test]
fn m14_any_bytes_of_a_host_end_well() {
    let frames = said(converse_fully);
    let whole = check_peer(&frames.concat());
    assert_eq!(whole, 6);
    let mut numbers = Numbers(14);
    let mut ends = [0_u64; 7];
    for _ in 0..runs(RUNS) {
        let bytes = mutated(&frames, &mut numbers);
        ends[check_peer(&bytes) as usize] += 1;
    }
    eprintln!("ends of the controller's side: {ends:?}");
    assert!(ends.iter().all(|count| *count > 0), "{ends:?}");
}

/// M-14: whole pulls, with their store and workspace.
#[test]
fn m14_any_bytes_to_a_pull_leave_what_was() {
    let world = World::new();
    let pull = |input, output| {
        world.work(input, output, |pair, ends| {
            let options = PullOptions {
                generation_only: true,
                ..PullOptions::default()
            };
            pair.pull(ends, options).map(|_| ())
        })
    };
    // A mirror of its own, so that everything comes.
    let fresh = World::fresh();
    let frames = said(|input, output| {
        let pulled = fresh.work(input, output, |pair, ends| {
            pair.pull(ends, PullOptions::default()).map(|_| ())
        });
        pulled.unwrap();
    });
    let before = world.outside();
    let mut numbers = Numbers(5);
    let mut failed = 0;
    let count = runs(RUNS) / 20;
    for _ in 0..count {
        let bytes = Cursor::new(mutated(&frames, &mut numbers));
        let ended: Result<(), MirrorError> = pull(Box::new(bytes), Box::new(io::sink()));
        failed += u64::from(ended.is_err());
    }
    eprintln!("pulls that failed: {failed} of {count}");
    assert!(failed > count / 2);
    assert_eq!(world.outside(), before);
    world.generations();
    world.is_sound();
}

/// M-14: the host's end, for thousands of changed orders.
#[test]
fn m14_any_orders_stay_in_the_root() {
    let place = HostPlace::new();
    let frames = orders();
    let whole = place.check(&frames.concat());
    assert!(whole > 300, "{whole}");
    let mut numbers = Numbers(41);
    for _ in 0..runs(RUNS) / 20 {
        place.check(&mutated(&frames, &mut numbers));
    }
}

/// M-14: a controller that is confused changes nothing in a root that it did not take.
#[test]
fn m14_nothing_changes_in_a_root_that_was_not_taken() {
    let place = HostPlace::new();
    let mut frames = orders();
    place.check(&frames[..4].concat());
    assert!(!place.has_changed());
    let take = frames.remove(4);
    place.check(&frames.concat());
    assert!(!place.has_changed());
    frames.insert(4, take);
    place.check(&frames.concat());
    assert!(place.has_changed());
}

/// Writes the recorded conversations as seeds of the fuzz targets.
#[test]
#[ignore = "writes fuzz/corpus"]
fn seeds_of_the_fuzz_targets() {
    let frames = said(converse_fully);
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (target, bytes) in [
        ("mirror_peer", frames.concat()),
        ("mirror_host", orders().concat()),
    ] {
        fs::create_dir_all(top.join(target)).unwrap();
        fs::write(top.join(target).join("honest"), bytes).unwrap();
    }
}
