//! Files that were written ahead of their steps.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use labproxy::tree::apply::{Applied, Apply, Call, Contents, Fatal, Modes, Unnamed};
use labproxy::tree::entry::File;
use labproxy::tree::path::RelPath;
use labproxy::tree::root::Root;
use labproxy::tree::step::Step;
use rustix::io::Errno;

use crate::apply_rig::{Memory, Node, Place, Tree, file, path, scan, tree, write};

/// Contents in memory, one of which was written ahead.
struct Given {
    memory: Memory,
    ahead: Mutex<Option<Unnamed>>,
    opened: AtomicU32,
}

impl Contents for Given {
    fn open(&self, file: &File) -> io::Result<Box<dyn Read + '_>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.memory.open(file)
    }

    fn written_ahead(&self, _path: &RelPath, _file: &File) -> Option<Unnamed> {
        self.ahead.lock().unwrap().take()
    }
}

/// More than a content that is proven as a whole has, with a hole in it and one at its end.
fn bytes() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
    bytes[1 << 20..2 << 20].fill(0);
    bytes.resize(4 << 20, 0);
    bytes
}

fn ahead(root: &Root, at: &str, bytes: &[u8]) -> Unnamed {
    let mut inode = Unnamed::near(root, &path(at)).unwrap();
    for (part, index) in bytes.chunks(1 << 20).zip(0..) {
        inode.write_at(part, index << 20).unwrap();
    }
    inode.finish(u64::try_from(bytes.len()).unwrap()).unwrap();
    inode
}

fn given(inode: Unnamed, bytes: &[u8]) -> Given {
    Given {
        memory: Memory::of(&[bytes]),
        ahead: Mutex::new(Some(inode)),
        opened: AtomicU32::new(0),
    }
}

type Asked<'a> = &'a (dyn Fn(Call) -> Result<(), Errno> + Sync);

fn apply(place: &Place, contents: &Given, steps: &[Step], ask: Asked<'_>) -> Applied {
    let (_, stamps) = scan(&place.root);
    let root = Root::open(&place.root).unwrap();
    let apply = Apply::new(&root, &stamps, contents, Modes::SHARED).unwrap();
    apply.asking(ask).run(steps)
}

/// It only gets its name, where nothing stands and where something does; a second file of the same
/// content is made of what is kept.
#[test]
fn a_file_that_was_written_ahead_only_gets_its_name() {
    let bytes = bytes();
    for before in [Tree::new(), tree(&[("f", file(b"old"))])] {
        let place = Place::new(&before);
        let root = Root::open(&place.root).unwrap();
        let contents = given(ahead(&root, "f", &bytes), &bytes);
        let steps = [write("f", &bytes), write("g", &bytes)];
        let writes = AtomicU32::new(0);
        let ask = |call| {
            writes.fetch_add(u32::from(call == Call::Write), Ordering::Relaxed);
            Ok(())
        };
        let applied = apply(&place, &contents, &steps[..1], &ask);
        assert!(applied.is_whole(), "{applied:?}");
        assert_eq!(
            (writes.into_inner(), contents.opened.load(Ordering::Relaxed)),
            (0, 0)
        );
        let applied = apply(&place, &contents, &steps[1..], &|_| Ok(()));
        assert!(applied.is_whole(), "{applied:?}");
        assert_eq!(contents.opened.load(Ordering::Relaxed), 1);
        let wanted = tree(&[("f", file(&bytes)), ("g", file(&bytes))]);
        assert!(place.now() == wanted);
        let is = place.at("f").metadata().unwrap();
        assert_eq!((is.mode() & 0o7777, is.nlink()), (0o644, 1));
        assert!(is.blocks() * 512 <= 2 << 20, "holes stay holes");
    }
}

/// One that is not as long as the file is not the file.
#[test]
fn a_file_that_was_written_half_gets_no_name() {
    let bytes = bytes();
    let place = Place::new(&Tree::new());
    let root = Root::open(&place.root).unwrap();
    let contents = given(ahead(&root, "f", &bytes[..bytes.len() - 1]), &bytes);
    let applied = apply(&place, &contents, &[write("f", &bytes)], &|_| Ok(()));
    assert!(applied.is_whole(), "{applied:?}");
    assert_eq!(contents.opened.into_inner(), 1);
    assert!(place.now() == tree(&[("f", file(&bytes))]));
}

/// It is made in the lowest directory that is there, follows no link, and is nothing that a name
/// leads to.
#[test]
fn it_is_made_where_it_will_lie_and_cannot_be_found() {
    let before = tree(&[("d", Node::Directory), ("d/e", Node::Directory)]);
    let place = Place::new(&before);
    let root = Root::open(&place.root).unwrap();
    std::os::unix::fs::symlink(&place.outside, place.at("out")).unwrap();
    for at in ["f", "d/e/f", "d/new/newer/f", "out/f"] {
        drop(ahead(&root, at, b"secret"));
    }
    assert!(place.victims().is_empty());
    fs::remove_file(place.at("out")).unwrap();
    assert!(place.now() == before);
    assert!(Unnamed::near(&root, &RelPath::ROOT).is_err());
}

/// An inode of another file system cannot have a name in the tree: the file is made as others are.
#[test]
fn an_inode_of_another_file_system_is_not_used() {
    let bytes = bytes();
    let place = Place::new(&Tree::new());
    let elsewhere = tempfile::tempdir_in(Path::new("/dev/shm")).unwrap();
    let device = |path: &Path| path.metadata().unwrap().dev();
    if device(elsewhere.path()) == device(&place.root) {
        eprintln!("not shown here: there is one file system only");
        return;
    }
    let other = Root::open(elsewhere.path()).unwrap();
    let contents = given(ahead(&other, "f", &bytes), &bytes);
    let applied = apply(&place, &contents, &[write("f", &bytes)], &|_| Ok(()));
    assert!(applied.is_whole(), "{applied:?}");
    assert_eq!(contents.opened.into_inner(), 1);
    assert!(place.now() == tree(&[("f", file(&bytes))]));
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

/// M-64: cut off before any call, the path is as before or as after, and nothing lies beside it but
/// what has a name that says so.
#[test]
fn m64_a_file_that_was_written_ahead_is_cut_off_anywhere() {
    let bytes = bytes();
    let before = tree(&[("f", file(b"old"))]);
    for cut in 0.. {
        let place = Place::new(&before);
        let root = Root::open(&place.root).unwrap();
        let contents = given(ahead(&root, "f", &bytes), &bytes);
        let calls = AtomicU32::new(0);
        let ask = |_| {
            let done = calls.fetch_add(1, Ordering::Relaxed);
            if done < cut { Ok(()) } else { Err(Errno::IO) }
        };
        let applied = apply(&place, &contents, &[write("f", &bytes)], &ask);
        let mut now = place.now();
        now.retain(|at, _| !labproxy::tree::apply::is_unfinished(at.as_bytes()));
        let after = tree(&[("f", file(&bytes))]);
        assert!(now == before || now == after, "{cut}");
        if applied.is_whole() {
            assert!(now == after && cut > 2, "{cut}");
            return;
        }
        assert_eq!(applied.stopped, Some(Fatal::Io), "{cut}");
    }
}
