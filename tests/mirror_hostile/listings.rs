//! Lies about trees: listings.

use std::collections::HashMap;

use labproxy::mirror::peer::Rule;
use labproxy::mirror::pull::PullOptions;
use labproxy::tree::content::ContentId;
use labproxy::tree::directory::{Directory, Listed, Totals, TreeHash, listing_hash};
use labproxy::tree::entry::{Entry, Seen};
use labproxy::tree::path::{Name, RelPath};
use labproxy::wire::frame::FrameError;
use labproxy::wire::mirror::{FromMirror, Scanned, ToMirror};

use super::host::{Host, Say, directory, file, framed, link, listing, name};
use super::world::{World, instead, limit, rule};

type Listing = Vec<(Name, Listed)>;

fn changed() -> Host {
    Host::of(&[("a", b"first"), ("d/b", b"other")])
}

fn is_list(order: &ToMirror<'_>) -> bool {
    matches!(order, ToMirror::List { .. })
}

fn one(text: &str) -> (Name, Listed) {
    let entry = file(1, ContentId::of(b"x"));
    (name(text), entry.listed())
}

/// Listings that are told by hash, whatever path is asked for, below a root of this hash.
fn told(
    root: TreeHash,
    listings: HashMap<TreeHash, Listing>,
) -> impl FnMut(&ToMirror<'_>, &mut Vec<Say>) + Send {
    let at = move |asked: &RelPath, listings: &HashMap<TreeHash, Listing>| {
        let mut hash = root;
        for name in asked.components() {
            let mut entries = listings[&hash].iter();
            let entry = entries.find(|(here, _)| here.as_bytes() == name);
            hash = hash_of(&entry.unwrap().1);
        }
        hash
    };
    move |order, answers| match order {
        ToMirror::Scan => {
            *answers = vec![Say::Message(FromMirror::Scanned(Scanned {
                hash: root,
                seen: Seen::default(),
                totals: Totals::default(),
                problems: Vec::new(),
                problem_count: 0,
            }))];
        }
        ToMirror::List { directories } => {
            answers.clear();
            for asked in directories {
                let entries = &listings[&at(asked, &listings)];
                let mut parts: Vec<Listing> = entries.chunks(2_000).map(<[_]>::to_vec).collect();
                let end = parts.pop().unwrap_or_default();
                answers.extend(parts.into_iter().map(|entries| {
                    Say::Message(FromMirror::Listing {
                        entries,
                        last: false,
                    })
                }));
                answers.push(Say::Message(listing(end)));
            }
        }
        _ => {}
    }
}

/// Adds a listing; gives the entry that stands for it.
fn put(listings: &mut HashMap<TreeHash, Listing>, listing: Listing) -> Listed {
    let hash = listing_hash(&listing).unwrap();
    listings.insert(hash, listing);
    Listed::Directory {
        hash,
        seen: Seen::default(),
    }
}

fn hash_of(entry: &Listed) -> TreeHash {
    match entry {
        Listed::Directory { hash, .. } => *hash,
        other => panic!("{other:?}"),
    }
}

/// M-05, M-14: a listing is exactly the one that its parent named: no other one, none that is
/// unsorted, and no name twice, so that nothing is both a link and a directory.
#[test]
fn m14_a_listing_has_the_hash_above_it() {
    let world = World::new();
    let link = link(b"/etc").listed();
    let below = Entry::Directory(directory(vec![("b", file(1, ContentId::of(b"x")))])).listed();
    for lie in [
        Vec::new(),
        vec![one("a")],
        vec![one("b"), one("a")],
        vec![one("a"), one("a")],
        vec![(name("a"), link.clone()), (name("a"), below.clone())],
    ] {
        let mut lie = instead(is_list, || vec![Say::Message(listing(lie.clone()))]);
        assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Listing);
    }
}

/// M-05: an entry below a link cannot be said: the name of an entry has no slash, and leaves no
/// directory. The frame is refused where it is read.
#[test]
fn m05_m13_names_that_escape_are_no_names() {
    let world = World::new();
    for bad in ["..", ".", "x/y", "/", "x\0y"] {
        let good: String = bad.chars().map(|_| 'q').collect();
        let mut bytes = framed(&listing(vec![one(&good)]));
        let at = bytes
            .windows(good.len())
            .position(|part| part == good.as_bytes())
            .unwrap();
        bytes[at..at + bad.len()].copy_from_slice(bad.as_bytes());
        let mut lie = instead(is_list, || vec![Say::Raw(bytes.clone())]);
        let rule = rule(world.refuses(&changed(), &mut lie));
        assert_eq!(rule, Rule::Frame(FrameError::Malformed), "{bad:?}");
    }
}

/// Parts of a listing without entries, and a listing that never ends.
#[test]
fn m14_a_listing_ends() {
    let mut world = World::new();
    let empty = || FromMirror::Listing {
        entries: Vec::new(),
        last: false,
    };
    let mut lie = instead(is_list, || vec![Say::Forever(empty())]);
    assert_eq!(rule(world.refuses(&changed(), &mut lie)), Rule::Endless);
    world.limits.entries = 10_000;
    let full = || FromMirror::Listing {
        entries: vec![one("a"); 1_000],
        last: false,
    };
    let mut lie = instead(is_list, || vec![Say::Forever(full())]);
    let text = limit(world.refuses(&changed(), &mut lie));
    assert_eq!(text, "more than 10000 entries");
}

/// A few listings that name each other stand for more entries than there is memory.
#[test]
fn m14_listings_that_multiply_are_counted() {
    let world = World::new();
    let mut listings = HashMap::new();
    let mut below = put(&mut listings, vec![one("x")]);
    for _ in 0..40 {
        let listing = ["a", "b", "c", "d"].map(|text| (name(text), below.clone()));
        below = put(&mut listings, listing.to_vec());
    }
    let mut lie = told(hash_of(&below), listings);
    let text = limit(world.refuses(&changed(), &mut lie));
    assert_eq!(text, "more than 1000000 entries");
    let asked = world.heard.lock().unwrap().len();
    assert!(asked < 100, "{asked}");
}

/// A chain of directories with the longest names: its paths grow with its depth.
fn chain(listings: &mut HashMap<TreeHash, Listing>, mut below: Listed, depth: usize) -> Listed {
    let long = Name::new(vec![b'n'; 255]).unwrap();
    for _ in 0..depth {
        below = put(listings, vec![(long.clone(), below)]);
    }
    below
}

/// Long paths: their bytes are counted before they are made, for one wide directory far down as for
/// few listings that stand for many.
#[test]
fn m14_long_paths_are_counted() {
    let world = World::new();
    let mut listings = HashMap::new();
    let wide = (0..8_000).map(|number| {
        let inner = vec![one(&format!("x{number:05}"))];
        (name(&format!("d{number:05}")), inner)
    });
    let wide: Vec<(Name, Listing)> = wide.collect();
    let wide = wide
        .into_iter()
        .map(|(name, inner)| (name, put(&mut listings, inner)))
        .collect();
    let wide = put(&mut listings, wide);
    let root = chain(&mut listings, wide, 400);
    let mut lie = told(hash_of(&root), listings);
    let text = limit(world.refuses(&changed(), &mut lie));
    assert_eq!(text, "more than 536870912 bytes of paths and links");

    let mut listings = HashMap::new();
    let mut below = put(
        &mut listings,
        vec![(name("l"), link(&[b'l'; 4_095]).listed())],
    );
    for _ in 0..20 {
        let listing = ["a", "b", "c", "d"].map(|text| (name(text), below.clone()));
        below = put(&mut listings, listing.to_vec());
    }
    let root = chain(&mut listings, below, 400);
    let mut lie = told(hash_of(&root), listings);
    let text = limit(world.refuses(&changed(), &mut lie));
    assert_eq!(text, "more than 536870912 bytes of paths and links");
}

fn deep(mut below: Directory, depth: usize) -> Directory {
    for _ in 0..depth {
        below = directory(vec![("d", Entry::Directory(below))]);
    }
    below
}

/// Deeper than a tree may be, also where the lower part is one that is known from the last
/// generation: what was published could not be read again.
#[test]
fn m53_depth_is_counted_through_what_is_known() {
    let world = World::fresh();
    let x = file(1, ContentId::of(b"x"));
    let half = deep(directory(vec![("x", x)]), 300);
    let host = |tree: Directory| Host {
        tree,
        contents: HashMap::from([(ContentId::of(b"x"), b"x".to_vec())]),
    };
    let pull = |host: &Host| {
        let options = PullOptions {
            generation_only: true,
            ..PullOptions::default()
        };
        world.with(host, &mut |_, _| {}, |pair, ends| pair.pull(ends, options))
    };
    let first = host(directory(vec![("e", Entry::Directory(half.clone()))]));
    pull(&first).unwrap();
    let before = world.outside();
    let error = pull(&host(deep(half.clone(), 300))).unwrap_err();
    assert_eq!(limit(error), "something deeper than 512 names");
    let error = pull(&host(deep(Directory::empty(), 600))).unwrap_err();
    assert_eq!(limit(error), "something deeper than 512 names");
    assert_eq!((world.outside(), world.generations()), (before, 1));
    let both = directory(vec![
        ("e", Entry::Directory(half)),
        ("f", Entry::Directory(Directory::empty())),
    ]);
    pull(&host(both)).unwrap();
    assert_eq!(world.generations(), 2);
}

/// M-23: sizes beyond the limits, one by one and together, with sums that do not fit in 64 bits.
#[test]
fn m23_sizes_are_bounded_and_do_not_overflow() {
    let mut world = World::new();
    let of = |files: &[(&str, u64)]| {
        let entries = files.iter().map(|(name, size)| {
            let content = ContentId::of(name.as_bytes());
            (*name, file(*size, content))
        });
        Host {
            tree: directory(entries.collect()),
            contents: HashMap::new(),
        }
    };
    // The totals that come with the scan say the same, and are not believed when they say less.
    for honest in [true, false] {
        let mut lie = |order: &ToMirror<'_>, answers: &mut Vec<Say>| {
            if let (ToMirror::Scan, [Say::Message(FromMirror::Scanned(scanned))], false) =
                (order, &mut answers[..], honest)
            {
                scanned.totals = Totals::default();
            }
        };
        for sizes in [
            &[("x", u64::MAX)][..],
            &[("x", u64::MAX), ("y", u64::MAX), ("z", 3)],
            &[("x", (8 << 30) + 1)],
        ] {
            limit(world.refuses(&of(sizes), &mut lie));
        }
    }
    world.limits.file = u64::MAX;
    let host = of(&[("x", u64::MAX - 1), ("y", u64::MAX - 1)]);
    let text = limit(world.refuses(&host, &mut |_, _| {}));
    assert!(text.ends_with("is the most"), "{text}");
}

/// A content has one size: neither the store's contents nor another file of the tree may be said to
/// have another.
#[test]
fn m23_a_content_has_one_size() {
    let world = World::new();
    for host in [
        directory(vec![("a", file(7, ContentId::of(b"first")))]),
        directory(vec![("a", file(7, ContentId::of(b"")))]),
        directory(vec![
            ("a", file(3, ContentId::of(b"new"))),
            ("b", file(5, ContentId::of(b"new"))),
        ]),
    ] {
        let host = Host {
            tree: host,
            contents: HashMap::from([(ContentId::of(b"new"), b"new".to_vec())]),
        };
        assert_eq!(rule(world.refuses(&host, &mut |_, _| {})), Rule::Size);
    }
}
