//! Large files that are read and written anew in one pass.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use labproxy::tree::apply::{Unnamed, rewrite};
use labproxy::tree::content::GROUP;
use labproxy::tree::limits::Limits;
use labproxy::tree::root::Root;
use labproxy::tree::scan::{self, Late, Options, Progress, Scan};

use crate::apply_grouped::{Large, bytes, usize_of};
use crate::apply_rig::{Node, Place, described, file, path, tree};
use crate::finished::finished;

fn scan_but(place: &Path, left_out: &str) -> Scan {
    let root = Root::open(place).unwrap();
    let out = path(left_out);
    let options = Options {
        limits: Limits::default(),
        threads: 2,
        skip: Some(&|path, _| *path == out),
        progress: &Progress::default(),
        cancel: &AtomicBool::new(false),
    };
    scan::scan(&root, place, options).unwrap()
}

fn rewritten(place: &Place, at: &str, contents: &Large, new: &[u8]) -> Option<(Unnamed, Late)> {
    let root = Root::open(&place.root).unwrap();
    let file = described(new, false);
    rewrite(&root, &path(at), contents, &file, &AtomicBool::new(false))
}

/// Whatever became longer, shorter or other: what stood there is known as a scan knows it, the new one
/// holds what it should, and only what changed was read from where it is kept.
#[test]
fn a_large_file_is_read_and_written_in_one_pass() {
    let old = bytes();
    let (group, long) = (usize_of(GROUP), old.len());
    let mut edited = old.clone();
    edited[5 * group + 3] ^= 1;
    edited[2 << 20] = 1;
    let longer = [old.as_slice(), &vec![9; 3 * group]].concat();
    let second = (2_u64 << 20) / GROUP;
    let last = u64::try_from(long).unwrap() / GROUP;
    let shorter = &old[..long / 2 + 77];
    let cut = u64::try_from(shorter.len()).unwrap() / GROUP;
    let cases: [(&[u8], Vec<u64>); 5] = [
        (&old, vec![]),
        (&edited, vec![5, second]),
        (&longer, vec![last, last + 1, last + 2, last + 3]),
        (shorter, vec![cut]),
        // But for what is zero already.
        (
            &vec![0; long],
            (0..second).chain(2 * second..=last).collect(),
        ),
    ];
    let place = Place::new(&tree(&[
        ("d", Node::Directory),
        ("d/f", file(&old)),
        ("g", file(b"g")),
    ]));
    finished(&place.at("d/f"));
    for (new, read) in cases {
        let contents = Large::new(new, new.to_vec());
        let (inode, late) = rewritten(&place, "d/f", &contents, new).unwrap();
        let read: Vec<u64> = read.iter().map(|group| group * GROUP).collect();
        assert_eq!(contents.read(), read);
        let mut scan = scan_but(&place.root, "d/f");
        assert!(scan.tree.find(&path("d/f")).is_none());
        assert!(scan.add(late).is_some());
        let whole = scan_but(&place.root, "none");
        assert_eq!(scan.tree, whole.tree);
        assert_eq!(scan.stamps.all(), whole.stamps.all());
        let (all, added) = (whole.groups.values().next(), scan.groups.values().next());
        assert_eq!(all.unwrap().values(), added.unwrap().values());
        assert!(held(&inode) == new);
        // It has no name, and nothing else happened.
        assert!(fs::read(place.at("d/f")).unwrap() == old);
    }
    let (_, late) = rewritten(&place, "d/f", &Large::new(&old, old.clone()), &old).unwrap();
    let added = scan_but(&place.root, "g").add(late);
    assert!(added.is_none(), "it is there already");
}

fn held(inode: &Unnamed) -> Vec<u8> {
    use std::os::fd::{AsFd as _, AsRawFd as _};
    fs::read(format!("/proc/self/fd/{}", inode.as_fd().as_raw_fd())).unwrap()
}

/// What is no plain file of one name is left to a scan; so is a content that cannot be had.
#[test]
fn what_one_pass_cannot_tell_is_left_to_a_scan() {
    let old = bytes();
    let place = Place::new(&tree(&[("f", file(&old)), ("twice", file(&old))]));
    let good = Large::new(&old, old.clone());
    fs::hard_link(place.at("twice"), place.at("again")).unwrap();
    symlink("f", place.at("link")).unwrap();
    fs::create_dir(place.at("directory")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    finished(&place.at("f"));
    for at in ["twice", "link", "directory", "fifo", "nothing", "f/below"] {
        assert!(rewritten(&place, at, &good, &old).is_none(), "{at}");
    }
    let mut new = old.clone();
    new[7] ^= 1;
    let bent = Large::new(&new, old.clone());
    assert!(rewritten(&place, "f", &bent, &new).is_none(), "bent");
    let root = Root::open(&place.root).unwrap();
    let stopped = AtomicBool::new(true);
    assert!(rewrite(&root, &path("f"), &good, &described(&old, false), &stopped).is_none());
    assert!(rewritten(&place, "f", &good, &old).is_some());
}
