//! Names and paths inside a tree: bytes that cannot leave it.
//!
//! Both are checked when they are made, also when they come over the wire, so that no code behind
//! them has to think of `..`, of absolute paths or of NUL again.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest name, bytes: what every Linux file system has.
pub const NAME_MAX: usize = 255;
/// Deepest path, components: no tree that people make is deeper, and code that walks down one
/// level a call stays within its stack.
pub const DEPTH_MAX: usize = 512;

/// One component of a path: 1 to 255 bytes, none of them `/` or NUL, and not `.` or `..`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

/// Why bytes are no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// No bytes.
    #[error("an empty name")]
    Empty,
    /// `.` or `..`.
    #[error("a name that means a directory itself or its parent")]
    Dots,
    /// `/` inside.
    #[error("a name with a slash")]
    Slash,
    /// NUL inside.
    #[error("a name with a NUL")]
    Nul,
    /// Longer than [`NAME_MAX`].
    #[error("a name of {0} bytes, and {NAME_MAX} is the most")]
    TooLong(usize),
    /// Deeper than [`DEPTH_MAX`].
    #[error("a path of more than {DEPTH_MAX} names")]
    TooDeep,
}

impl Name {
    /// Takes bytes as a name.
    ///
    /// # Errors
    /// When they are none.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Result<Self, BadName> {
        let bytes = bytes.into();
        check(&bytes)?;
        Ok(Self(bytes))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the system takes it.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

fn check(bytes: &[u8]) -> Result<(), BadName> {
    match bytes {
        [] => Err(BadName::Empty),
        b"." | b".." => Err(BadName::Dots),
        _ if bytes.contains(&b'/') => Err(BadName::Slash),
        _ if bytes.contains(&0) => Err(BadName::Nul),
        _ if bytes.len() > NAME_MAX => Err(BadName::TooLong(bytes.len())),
        _ => Ok(()),
    }
}

/// Foreign bytes are never printed raw.
impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = serde_bytes::ByteBuf::deserialize(deserializer)?;
        Self::new(bytes.into_vec()).map_err(serde::de::Error::custom)
    }
}

/// A path inside a tree: names joined by `/`, none for the root itself. Paths sort as a walk meets
/// them: a directory, then all that is in it, then what comes after it.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// The root itself.
    pub const ROOT: Self = Self(Vec::new());

    /// Takes bytes as a path: names joined by single slashes, or nothing.
    ///
    /// # Errors
    /// When one of the names is none, or there are too many.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, BadName> {
        let path = Self(bytes.into());
        let mut depth = 0;
        for name in path.components() {
            check(name)?;
            depth += 1;
        }
        if depth > DEPTH_MAX {
            return Err(BadName::TooDeep);
        }
        Ok(path)
    }

    /// What lies in this directory under `name`. It may be deeper than [`DEPTH_MAX`]: who walks
    /// down counts.
    pub fn join(&self, name: &Name) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.0.len());
        if !self.0.is_empty() {
            bytes.extend_from_slice(&self.0);
            bytes.push(b'/');
        }
        bytes.extend_from_slice(&name.0);
        Self(bytes)
    }

    /// The names, from the root down.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        // Nothing splits into one empty name: that one is the root's, and left out.
        let empty = self.0.is_empty();
        self.0.split(|byte| *byte == b'/').filter(move |_| !empty)
    }

    /// How many names it has.
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// The directory that it lies in, and its name there; nothing for the root.
    pub fn split_last(&self) -> Option<(Self, Name)> {
        let name = self.components().next_back()?;
        let parent = self.0.get(..self.0.len() - name.len())?;
        let parent = parent.strip_suffix(b"/").unwrap_or(parent);
        Some((Self(parent.to_vec()), Name(name.into())))
    }

    /// Whether it is `directory` or lies anywhere in it.
    pub fn is_within(&self, directory: &Self) -> bool {
        match self.0.strip_prefix(directory.as_bytes()) {
            Some(rest) => rest.is_empty() || directory.0.is_empty() || rest.starts_with(b"/"),
            None => false,
        }
    }

    /// The same place below another directory: `from/a` becomes `to/a`. Nothing when it does not
    /// lie within `from`.
    pub fn rebase(&self, from: &Self, to: &Self) -> Option<Self> {
        if !self.is_within(from) {
            return None;
        }
        let rest = self.0.get(from.0.len()..)?;
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        let mut bytes = to.0.clone();
        if !bytes.is_empty() && !rest.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(rest);
        Some(Self(bytes))
    }

    /// Whether it is the root itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the system takes it; the root is the empty path.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        // As the names one by one, and faster: a slash ends a name, so it is less than every byte
        // that a name can have; NUL is none.
        let rank = |byte: Option<&u8>| byte.map(|byte| if *byte == b'/' { 0 } else { *byte });
        let (one, other) = (self.0.as_slice(), other.0.as_slice());
        let first = common(one, other);
        rank(one.get(first)).cmp(&rank(other.get(first)))
    }
}

/// Bytes that both begin with: most paths of a tree share much.
fn common(one: &[u8], other: &[u8]) -> usize {
    let (words, others) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    let pairs = words.iter().zip(others);
    let whole = 8 * pairs.take_while(|(one, other)| one == other).count();
    let ends = one.iter().zip(other).skip(whole);
    whole + ends.take_while(|(one, other)| one == other).count()
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Foreign bytes are never printed raw.
impl fmt::Debug for RelPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = serde_bytes::ByteBuf::deserialize(deserializer)?;
        Self::new(bytes.into_vec()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    /// Every name that could leave a tree is refused, also when it comes over the wire.
    #[test]
    fn m13_names_that_escape_are_refused() {
        let long = "x".repeat(NAME_MAX + 1);
        for (bytes, why) in [
            ("", BadName::Empty),
            (".", BadName::Dots),
            ("..", BadName::Dots),
            ("/etc", BadName::Slash),
            ("a/b", BadName::Slash),
            ("a\0b", BadName::Nul),
            (long.as_str(), BadName::TooLong(NAME_MAX + 1)),
        ] {
            assert_eq!(Name::new(bytes.as_bytes()).unwrap_err(), why, "{bytes:?}");
            let sent = postcard::to_allocvec(serde_bytes::Bytes::new(bytes.as_bytes())).unwrap();
            assert!(postcard::from_bytes::<Name>(&sent).is_err(), "{bytes:?}");
        }
        for bad in ["/abs", "a//b", "a/", "a/../b", "./a", "a/\0"] {
            assert!(RelPath::new(bad).is_err(), "{bad:?}");
            let sent = postcard::to_allocvec(serde_bytes::Bytes::new(bad.as_bytes())).unwrap();
            assert!(postcard::from_bytes::<RelPath>(&sent).is_err(), "{bad:?}");
        }
        assert!(RelPath::new("a/".repeat(DEPTH_MAX) + "a").is_err());
        assert_eq!(path(&("a/".repeat(DEPTH_MAX - 1) + "a")).depth(), DEPTH_MAX);
    }

    /// Bytes that are no text are names all the same.
    #[test]
    fn m48_a_name_is_bytes() {
        for bytes in [&b"\xff\xfe"[..], b"a\nb", b"-rf", b"...", &[b'x'; NAME_MAX]] {
            let name = Name::new(bytes).unwrap();
            let sent = postcard::to_allocvec(&name).unwrap();
            assert_eq!(postcard::from_bytes::<Name>(&sent).unwrap(), name);
        }
    }

    #[test]
    fn a_path_takes_itself_apart() {
        let deep = path("a/b/c");
        let (parent, name) = deep.split_last().unwrap();
        assert_eq!((parent.clone(), name.as_bytes()), (path("a/b"), &b"c"[..]));
        assert_eq!(parent.join(&name), deep);
        assert_eq!(RelPath::ROOT.join(&name), path("c"));
        assert_eq!(path("c").split_last().unwrap().0, RelPath::ROOT);
        assert!(RelPath::ROOT.split_last().is_none());
        assert_eq!(RelPath::ROOT.depth(), 0);
        assert!(deep.is_within(&path("a/b")) && deep.is_within(&deep));
        assert!(deep.is_within(&RelPath::ROOT));
        assert!(!path("ab/c").is_within(&path("a")));
        let moved = deep.rebase(&path("a"), &path("x/y")).unwrap();
        assert_eq!(moved, path("x/y/b/c"));
        assert_eq!(deep.rebase(&deep, &path("z")).unwrap(), path("z"));
        assert_eq!(
            deep.rebase(&RelPath::ROOT, &path("z")).unwrap(),
            path("z/a/b/c")
        );
    }

    /// A directory's content stands right behind it, whatever bytes its neighbours' names have.
    #[test]
    fn paths_sort_as_a_walk_meets_them() {
        let mut paths = ["a-b", "a/b", "a", "a.c", "b", ""].map(path);
        paths.sort();
        assert_eq!(paths, ["", "a", "a/b", "a-b", "a.c", "b"].map(path));
        let odd = [
            "",
            "a",
            "a/b",
            "a/b/c",
            "a\u{1}",
            "a\u{1}/b",
            "a/\u{1}",
            "ab",
            "a\u{ff}/b",
            "b/a",
        ];
        for (one, other) in odd
            .iter()
            .flat_map(|one| odd.map(|other| (path(one), path(other))))
        {
            let names = one.components().cmp(other.components());
            assert_eq!(one.cmp(&other), names, "{one:?} {other:?}");
        }
    }
}
