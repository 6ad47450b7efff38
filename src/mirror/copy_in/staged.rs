//! What is brought, read whole before anything of the workspace is changed: the tree that it is, and
//! its files in a private directory of the mirror's, by number. No name of it is a name there.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::btree_map::Entry as Slot;
use std::fs::{self, File as Disk};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use super::Refusal;
use crate::mirror::durable;
use crate::tree::apply::Contents;
use crate::tree::content::ContentId;
use crate::tree::directory::{Directory, TwiceTheName};
use crate::tree::entry::{Entry, File, Seen};
use crate::tree::limits::{Limits, PATHS_MAX};
use crate::tree::path::{Name, RelPath};

/// The directory's name in the mirror's; whoever holds the mirror removes what a cut run left.
const PLACE: &str = "copy-in";
const BUFFER: usize = 256 * 1024;

/// The files.
pub(super) struct Staging {
    place: PathBuf,
    files: HashMap<ContentId, PathBuf>,
    next: u64,
}

/// Why a file was not taken.
pub(super) enum NotTaken {
    /// It cannot be read where it comes from.
    Source(io::Error),
    /// It has not the bytes that were announced.
    Size,
    /// The disk here does not take it.
    Disk(io::Error),
}

impl Staging {
    /// Makes the directory in the mirror's, which this process holds.
    pub(super) fn begin(mirror: &Path) -> io::Result<Self> {
        let place = mirror.join(PLACE);
        durable::remove_directory(&place)?;
        durable::private_directory(&place)?;
        Ok(Self {
            place,
            files: HashMap::new(),
            next: 0,
        })
    }

    /// Takes a file of `size` bytes.
    pub(super) fn take(&mut self, from: &mut dyn Read, size: u64) -> Result<ContentId, NotTaken> {
        let path = self.place.join(self.next.to_string());
        self.next = self.next.saturating_add(1);
        let mut file = durable::create(&path).map_err(NotTaken::Disk)?;
        let mut hasher = blake3::Hasher::new();
        // One byte more would show a file that grew.
        let mut from = from.take(size.saturating_add(1));
        let (mut buffer, mut left) = (vec![0; BUFFER], size);
        loop {
            let count = match from.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(NotTaken::Source(error)),
            };
            let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else {
                break;
            };
            let length = u64::try_from(part.len()).map_err(|_| NotTaken::Size)?;
            left = left.checked_sub(length).ok_or(NotTaken::Size)?;
            hasher.update(part);
            file.write_all(part).map_err(NotTaken::Disk)?;
        }
        if left > 0 {
            return Err(NotTaken::Size);
        }
        let content = ContentId(*hasher.finalize().as_bytes());
        match self.files.entry(content) {
            std::collections::hash_map::Entry::Occupied(_) => {
                fs::remove_file(&path).map_err(NotTaken::Disk)?;
            }
            std::collections::hash_map::Entry::Vacant(slot) => {
                slot.insert(path);
            }
        }
        Ok(content)
    }

    /// A content that was taken.
    pub(super) fn content(&self, content: ContentId) -> io::Result<Disk> {
        let path = self.files.get(&content).ok_or(io::ErrorKind::NotFound)?;
        Disk::open(path)
    }
}

impl Contents for Staging {
    fn open(&self, file: &File) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(self.content(file.content)?))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What stays after all is removed by the next one.
        let _removed = fs::remove_dir_all(&self.place);
    }
}

/// The tree, as it grows.
pub(super) struct Growing {
    top: BTreeMap<Name, Node>,
    counts: Counts,
}

enum Node {
    File(File),
    Directory {
        /// Whether it was named itself, and not only as what something lies in.
        named: bool,
        inside: BTreeMap<Name, Node>,
    },
}

struct Counts {
    limits: Limits,
    entries: u64,
    bytes: u64,
    paths: u64,
}

impl Counts {
    /// Counts an entry whose path has so many bytes.
    fn entry(&mut self, path: usize) -> Result<(), Refusal> {
        self.entries = self.entries.saturating_add(1);
        let path = u64::try_from(path).unwrap_or(u64::MAX);
        self.paths = self.paths.saturating_add(path);
        if self.entries > self.limits.entries {
            return Err(Refusal::TooMany(self.limits.entries));
        }
        if self.paths > PATHS_MAX {
            return Err(Refusal::PathsTooLong(PATHS_MAX));
        }
        Ok(())
    }
}

impl Growing {
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            top: BTreeMap::new(),
            counts: Counts {
                limits,
                entries: 0,
                bytes: 0,
                paths: 0,
            },
        }
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.counts.limits
    }

    /// Whether a file of `size` bytes fits, before it is read.
    pub(super) fn reserve(&mut self, size: u64) -> Result<(), Refusal> {
        let Limits { file, tree, .. } = self.counts.limits;
        if size > file {
            return Err(Refusal::TooLarge { size, limit: file });
        }
        self.counts.bytes = self.counts.bytes.saturating_add(size);
        if self.counts.bytes > tree {
            return Err(Refusal::TreeTooLarge(tree));
        }
        Ok(())
    }

    /// Puts a directory, and those above it.
    pub(super) fn directory(&mut self, path: &RelPath) -> Result<(), Refusal> {
        let Some((inside, name)) = self.above(path)? else {
            return Ok(());
        };
        match inside.get_mut(&name) {
            Some(Node::Directory { named: true, .. }) => return Err(Refusal::Twice),
            Some(Node::Directory { named, .. }) => {
                *named = true;
                return Ok(());
            }
            Some(Node::File(_)) => return Err(Refusal::FileThere),
            None => {}
        }
        let node = Node::Directory {
            named: true,
            inside: BTreeMap::new(),
        };
        inside.insert(name, node);
        self.counts.entry(path.as_bytes().len())
    }

    /// Puts a file, and the directories above it.
    pub(super) fn file(&mut self, path: &RelPath, file: File) -> Result<(), Refusal> {
        let Some((inside, name)) = self.above(path)? else {
            return Err(Refusal::DirectoryThere);
        };
        match inside.get(&name) {
            Some(Node::Directory { .. }) => return Err(Refusal::DirectoryThere),
            Some(Node::File(_)) => return Err(Refusal::Twice),
            None => inside.insert(name, Node::File(file)),
        };
        self.counts.entry(path.as_bytes().len())
    }

    /// What `path` lies in, made where it is missing; nothing for the root.
    #[expect(clippy::type_complexity, reason = "a place and a name in it")]
    fn above(
        &mut self,
        path: &RelPath,
    ) -> Result<Option<(&mut BTreeMap<Name, Node>, Name)>, Refusal> {
        let Self { top, counts } = self;
        let Some((parent, name)) = path.split_last() else {
            return Ok(None);
        };
        let (mut inside, mut length) = (top, 0_usize);
        for component in parent.components() {
            length = length.saturating_add(component.len()).saturating_add(1);
            let node = match inside.entry(Name::new(component)?) {
                Slot::Occupied(slot) => slot.into_mut(),
                Slot::Vacant(slot) => {
                    counts.entry(length)?;
                    slot.insert(Node::Directory {
                        named: false,
                        inside: BTreeMap::new(),
                    })
                }
            };
            match node {
                Node::Directory { inside: next, .. } => inside = next,
                Node::File(_) => return Err(Refusal::FileThere),
            }
        }
        Ok(Some((inside, name)))
    }

    /// The tree.
    pub(super) fn finish(self) -> Result<Directory, TwiceTheName> {
        built(self.top)
    }
}

fn built(inside: BTreeMap<Name, Node>) -> Result<Directory, TwiceTheName> {
    let mut entries = Vec::with_capacity(inside.len());
    for (name, node) in inside {
        let entry = match node {
            Node::File(file) => Entry::File(file),
            Node::Directory { inside, .. } => Entry::Directory(built(inside)?),
        };
        entries.push((name, entry));
    }
    Directory::new(entries, Seen::default())
}
