//! Trees on the disk: made by chance, read for comparison, edited.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

/// What a mirror keeps of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    File { bytes: Vec<u8>, executable: bool },
    Link(Vec<u8>),
    Special,
}

/// A tree by the bytes of its paths.
pub(crate) type Tree = BTreeMap<Vec<u8>, Node>;

/// Reads a tree.
pub(crate) fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![(root.to_owned(), Vec::new())];
    while let Some((directory, prefix)) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let mut path: Vec<u8> = prefix.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.file_name().as_bytes());
            let kind = entry.file_type().unwrap();
            let node = if kind.is_dir() {
                left.push((entry.path(), path.clone()));
                Node::Directory
            } else if kind.is_symlink() {
                let text = fs::read_link(entry.path()).unwrap();
                Node::Link(text.as_os_str().as_bytes().to_vec())
            } else if kind.is_file() {
                Node::File {
                    bytes: fs::read(entry.path()).unwrap(),
                    executable: entry.metadata().unwrap().permissions().mode() & 0o100 != 0,
                }
            } else {
                assert!(kind.is_fifo() || kind.is_socket() || kind.is_char_device());
                Node::Special
            };
            tree.insert(path, node);
        }
    }
    tree
}

/// The contents of its files.
pub(crate) fn contents(tree: &Tree) -> Vec<&[u8]> {
    let contents = tree.values().filter_map(|node| match node {
        Node::File { bytes, .. } => Some(bytes.as_slice()),
        Node::Directory | Node::Link(_) | Node::Special => None,
    });
    contents.collect()
}

/// Numbers by chance, the same for the same seed (splitmix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `most`.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(u64::try_from(from.len()).unwrap());
        &from[usize::try_from(at).unwrap()]
    }

    pub(crate) fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// A path below a root, of bytes.
pub(crate) fn at(root: &Path, inside: &[u8]) -> std::path::PathBuf {
    root.join(OsStr::from_bytes(inside))
}
