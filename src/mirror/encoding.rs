//! A whole tree as bytes: one form for each tree, read back strictly.
//!
//! A directory is what was seen of it (one byte of flags, four of its hard-link group), the number
//! of its entries (4 bytes), and each entry: its name's length (1 byte) and bytes, its kind (1
//! byte) and then
//!
//! - `f`: 1 when executable, else 0; its size (8); its content's id (32); what was seen (5);
//! - `d`: the directory;
//! - `l`: its text's length (2) and bytes;
//! - `s`: its kind (1).
//!
//! Numbers are little-endian. Names stand in the order of their bytes, each once.

use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::{Entry, File, LinkText, Seen, SpecialKind};
use crate::tree::limits::Limits;
use crate::tree::path::{BadName, DEPTH_MAX, Name};

const SETUID: u8 = 1;
const SETGID: u8 = 2;
const STICKY: u8 = 4;
/// Bytes of the shortest entry: a special of a name of one byte.
const ENTRY_MIN: usize = 4;

/// Why bytes are no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTree {
    /// They end too early.
    #[error("it ends inside the tree")]
    Cut,
    /// They go on behind the tree.
    #[error("there are {0} bytes behind the tree")]
    Trailing(usize),
    /// A name that is none.
    #[error("it has {0}")]
    Name(#[from] BadName),
    /// Names out of order, or one that comes twice.
    #[error("the name {0:?} stands out of order")]
    Order(Name),
    /// A kind, a flag or a text that no entry has.
    #[error("{what} of the entry {name:?} is none that is known")]
    Value {
        /// Which part.
        what: &'static str,
        /// Which entry, in its directory.
        name: Name,
    },
    /// More than a limit.
    #[error("it has more than {most} {what}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: u64,
    },
}

/// Appends the tree to `out`.
pub fn encode(tree: &Directory, out: &mut Vec<u8>) {
    encode_seen(tree.seen(), out);
    let count = u32::try_from(tree.entries().len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for (name, entry) in tree.entries() {
        out.extend(u8::try_from(name.as_bytes().len()));
        out.extend_from_slice(name.as_bytes());
        match entry {
            Entry::File(file) => {
                out.push(b'f');
                out.push(u8::from(file.executable));
                out.extend_from_slice(&file.size.to_le_bytes());
                out.extend_from_slice(file.content.as_bytes());
                encode_seen(file.seen, out);
            }
            Entry::Directory(directory) => {
                out.push(b'd');
                encode(directory, out);
            }
            Entry::Link(text) => {
                out.push(b'l');
                let length = u16::try_from(text.as_bytes().len()).unwrap_or(u16::MAX);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Entry::Special(kind) => {
                out.push(b's');
                out.push(letter_of(*kind));
            }
        }
    }
}

fn encode_seen(seen: Seen, out: &mut Vec<u8>) {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(flag(seen.setuid, SETUID) | flag(seen.setgid, SETGID) | flag(seen.sticky, STICKY));
    out.extend_from_slice(&seen.hard_link.to_le_bytes());
}

const fn letter_of(kind: SpecialKind) -> u8 {
    match kind {
        SpecialKind::Fifo => b'p',
        SpecialKind::Socket => b's',
        SpecialKind::CharacterDevice => b'c',
        SpecialKind::BlockDevice => b'b',
        SpecialKind::Mountpoint => b'm',
    }
}

const fn kind_of(letter: u8) -> Option<SpecialKind> {
    match letter {
        b'p' => Some(SpecialKind::Fifo),
        b's' => Some(SpecialKind::Socket),
        b'c' => Some(SpecialKind::CharacterDevice),
        b'b' => Some(SpecialKind::BlockDevice),
        b'm' => Some(SpecialKind::Mountpoint),
        _ => None,
    }
}

/// Reads a tree that is all of `bytes`.
///
/// # Errors
/// When they are not exactly what [`encode`] writes, or the tree is over a limit.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Directory, BadTree> {
    let mut reading = Reading {
        rest: bytes,
        limits,
        entries: 0,
        bytes: 0,
    };
    let tree = reading.directory(0)?;
    match reading.rest.len() {
        0 => Ok(tree),
        more => Err(BadTree::Trailing(more)),
    }
}

struct Reading<'a> {
    rest: &'a [u8],
    limits: &'a Limits,
    entries: u64,
    bytes: u64,
}

impl Reading<'_> {
    fn directory(&mut self, depth: usize) -> Result<Directory, BadTree> {
        let limit = |what, most| Err(BadTree::Limit { what, most });
        if depth > DEPTH_MAX {
            return limit("levels", u64::try_from(DEPTH_MAX).unwrap_or(u64::MAX));
        }
        let flags = self.byte()?;
        // The root has no name of its own; its flags are those of any directory.
        let seen = self.seen(flags)?.ok_or(BadTree::Cut)?;
        let count = u32::from_le_bytes(self.array()?);
        self.entries = self.entries.saturating_add(u64::from(count));
        if self.entries > self.limits.entries {
            return limit("entries", self.limits.entries);
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut entries: Vec<(Name, Entry)> =
            Vec::with_capacity(count.min(self.rest.len() / ENTRY_MIN));
        for _ in 0..count {
            let length = usize::from(self.byte()?);
            let name = Name::new(self.take(length)?)?;
            if entries.last().is_some_and(|(before, _)| *before >= name) {
                return Err(BadTree::Order(name));
            }
            let entry = self.entry(&name, depth)?;
            entries.push((name, entry));
        }
        Directory::new(entries, seen).map_err(|twice| BadTree::Order(twice.0))
    }

    fn entry(&mut self, name: &Name, depth: usize) -> Result<Entry, BadTree> {
        let odd = |what| BadTree::Value {
            what,
            name: name.clone(),
        };
        match self.byte()? {
            b'f' => self.file(name).map(Entry::File),
            b'd' => self
                .directory(depth.saturating_add(1))
                .map(Entry::Directory),
            b'l' => {
                let length = usize::from(u16::from_le_bytes(self.array()?));
                let text = LinkText::new(self.take(length)?).ok_or_else(|| odd("the text"))?;
                Ok(Entry::Link(text))
            }
            b's' => {
                let kind = kind_of(self.byte()?).ok_or_else(|| odd("the kind"))?;
                Ok(Entry::Special(kind))
            }
            _ => Err(odd("the kind")),
        }
    }

    fn file(&mut self, name: &Name) -> Result<File, BadTree> {
        let odd = |what| BadTree::Value {
            what,
            name: name.clone(),
        };
        let executable = match self.byte()? {
            0 => false,
            1 => true,
            _ => return Err(odd("the mode")),
        };
        let size = u64::from_le_bytes(self.array()?);
        if size > self.limits.file {
            return Err(BadTree::Limit {
                what: "bytes in one file",
                most: self.limits.file,
            });
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.limits.tree {
            return Err(BadTree::Limit {
                what: "bytes",
                most: self.limits.tree,
            });
        }
        let content = ContentId(self.array()?);
        let flags = self.byte()?;
        let seen = self.seen(flags)?.ok_or_else(|| odd("what was seen"))?;
        Ok(File {
            size,
            executable,
            content,
            seen,
        })
    }

    /// Nothing for flags that nobody writes.
    fn seen(&mut self, flags: u8) -> Result<Option<Seen>, BadTree> {
        let hard_link = u32::from_le_bytes(self.array()?);
        let known = flags & !(SETUID | SETGID | STICKY) == 0;
        Ok(known.then_some(Seen {
            setuid: flags & SETUID != 0,
            setgid: flags & SETGID != 0,
            sticky: flags & STICKY != 0,
            hard_link,
        }))
    }

    fn byte(&mut self) -> Result<u8, BadTree> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadTree> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(BadTree::Cut)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn take(&mut self, length: usize) -> Result<&[u8], BadTree> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(BadTree::Cut)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Directory {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let seen = |hard_link| Seen {
            setuid: true,
            hard_link,
            ..Seen::default()
        };
        let file = |hard_link| {
            Entry::File(File {
                size: 3,
                executable: true,
                content: ContentId::of(b"abc"),
                seen: seen(hard_link),
            })
        };
        let below = vec![(name("f"), file(1)), (name("g"), file(1))];
        let below = Directory::new(below, seen(0)).unwrap();
        let entries = vec![
            (Name::new(&b"\xff"[..]).unwrap(), file(0)),
            (name("d"), Entry::Directory(below)),
            (name("e"), Entry::Directory(Directory::empty())),
            (name("l"), Entry::Link(LinkText::new(&b"../x"[..]).unwrap())),
            (name("p"), Entry::Special(SpecialKind::Fifo)),
        ];
        Directory::new(entries, Seen::default()).unwrap()
    }

    fn encoded(tree: &Directory) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(tree, &mut bytes);
        bytes
    }

    /// A tree has one form: other bytes are another tree, or none.
    #[test]
    fn a_tree_comes_back_and_has_one_form() {
        let limits = Limits::default();
        let bytes = encoded(&tree());
        assert_eq!(decode(&bytes, &limits), Ok(tree()));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], &limits).is_err(), "{length}");
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        assert_eq!(decode(&longer, &limits), Err(BadTree::Trailing(1)));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = decode(&changed, &limits) {
                assert_ne!(read, tree(), "bit {bit}");
                assert_eq!(encoded(&read), changed, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_tree_over_a_limit_is_refused() {
        let bytes = encoded(&tree());
        let most = Limits {
            entries: 7,
            file: 3,
            tree: 9,
        };
        assert!(decode(&bytes, &most).is_ok());
        for limits in [
            Limits { entries: 6, ..most },
            Limits { file: 2, ..most },
            Limits { tree: 8, ..most },
        ] {
            let error = decode(&bytes, &limits).unwrap_err();
            assert!(matches!(error, BadTree::Limit { .. }), "{error}");
        }
        // A directory in a directory, deeper than any path.
        let mut deep = Vec::new();
        for _ in 0..DEPTH_MAX + 2 {
            deep.extend_from_slice(b"\0\0\0\0\0\x01\0\0\0\x01dd");
        }
        let error = decode(&deep, &Limits::default()).unwrap_err();
        assert!(matches!(error, BadTree::Limit { what: "levels", .. }));
        // A count that nothing stands behind costs no memory.
        let count = b"\0\0\0\0\0\xff\xff\x0f\0";
        assert_eq!(
            decode(count, &Limits::default()),
            Err(BadTree::Limit {
                what: "entries",
                most: 1_000_000
            })
        );
    }
}
