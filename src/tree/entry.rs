//! What stands in a directory.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::content::ContentId;
use super::directory::Directory;

/// Longest text of a symlink, bytes: what Linux takes.
pub const LINK_MAX: usize = 4_095;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File(File),
    /// A directory, with everything in it.
    Directory(Directory),
    /// A symlink: its text, which nothing here ever follows.
    Link(LinkText),
    /// Something without content, which is reported and never made, opened or followed.
    Special(SpecialKind),
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Bytes.
    pub size: u64,
    /// Whether its owner may execute it: the one bit of its mode that is mirrored.
    pub executable: bool,
    /// Which bytes.
    pub content: ContentId,
    /// What was seen beside, and is never applied.
    pub seen: Seen,
}

/// What a scan saw of a file or directory beyond what is mirrored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Its mode has the setuid bit.
    pub setuid: bool,
    /// Its mode has the setgid bit.
    pub setgid: bool,
    /// Its mode has the sticky bit.
    pub sticky: bool,
    /// Files of the same number are hard links of each other; 0 for a file with one name. No part of
    /// the tree's hash.
    pub hard_link: u32,
}

/// The text of a symlink: 1 to 4,095 bytes without NUL.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LinkText(Box<[u8]>);

impl LinkText {
    /// Takes bytes as a link's text; nothing when no link can have it.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        let fits = !bytes.is_empty() && bytes.len() <= LINK_MAX && !bytes.contains(&0);
        fits.then_some(Self(bytes))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Foreign bytes are never printed raw.
impl fmt::Debug for LinkText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for LinkText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for LinkText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = serde_bytes::ByteBuf::deserialize(deserializer)?;
        Self::new(bytes.into_vec()).ok_or_else(|| serde::de::Error::custom("no text of a link"))
    }
}

/// What is neither file nor directory nor symlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SpecialKind {
    /// A named pipe.
    Fifo,
    /// A unix socket.
    Socket,
    /// A character device, or the mark of a deleted file in a layered file system.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A directory on which another file system is mounted: what is in it is not of this tree.
    Mountpoint,
}
