//! A directory with all that is in it, and the one hash that proves it.
//!
//! The hash of a directory is the BLAKE3, under a key of its own, of its entries in the order of
//! their names' bytes. Each is written as: its kind (one byte), its name's length (one byte) and
//! bytes, and then
//!
//! - file: its bits (one byte); its size (8 bytes); its content's id (32 bytes);
//! - directory: its bits (one byte); its hash (32 bytes);
//! - symlink: its text's length (2 bytes) and bytes;
//! - special: its kind (one byte).
//!
//! Bits are 1 for an executable file, 2 for setuid, 4 for setgid, 8 for sticky. Numbers are
//! little-endian. The last three bits are seen and never applied: of two trees that are to be the
//! same after a mirror, [`Directory::plain`] is compared, which has none of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::content::ContentId;
use super::entry::{Entry, File, LinkText, Seen, SpecialKind};
use super::path::{Name, RelPath};

/// Separates these hashes from those of contents: no file's bytes can pass for a directory.
const CONTEXT: &str = "labproxy 2026-11-30 directory of a mirrored tree";

/// Names a directory's whole content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TreeHash(pub [u8; 32]);

/// 64 hexadecimal digits.
impl fmt::Display for TreeHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for TreeHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// How much a directory holds, at all depths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Entries of every kind, without the directory itself.
    pub entries: u64,
    /// Regular files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A directory, whole.
#[derive(Clone, PartialEq, Eq)]
pub struct Directory {
    entries: Vec<(Name, Entry)>,
    hash: TreeHash,
    totals: Totals,
    /// What was seen of it; a part of its parent's hash.
    seen: Seen,
}

/// One entry of a directory as it is listed: of a directory in it only its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listed {
    /// A regular file.
    File(File),
    /// A directory: what is in it has this hash.
    Directory {
        /// Its hash.
        hash: TreeHash,
        /// What was seen beside.
        seen: Seen,
    },
    /// A symlink.
    Link(LinkText),
    /// Something without content.
    Special(SpecialKind),
}

/// Two entries of one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two entries of the name {0:?} in one directory")]
pub struct TwiceTheName(pub Name);

impl Directory {
    /// Makes a directory of its entries, in any order.
    ///
    /// # Errors
    /// When a name comes twice.
    pub fn new(mut entries: Vec<(Name, Entry)>, seen: Seen) -> Result<Self, TwiceTheName> {
        entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let twice = entries
            .iter()
            .zip(entries.iter().skip(1))
            .find(|((one, _), (other, _))| one == other);
        if let Some(((name, _), _)) = twice {
            return Err(TwiceTheName(name.clone()));
        }
        let listed: Vec<(Name, Listed)> = entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.listed()))
            .collect();
        let mut totals = Totals::default();
        for (_, entry) in &entries {
            totals.add(entry);
        }
        Ok(Self {
            hash: hash_of(&listed),
            entries,
            totals,
            seen,
        })
    }

    /// A directory with nothing in it.
    pub fn empty() -> Self {
        Self {
            hash: hash_of(&[]),
            entries: Vec::new(),
            totals: Totals::default(),
            seen: Seen::default(),
        }
    }

    /// The entries, sorted by their names' bytes.
    pub fn entries(&self) -> &[(Name, Entry)] {
        &self.entries
    }

    /// The entries, as a listing sends them.
    pub fn listing(&self) -> Vec<(Name, Listed)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.listed()))
            .collect()
    }

    /// The entry of a name.
    pub fn get(&self, name: &[u8]) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|(here, _)| here.as_bytes().cmp(name))
            .ok()?;
        self.entries.get(at).map(|(_, entry)| entry)
    }

    /// What stands at a path below; nothing for the root itself.
    pub fn find(&self, path: &RelPath) -> Option<&Entry> {
        let mut names = path.components();
        let mut at = self.get(names.next()?)?;
        for name in names {
            let Entry::Directory(directory) = at else {
                return None;
            };
            at = directory.get(name)?;
        }
        Some(at)
    }

    /// The directory at a path; itself for the root.
    pub fn directory(&self, path: &RelPath) -> Option<&Self> {
        if path.is_root() {
            return Some(self);
        }
        match self.find(path)? {
            Entry::Directory(directory) => Some(directory),
            Entry::File(_) | Entry::Link(_) | Entry::Special(_) => None,
        }
    }

    /// Its hash.
    pub const fn hash(&self) -> TreeHash {
        self.hash
    }

    /// How much it holds.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// What was seen of the directory itself.
    pub const fn seen(&self) -> Seen {
        self.seen
    }

    /// The same, with something else seen of the directory itself.
    pub fn with_seen(self, seen: Seen) -> Self {
        Self { seen, ..self }
    }

    /// Calls `visit` for everything below, each directory before what is in it.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&RelPath, &'a Entry)) {
        self.walk_below(&RelPath::ROOT, visit);
    }

    fn walk_below<'a>(&'a self, here: &RelPath, visit: &mut dyn FnMut(&RelPath, &'a Entry)) {
        for (name, entry) in &self.entries {
            let path = here.join(name);
            visit(&path, entry);
            if let Entry::Directory(directory) = entry {
                directory.walk_below(&path, visit);
            }
        }
    }

    /// The directory without what `keep` does not keep; a directory that is not kept is left out
    /// with all that is in it.
    pub fn filtered(&self, keep: &mut dyn FnMut(&RelPath, &Entry) -> bool) -> Self {
        self.filtered_below(&RelPath::ROOT, keep)
    }

    /// The directory without what was only seen: what a mirror of it is.
    pub fn plain(&self) -> Self {
        let entries = self.entries.iter().map(|(name, entry)| {
            let plain = match entry {
                Entry::File(file) => Entry::File(File {
                    seen: Seen::default(),
                    ..file.clone()
                }),
                Entry::Directory(below) => Entry::Directory(below.plain()),
                Entry::Link(_) | Entry::Special(_) => entry.clone(),
            };
            (name.clone(), plain)
        });
        // The same names of a directory are no two of one name.
        Self::new(entries.collect(), Seen::default()).unwrap_or_else(|_| Self::empty())
    }

    fn filtered_below(
        &self,
        here: &RelPath,
        keep: &mut dyn FnMut(&RelPath, &Entry) -> bool,
    ) -> Self {
        let mut entries = Vec::with_capacity(self.entries.len());
        for (name, entry) in &self.entries {
            let path = here.join(name);
            if !keep(&path, entry) {
                continue;
            }
            let entry = match entry {
                Entry::Directory(below) => Entry::Directory(below.filtered_below(&path, keep)),
                Entry::File(_) | Entry::Link(_) | Entry::Special(_) => entry.clone(),
            };
            entries.push((name.clone(), entry));
        }
        // Fewer names of a directory are no two of one name.
        Self::new(entries, self.seen).unwrap_or_else(|_| Self::empty())
    }
}

/// Short, since a tree may have a million entries.
impl fmt::Debug for Directory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Directory")
            .field("hash", &self.hash)
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

impl Totals {
    fn add(&mut self, entry: &Entry) {
        self.entries = self.entries.saturating_add(1);
        match entry {
            Entry::File(file) => {
                self.files = self.files.saturating_add(1);
                self.bytes = self.bytes.saturating_add(file.size);
            }
            Entry::Directory(directory) => {
                let below = directory.totals;
                self.entries = self.entries.saturating_add(below.entries);
                self.files = self.files.saturating_add(below.files);
                self.bytes = self.bytes.saturating_add(below.bytes);
            }
            Entry::Link(_) | Entry::Special(_) => {}
        }
    }
}

impl Entry {
    /// As a listing of its directory has it.
    pub fn listed(&self) -> Listed {
        match self {
            Self::File(file) => Listed::File(file.clone()),
            Self::Directory(directory) => Listed::Directory {
                hash: directory.hash,
                seen: directory.seen,
            },
            Self::Link(text) => Listed::Link(text.clone()),
            Self::Special(kind) => Listed::Special(*kind),
        }
    }
}

/// The hash of the directory that has these entries: what a listing is checked by. They must be
/// sorted by name, each name once; a listing that is not has no hash.
pub fn listing_hash(entries: &[(Name, Listed)]) -> Option<TreeHash> {
    let sorted = entries
        .iter()
        .zip(entries.iter().skip(1))
        .all(|((one, _), (other, _))| one < other);
    sorted.then(|| hash_of(entries))
}

fn hash_of(entries: &[(Name, Listed)]) -> TreeHash {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    let mut record = Vec::new();
    for (name, entry) in entries {
        record.clear();
        write(name, entry, &mut record);
        hasher.update(&record);
    }
    TreeHash(*hasher.finalize().as_bytes())
}

/// One entry in canonical form.
fn write(name: &Name, entry: &Listed, out: &mut Vec<u8>) {
    out.push(match entry {
        Listed::File(_) => b'f',
        Listed::Directory { .. } => b'd',
        Listed::Link(_) => b'l',
        Listed::Special(_) => b's',
    });
    out.extend(u8::try_from(name.as_bytes().len()));
    out.extend_from_slice(name.as_bytes());
    match entry {
        Listed::File(File {
            size,
            executable,
            content: ContentId(content),
            seen,
        }) => {
            out.push(bits(*executable, *seen));
            out.extend_from_slice(&size.to_le_bytes());
            out.extend_from_slice(content);
        }
        Listed::Directory { hash, seen } => {
            out.push(bits(false, *seen));
            out.extend_from_slice(&hash.0);
        }
        Listed::Link(text) => {
            let length = u16::try_from(text.as_bytes().len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        Listed::Special(kind) => out.push(match kind {
            SpecialKind::Fifo => b'p',
            SpecialKind::Socket => b's',
            SpecialKind::CharacterDevice => b'c',
            SpecialKind::BlockDevice => b'b',
            SpecialKind::Mountpoint => b'm',
        }),
    }
}

/// Which file hard links which is no part of the hash: it is told again with every listing.
fn bits(executable: bool, seen: Seen) -> u8 {
    u8::from(executable)
        | u8::from(seen.setuid) << 1
        | u8::from(seen.setgid) << 2
        | u8::from(seen.sticky) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn file(bytes: &[u8]) -> Entry {
        Entry::File(File {
            size: u64::try_from(bytes.len()).unwrap(),
            executable: false,
            content: ContentId::of(bytes),
            seen: Seen::default(),
        })
    }

    fn tree(entries: Vec<(&str, Entry)>) -> Directory {
        let entries = entries.into_iter().map(|(text, entry)| (name(text), entry));
        Directory::new(entries.collect(), Seen::default()).unwrap()
    }

    /// Every difference changes the hash; what is only seen is no difference of plain trees.
    #[test]
    fn the_hash_is_of_all_that_can_differ() {
        let plain = tree(vec![("a", file(b"x")), ("b", file(b"y"))]);
        let turned = tree(vec![("b", file(b"y")), ("a", file(b"x"))]);
        assert_eq!(plain, turned);
        let Entry::File(x) = file(b"x") else { panic!() };
        let with =
            |changed: File| tree(vec![("a", Entry::File(changed)), ("b", file(b"y"))]).hash();
        let executable = File {
            executable: true,
            ..x.clone()
        };
        assert_ne!(with(executable), plain.hash());
        let setuid = Seen {
            setuid: true,
            ..Seen::default()
        };
        let marked = File { seen: setuid, ..x };
        assert_ne!(with(marked.clone()), plain.hash());
        let marked = tree(vec![("a", Entry::File(marked)), ("b", file(b"y"))]);
        assert_eq!(marked.plain(), plain);
        let linked = Seen {
            hard_link: 7,
            ..Seen::default()
        };
        let Entry::File(x) = file(b"x") else { panic!() };
        assert_eq!(with(File { seen: linked, ..x }), plain.hash());
        let link = LinkText::new(&b"x"[..]).unwrap();
        let others = [
            tree(vec![("a", file(b"x"))]),
            tree(vec![("a", file(b"x")), ("c", file(b"y"))]),
            tree(vec![("a", Entry::Link(link)), ("b", file(b"y"))]),
            tree(vec![
                ("a", Entry::Special(SpecialKind::Fifo)),
                ("b", file(b"y")),
            ]),
            tree(vec![
                ("a", Entry::Special(SpecialKind::Socket)),
                ("b", file(b"y")),
            ]),
            tree(vec![
                ("a", Entry::Directory(Directory::empty())),
                ("b", file(b"y")),
            ]),
            tree(vec![("d", Entry::Directory(plain.clone()))]),
            Directory::empty(),
        ];
        let mut hashes: Vec<TreeHash> = others.iter().map(Directory::hash).collect();
        hashes.push(plain.hash());
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), others.len() + 1);
    }

    #[test]
    fn a_name_stands_once() {
        let twice = vec![(name("a"), file(b"x")), (name("a"), file(b"y"))];
        assert!(Directory::new(twice, Seen::default()).is_err());
        let listing = tree(vec![("a", file(b"x")), ("b", file(b"y"))]).listing();
        assert!(listing_hash(&listing).is_some());
        let turned: Vec<_> = listing.iter().rev().cloned().collect();
        assert_eq!(listing_hash(&turned), None);
    }

    #[test]
    fn everything_is_found_and_counted() {
        let below = tree(vec![("x", file(b"123")), ("y", file(b"4"))]);
        let all = tree(vec![
            ("d", Entry::Directory(below.clone())),
            ("z", file(b"56")),
        ]);
        let at = |text: &str| all.find(&RelPath::new(text).unwrap());
        assert_eq!(at("d/x"), Some(&file(b"123")));
        assert_eq!(at("z/x"), None);
        assert_eq!(at("d/n"), None);
        assert_eq!(all.directory(&RelPath::ROOT), Some(&all));
        let totals = Totals {
            entries: 4,
            files: 3,
            bytes: 6,
        };
        assert_eq!(all.totals(), totals);
        let mut met = Vec::new();
        all.walk(&mut |path, _| met.push(path.as_bytes().to_vec()));
        assert_eq!(met, [&b"d"[..], b"d/x", b"d/y", b"z"]);
        let less =
            all.filtered(&mut |path, _| path.as_bytes() != b"d/y" && path.as_bytes() != b"z");
        let only = tree(vec![("x", file(b"123"))]);
        assert_eq!(less, tree(vec![("d", Entry::Directory(only))]));
    }
}
