//! Large files whose groups are known.

use std::fs;
use std::io::{self, Read};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Mutex;

use labproxy::tree::apply::{Applied, Apply, Contents, Failure, Modes, Parts};
use labproxy::tree::content::{GROUP, Groups, group_value};
use labproxy::tree::entry::File;
use labproxy::tree::root::Root;
use labproxy::tree::step::Step;

use crate::apply_rig::{Place, file, path, scan, tree, write};

/// A large content that knows its groups, and what was read of it.
pub(crate) struct Large {
    /// Whose groups it gives.
    groups: Groups,
    /// What it gives where it is read.
    bytes: Vec<u8>,
    read: Mutex<Vec<u64>>,
}

struct Reader<'a>(&'a Large);

pub(crate) fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

impl Large {
    pub(crate) fn new(groups_of: &[u8], bytes: Vec<u8>) -> Self {
        let values = groups_of.chunks(usize_of(GROUP)).zip(0..);
        let values = values.map(|(part, index)| group_value(index * GROUP, part));
        let size = u64::try_from(groups_of.len()).unwrap();
        Self {
            groups: Groups::new(size, values.collect()).unwrap(),
            bytes,
            read: Mutex::default(),
        }
    }

    pub(crate) fn read(&self) -> Vec<u64> {
        let mut read = self.read.lock().unwrap().clone();
        read.sort_unstable();
        read
    }
}

impl Contents for Large {
    /// Without a note in what was read: what has groups is not read by this.
    fn open(&self, _file: &File) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(self.bytes.as_slice()))
    }

    fn parts(&self, _file: &File) -> io::Result<Option<Box<dyn Parts + '_>>> {
        Ok(Some(Box::new(Reader(self))))
    }
}

impl Parts for Reader<'_> {
    fn groups(&self) -> &Groups {
        &self.0.groups
    }

    fn read_exact_at(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read.lock().unwrap().push(offset);
        let from = self.0.bytes.get(usize_of(offset)..).unwrap_or_default();
        let from = from
            .get(..bytes.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(from);
        Ok(())
    }
}

/// Bytes without a period, with a hole in them.
pub(crate) fn bytes() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0_u32..1_500_000)
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect();
    bytes[2 << 20..4 << 20].fill(0);
    bytes
}

fn apply(place: &Place, contents: &Large, steps: &[Step], threads: usize) -> Applied {
    let (_, stamps) = scan(&place.root);
    let root = Root::open(&place.root).unwrap();
    let apply = Apply::new(&root, &stamps, contents, Modes::SHARED).unwrap();
    let mut apply = apply.threads(NonZero::new(threads).unwrap());
    apply.run(steps)
}

/// Of a large file that changed only the changed groups are read; the file is a new inode, holes
/// included, and whoever holds the old one open sees what it was.
#[test]
fn a_change_of_a_large_file_reads_what_changed() {
    let old = bytes();
    let mut new = old.clone();
    new[5 * usize_of(GROUP) + 3] ^= 1;
    new.extend_from_slice(b"more at its end");
    let last = (u64::try_from(old.len()).unwrap() / GROUP) * GROUP;
    for threads in [1, 4] {
        let place = Place::new(&tree(&[("f", file(&old))]));
        let held = fs::File::open(place.at("f")).unwrap();
        let contents = Large::new(&new, new.clone());
        let applied = apply(&place, &contents, &[write("f", &new)], threads);
        assert!(applied.is_whole(), "{applied:?}");
        assert!(fs::read(place.at("f")).unwrap() == new);
        assert_eq!(contents.read(), [5 * GROUP, last]);
        let (was, is) = (held.metadata().unwrap(), place.at("f").metadata().unwrap());
        assert!(was.ino() != is.ino() && was.len() != is.len());
        assert!(is.blocks() * 512 <= is.len() - (1 << 20));
    }
}

/// A file that is not there yet, or is shorter, is made of what is read.
#[test]
fn a_large_file_is_made_where_none_was() {
    let new = bytes();
    for (before, least) in [
        (tree(&[]), 0),
        (tree(&[("f", file(&new[..3 << 20]))]), 3 << 20),
    ] {
        let place = Place::new(&before);
        let contents = Large::new(&new, new.clone());
        let applied = apply(&place, &contents, &[write("f", &new)], 3);
        assert!(applied.is_whole(), "{applied:?}");
        assert_eq!(place.now(), tree(&[("f", file(&new))]));
        assert!(contents.read().iter().all(|offset| *offset >= least));
    }
}

/// Bytes that are not the group's, and groups that are not the content's, are found before
/// anything has a name; what stood there stands.
#[test]
fn a_group_that_lies_changes_nothing() {
    let new = bytes();
    let mut bent = new.clone();
    bent[4_500_000] ^= 1;
    for contents in [
        Large::new(&new, bent.clone()),
        Large::new(&bent, bent.clone()),
    ] {
        for threads in [1, 4] {
            let place = Place::new(&tree(&[("f", file(b"old"))]));
            let applied = apply(&place, &contents, &[write("f", &new)], threads);
            assert_eq!(applied.failed, [(path("f"), Failure::WrongContent)]);
            assert_eq!(place.now(), tree(&[("f", file(b"old"))]));
        }
    }
}
