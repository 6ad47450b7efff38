//! Trees and contents that tests are made of.

use labproxy::tree::content::{ContentId, GROUP, Groups, group_value};
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::{Entry, File, Seen};
use labproxy::tree::mirror_id::MirrorId;
use labproxy::tree::path::Name;

pub(crate) const MIRROR: MirrorId = MirrorId::from_random([7; 16]);
pub(crate) const MIB: usize = 1 << 20;

/// Bytes that look random, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

pub(crate) fn file(bytes: &[u8]) -> File {
    File {
        size: bytes.len() as u64,
        executable: false,
        content: ContentId::of(bytes),
        seen: Seen::default(),
    }
}

/// A directory of files with these contents.
pub(crate) fn tree<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Directory {
    let entry = |(name, bytes): (&str, &[u8])| {
        let name = Name::new(name.as_bytes()).unwrap();
        (name, Entry::File(file(bytes)))
    };
    Directory::new(files.into_iter().map(entry).collect(), Seen::default()).unwrap()
}

pub(crate) fn groups(bytes: &[u8]) -> Groups {
    let values = bytes
        .chunks(GROUP as usize)
        .zip(0..)
        .map(|(part, index)| group_value(index * GROUP, part))
        .collect();
    Groups::new(bytes.len() as u64, values).unwrap()
}
