//! What a push leaves alone: patterns with the meaning that `.gitignore` gives them, fixed when the
//! mirror or session starts.
//!
//! They come from flags, from files named [`FILE`] at the root and in directories below, and from
//! the configuration; the last pattern that matches decides, flags over files, deeper files over
//! those above, files over the configuration. A directory that is excluded is excluded with all
//! that is in it, and nothing in it can be taken back in. `.gitignore` files say nothing here, and
//! neither does a [`FILE`] that changes later or on the host: an agent could write it to bring out
//! what was kept in.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::{Deserialize, Serialize};

use crate::exclude_pattern;
use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;

/// The files of a workspace that name what is excluded, each for its directory and below.
pub const FILE: &str = ".labproxyignore";
/// Most bytes of all patterns: real files have a few KiB, and each pattern becomes part of one
/// automaton in memory.
pub const PATTERNS_MAX: usize = 1024 * 1024;

/// The patterns as text: what is kept with a mirror or session, and read again by each command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// From `--exclude`, in their order.
    pub flags: Vec<String>,
    /// From the configuration, in their order.
    pub configured: Vec<String>,
    /// The text of each [`FILE`], by the directory that it is in.
    #[serde(with = "as_list")]
    pub files: BTreeMap<RelPath, String>,
}

/// A map as a list of pairs: in JSON only text names a value, and a path is bytes.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::tree::path::RelPath;

    type Files = BTreeMap<RelPath, String>;

    pub(super) fn serialize<S: Serializer>(files: &Files, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(files)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Files, D::Error> {
        let pairs = Vec::<(RelPath, String)>::deserialize(from)?;
        Ok(pairs.into_iter().collect())
    }
}

/// Why patterns cannot be used. One that is not understood is never passed over: what it was to keep
/// in would go out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It is no pattern.
    #[error(
        "{place}: '{pattern}' is no pattern ({why}); correct it, or put a backslash before the special character"
    )]
    NoPattern {
        /// Where it stands.
        place: Place,
        /// The pattern.
        pattern: String,
        /// What is wrong.
        why: String,
    },
    /// There are too many.
    #[error(
        "the excludes have {0} bytes, and {PATTERNS_MAX} is the most; use fewer or wider patterns"
    )]
    TooMany(usize),
    /// A file's text is not UTF-8.
    #[error("{0} is not UTF-8 text; save it as such")]
    NotText(Place),
}

/// Where a pattern stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a flag.
    Flag,
    /// In the configuration.
    Configuration,
    /// In the [`FILE`] of this directory.
    File(RelPath),
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => out.write_str("--exclude"),
            Self::Configuration => out.write_str("exclude in the configuration"),
            Self::File(directory) if directory.is_root() => out.write_str(FILE),
            Self::File(directory) => {
                write!(out, "{}/{FILE}", directory.as_bytes().escape_ascii())
            }
        }
    }
}

impl Frozen {
    /// Those of no file: the files are read again until both ends agree on something.
    #[must_use]
    pub fn without_files(&self) -> Self {
        Self {
            flags: self.flags.clone(),
            configured: self.configured.clone(),
            files: BTreeMap::new(),
        }
    }

    /// Takes the bytes of a [`FILE`] in a directory.
    ///
    /// # Errors
    /// When they are no text.
    pub fn add_file(&mut self, directory: RelPath, bytes: &[u8]) -> Result<(), BadPattern> {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                self.files.insert(directory, text.to_owned());
                Ok(())
            }
            Err(_) => Err(BadPattern::NotText(Place::File(directory))),
        }
    }

    /// The directories of a tree that have a [`FILE`], parents first.
    pub fn places(tree: &Directory) -> Vec<RelPath> {
        let mut places = Vec::new();
        tree.walk(&mut |path, entry| {
            if let (Entry::File(_), Some((directory, name))) = (entry, path.split_last())
                && name.as_bytes() == FILE.as_bytes()
            {
                places.push(directory);
            }
        });
        places
    }
}

/// Patterns, ready to be asked.
#[derive(Debug)]
pub struct Excludes {
    flags: Gitignore,
    files: BTreeMap<RelPath, Gitignore>,
    configured: Gitignore,
}

impl Excludes {
    /// Reads patterns.
    ///
    /// # Errors
    /// When one is no pattern, or there are too many.
    pub fn new(frozen: &Frozen) -> Result<Self, BadPattern> {
        let lists = frozen.flags.iter().chain(&frozen.configured);
        let bytes = lists.chain(frozen.files.values()).map(String::len).sum();
        if bytes > PATTERNS_MAX {
            return Err(BadPattern::TooMany(bytes));
        }
        let lines = |lines: &[String], place| read(lines.iter().map(String::as_str), &place);
        let mut files = BTreeMap::new();
        for (directory, text) in &frozen.files {
            // Editors of some systems begin a text with this mark.
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            let place = Place::File(directory.clone());
            files.insert(directory.clone(), read(text.lines(), &place)?);
        }
        Ok(Self {
            flags: lines(&frozen.flags, Place::Flag)?,
            files,
            configured: lines(&frozen.configured, Place::Configuration)?,
        })
    }

    /// Whether a path is excluded, by itself or by a directory that it is in.
    pub fn is_excluded(&self, path: &RelPath, is_directory: bool) -> bool {
        let mut end = 0;
        for name in path.components() {
            end += name.len();
            let Some(Ok(here)) = path.as_bytes().get(..end).map(RelPath::new) else {
                return false;
            };
            let is_last = end == path.as_bytes().len();
            if self.is_named(&here, is_directory || !is_last) {
                return true;
            }
            end += 1;
        }
        false
    }

    /// A tree without what is excluded.
    pub fn prune(&self, tree: &Directory) -> Directory {
        tree.filtered(&mut |path, entry| !self.is_named(path, matches!(entry, Entry::Directory(_))))
    }

    /// Whether the patterns say of this path itself that it is excluded, given that the directories
    /// above are not.
    fn is_named(&self, path: &RelPath, is_directory: bool) -> bool {
        let mut within_files =
            std::iter::successors(path.split_last(), |(above, _)| above.split_last())
                .filter_map(|(directory, _)| self.files.get_key_value(&directory));
        let below = |directory: &RelPath| path.rebase(directory, &RelPath::ROOT);
        let by_flags = decides(&self.flags, path, is_directory);
        let by_files = || {
            within_files
                .find_map(|(directory, list)| decides(list, &below(directory)?, is_directory))
        };
        let by_configuration = || decides(&self.configured, path, is_directory);
        by_flags
            .or_else(by_files)
            .or_else(by_configuration)
            .unwrap_or(false)
    }
}

/// What a list says of a path below its directory; nothing when no pattern matches.
fn decides(list: &Gitignore, path: &RelPath, is_directory: bool) -> Option<bool> {
    match list.matched(Path::new(OsStr::from_bytes(path.as_bytes())), is_directory) {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

fn read<'l>(lines: impl Iterator<Item = &'l str>, place: &Place) -> Result<Gitignore, BadPattern> {
    let bad = |pattern: &str, why: String| BadPattern::NoPattern {
        place: place.clone(),
        pattern: pattern.to_owned(),
        why,
    };
    // The patterns are asked about paths that begin at their directory.
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        let translated =
            exclude_pattern::translated(line).map_err(|why| bad(line, why.to_owned()))?;
        builder
            .add_line(None, &translated)
            .map_err(|error| bad(line, error.to_string()))?;
    }
    builder.build().map_err(|error| bad("", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn a_pattern_that_is_none_is_named_with_its_place() {
        let mut frozen = Frozen::default();
        frozen.flags.push("a[b".to_owned());
        let error = Excludes::new(&frozen).unwrap_err().to_string();
        assert!(
            error.starts_with("--exclude: 'a[b' is no pattern"),
            "{error}"
        );
        let mut frozen = Frozen::default();
        assert!(frozen.add_file(path("d"), b"\xff").is_err());
        frozen.add_file(path("d"), b"ok\n[z-a]\n").unwrap();
        let error = Excludes::new(&frozen).unwrap_err().to_string();
        assert!(error.starts_with("d/.labproxyignore: '[z-a]'"), "{error}");
        frozen.files.insert(path("d"), "x".repeat(PATTERNS_MAX + 1));
        assert!(matches!(
            Excludes::new(&frozen),
            Err(BadPattern::TooMany(_))
        ));
    }

    #[test]
    fn flags_decide_before_files_and_these_before_the_configuration() {
        let mut frozen = Frozen {
            flags: vec!["!keep.log".to_owned(), "flag".to_owned()],
            configured: vec!["*.log".to_owned(), "conf".to_owned()],
            files: BTreeMap::new(),
        };
        frozen
            .add_file(RelPath::ROOT, b"\xef\xbb\xbf*.tmp\r\n!conf\n")
            .unwrap();
        frozen
            .add_file(path("d"), b"!in.tmp\n/own\nconf\n")
            .unwrap();
        let excludes = Excludes::new(&frozen).unwrap();
        for (at, excluded) in [
            ("a.log", true),
            ("d/keep.log", false),
            ("x.tmp", true),
            ("d/in.tmp", false),
            ("conf", false),
            ("d/conf", true),
            ("d/own", true),
            ("own", false),
            ("flag/below/it", true),
            ("keep", false),
        ] {
            assert_eq!(excludes.is_excluded(&path(at), false), excluded, "{at}");
        }
    }
}
