//! Lies in the channel itself: frames, silence, ends, and answers that nobody asked for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use labproxy::mirror::error::MirrorError;
use labproxy::mirror::peer::{PeerError, Rule};
use labproxy::mirror::pull::Workspace;
use labproxy::tree::directory::Totals;
use labproxy::tree::entry::Seen;
use labproxy::wire::bytes::ByteString;
use labproxy::wire::frame::{FRAME_MAX, FrameError};
use labproxy::wire::mirror::{FromMirror, Ran, RootState, Scanned, ToMirror};

use super::host::{Host, Say, framed, listing, pieces, scanned};
use super::world::{World, instead, limit, rule};

/// The orders of a pull, each the place of a lie.
const PLACES: [fn(&ToMirror<'_>) -> bool; 4] = [
    |order| matches!(order, ToMirror::Open(_)),
    |order| matches!(order, ToMirror::Scan),
    |order| matches!(order, ToMirror::List { .. }),
    |order| matches!(order, ToMirror::Fetch { .. }),
];

fn changed() -> Host {
    Host::of(&[("a", b"first"), ("n", b"new one")])
}

/// M-14, M-26: frames of 4 GiB, of nothing, of no message, and with more behind the message.
#[test]
fn m14_m26_frames_are_whole_messages() {
    let world = World::new();
    let mut trailing = framed(&FromMirror::Done);
    trailing[0] += 1;
    trailing.push(0);
    let frames = [
        (vec![0xff; 4], FrameError::TooLong(u32::MAX as usize)),
        (
            (FRAME_MAX as u32 + 1).to_le_bytes().to_vec(),
            FrameError::TooLong(FRAME_MAX + 1),
        ),
        (vec![0; 4], FrameError::Empty),
        (vec![2, 0, 0, 0, 0xff, 0xff], FrameError::Malformed),
        (trailing, FrameError::Trailing(1)),
    ];
    for place in PLACES {
        for (bytes, error) in &frames {
            let mut lie = instead(place, || vec![Say::Raw(bytes.clone())]);
            let broken = rule(world.refuses(&changed(), &mut lie));
            assert_eq!(broken, Rule::Frame(error.clone()));
        }
    }
}

/// M-25: silence at any order ends by the limit on this side; so does a host that says for ever that
/// it works, and the end of the channel, also in the middle of a frame.
#[test]
fn m25_silence_and_work_without_end() {
    let world = World::new();
    for place in PLACES {
        let mut lie = instead(place, || vec![Say::Silence]);
        let error = world.refuses(&changed(), &mut lie);
        assert!(matches!(error, MirrorError::Peer(PeerError::Silent)));
        for bytes in [&b""[..], b"\x05\0", b"\x05\0\0\0", b"\x05\0\0\0\x01\x02"] {
            let mut lie = instead(place, || vec![Say::Raw(bytes.to_vec()), Say::End]);
            let error = world.refuses(&changed(), &mut lie);
            assert!(matches!(error, MirrorError::Peer(PeerError::Ended)));
        }
        let working = FromMirror::Working {
            entries: u64::MAX,
            bytes: u64::MAX,
        };
        let mut lie = instead(place, || vec![Say::Forever(working.clone())]);
        let broken = rule(world.refuses(&changed(), &mut lie));
        assert!(matches!(broken, Rule::Endless | Rule::Order));
    }
}

/// M-14: every answer where another one belongs.
#[test]
fn m14_answers_that_were_not_asked_for() {
    let world = World::new();
    let tree = World::honest().tree;
    let answers = [
        FromMirror::Opened(RootState::Ours),
        FromMirror::Taken,
        scanned(&tree),
        listing(tree.listing()),
        FromMirror::Groups {
            values: Vec::new().into(),
            last: true,
        },
        pieces(0, b"new one"),
        FromMirror::Gone { wish: 0 },
        FromMirror::Done,
        FromMirror::Staged { have: vec![0] },
        FromMirror::Ran(Ran::default()),
    ];
    let fits = |place: usize, answer: &FromMirror<'_>| match place {
        0 => matches!(answer, FromMirror::Opened(_)),
        1 => matches!(answer, FromMirror::Scanned(_)),
        2 => matches!(answer, FromMirror::Listing { .. }),
        _ => matches!(
            answer,
            FromMirror::Pieces(_) | FromMirror::Gone { .. } | FromMirror::Done
        ),
    };
    for (is, place) in PLACES.into_iter().zip(0..) {
        for answer in answers.iter().filter(|answer| !fits(place, answer)) {
            let mut lie = instead(is, || vec![Say::Message(answer.clone())]);
            assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Order);
        }
    }
    // One more answer than was asked for is met by the next order.
    let mut twice = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
        if matches!(order, ToMirror::Scan) {
            answers.push(Say::Message(scanned(&tree)));
        }
    };
    assert_eq!(rule(world.refuses(&changed(), &mut twice)), Rule::Order);
}

/// What the host says of its scan: more than the limits, or that it could not read everything.
#[test]
fn m31_m40_a_scan_with_a_hole_publishes_nothing() {
    let world = World::new();
    let say = |totals: Totals, problem_count: u64| {
        FromMirror::Scanned(Scanned {
            hash: changed().tree.hash(),
            seen: Seen::default(),
            totals,
            problems: Vec::new(),
            problem_count,
        })
    };
    let is_scan = |order: &ToMirror<'_>| matches!(order, ToMirror::Scan);
    for count in [1, u64::MAX] {
        let mut lie = instead(is_scan, || {
            vec![Say::Message(say(Totals::default(), count))]
        });
        let error = world.refuses(&changed(), &mut lie);
        assert!(matches!(error, MirrorError::Incomplete { count: of, .. } if of == count));
    }
    let huge = Totals {
        entries: u64::MAX,
        files: u64::MAX,
        bytes: u64::MAX,
    };
    let mut lie = instead(is_scan, || vec![Say::Message(say(huge, 0))]);
    limit(world.refuses(&changed(), &mut lie));
}

/// T-37: what the host says for a person is shown escaped, and no more of it than a person reads.
#[test]
fn t37_a_refusal_cannot_drive_a_terminal() {
    let world = World::new();
    for place in PLACES {
        let why = format!("\u{1b}]0;owned\u{7}\u{202e}{}", "x".repeat(500_000));
        let mut lie = instead(place, || {
            vec![Say::Message(FromMirror::Refused { why: why.clone() })]
        });
        let error = world.refuses(&changed(), &mut lie);
        let MirrorError::Peer(PeerError::Refused(text)) = &error else {
            panic!("{error:?}");
        };
        assert!(text.len() < 10_000, "{}", text.len());
        let shown = labproxy::report::Failure::failed(error.to_string());
        let shown = shown.render(labproxy::table::Style::Plain);
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']));
    }
}

/// After the generation is published nothing that the host says or does not say takes it back.
#[test]
fn m14_a_lie_after_the_contents_leaves_a_whole_generation() {
    let world = World::new();
    let before = world.outside();
    let mut lie = instead(
        |order| matches!(order, ToMirror::Take { .. }),
        || vec![Say::End],
    );
    world.pull(&changed(), &mut lie).unwrap_err();
    assert_eq!((world.outside(), world.generations()), (before, 2));
    let pulled = world.pull(&changed(), &mut |_, _| {}).unwrap();
    assert!(!pulled.is_new);
    assert!(matches!(pulled.workspace, Workspace::Brought { .. }));
}

/// Where rsync is to work at the other end is an absolute path, and told when it was asked for; what the
/// other end says of files that were brought there is a list of numbers, of which none counts twice.
#[test]
fn m04_a_place_is_a_path_that_was_asked_for() {
    let world = World::new();
    let told = |root: &[u8], landing: Option<&str>, asked: bool| {
        let root = ByteString::from(OsStr::from_bytes(root));
        let landing = landing.map(ByteString::from);
        let mut lie = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
            if matches!(order, ToMirror::Locate { .. }) {
                *answers = vec![Say::Message(FromMirror::Located {
                    root: root.clone(),
                    landing: landing.clone(),
                })];
            }
        };
        world.with(&World::honest(), &mut lie, |_, ends| {
            Ok(ends.peer.locate(asked)?)
        })
    };
    assert_eq!(told(b"/r", None, false).unwrap().root, Path::new("/r"));
    told(b"/r", Some("/l"), true).unwrap();
    let long = [b"/".to_vec(), vec![b'x'; 4_096]].concat();
    let bad: [(&[u8], Option<&str>, bool); 7] = [
        (b"", None, false),
        (b"r", None, false),
        (b"/r\0", None, false),
        (&long, None, false),
        (b"/r", Some("/l"), false),
        (b"/r", None, true),
        (b"/r", Some("l"), true),
    ];
    for (root, landing, asked) in bad {
        let error = told(root, landing, asked).unwrap_err();
        let is_rule = matches!(error, MirrorError::Peer(PeerError::Rule(Rule::Place)));
        assert!(is_rule, "{}: {error}", root.escape_ascii());
    }
}
