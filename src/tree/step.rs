//! One change of a tree. A list of steps brings a tree to another one; whoever executes them checks
//! each against what its own last scan saw in that place, and leaves alone what has changed since.

use serde::{Deserialize, Serialize};

use super::entry::{File, LinkText};
use super::path::RelPath;

/// A change of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Makes a directory where nothing stands.
    MakeDirectory {
        /// Where.
        path: RelPath,
    },
    /// Renames a file, a symlink or a whole directory to a place where nothing stands.
    Move {
        /// From where.
        from: RelPath,
        /// To where.
        to: RelPath,
    },
    /// Makes a file of the content that another file of the tree has; it replaces the file or
    /// symlink that the scan saw there, if one.
    Copy {
        /// Which file has the content.
        from: RelPath,
        /// Where the new one stands.
        to: RelPath,
        /// What it is then.
        file: File,
    },
    /// Makes a file of a content that was received; replaces as [`Self::Copy`] does.
    Write {
        /// Where.
        path: RelPath,
        /// What it is then.
        file: File,
    },
    /// Makes a symlink; replaces as [`Self::Copy`] does.
    Link {
        /// Where.
        path: RelPath,
        /// Its text.
        text: LinkText,
    },
    /// Sets or clears the executable bit of a file whose content stays.
    SetExecutable {
        /// Which file.
        path: RelPath,
        /// Whether it is executable then.
        executable: bool,
    },
    /// Removes what is no directory.
    Remove {
        /// What.
        path: RelPath,
    },
    /// Removes a directory that is empty by now.
    RemoveDirectory {
        /// Which.
        path: RelPath,
    },
}

impl Step {
    /// The path that is another one after the step.
    pub const fn target(&self) -> &RelPath {
        match self {
            Self::MakeDirectory { path }
            | Self::Write { path, .. }
            | Self::Link { path, .. }
            | Self::SetExecutable { path, .. }
            | Self::Remove { path }
            | Self::RemoveDirectory { path } => path,
            Self::Move { to, .. } | Self::Copy { to, .. } => to,
        }
    }

    /// Whether it removes something for good.
    pub const fn deletes(&self) -> bool {
        match self {
            Self::Remove { .. } | Self::RemoveDirectory { .. } => true,
            Self::MakeDirectory { .. }
            | Self::Move { .. }
            | Self::Copy { .. }
            | Self::Write { .. }
            | Self::Link { .. }
            | Self::SetExecutable { .. } => false,
        }
    }
}
