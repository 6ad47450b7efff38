//! Why a mirror did not do what it was asked: what was found, and the remedy.

use std::path::PathBuf;

use rustix::io::Errno;

use super::brakes::Brake;
use super::copy_in::CopyInError;
use super::excludes::BadPattern;
use super::journal::JournalError;
use super::peer::PeerError;
use super::rsync::{RsyncError, Where};
use super::secrets::SecretName;
use super::state::StateError;
use super::store::StoreError;
use crate::escape::escape;
use crate::tree::path::RelPath;
use crate::tree::root::RootError;

/// Which end of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The directory that the user named first: this machine's.
    Local,
    /// The other one.
    Far,
}

/// Why a mirror did nothing, or not all.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The local root is no directory.
    #[error("{}: {error}", escape(path.as_os_str().as_encoded_bytes()))]
    Root {
        /// Its path.
        path: PathBuf,
        /// What it is.
        error: RootError,
    },
    /// The local tree's file system refused.
    #[error("{} cannot be changed: {error}", escape(path.as_os_str().as_encoded_bytes()))]
    Disk {
        /// The root's path.
        path: PathBuf,
        /// Why.
        error: Errno,
    },
    /// A tree was not read whole: nothing is published or deleted by half of one.
    #[error("{} could not be read whole", end_of(*.end))]
    Incomplete {
        /// Of which end.
        end: End,
        /// What could not be read, the first ones.
        problems: Vec<(RelPath, String)>,
        /// How many there are.
        count: u64,
    },
    /// Files change at the other end faster than they can be fetched.
    #[error("files at the other end change faster than they can be fetched")]
    Changing(Vec<RelPath>),
    /// Another directory stands where the local root was.
    #[error(
        "the local directory is not the one that was mirrored: it was unmounted, replaced or made \
         anew"
    )]
    LocalReplaced,
    /// The other end's root does not exist.
    #[error("the other end does not exist; push to it first")]
    FarMissing,
    /// The other end belongs to another mirror.
    #[error("the other end belongs to another mirror or session")]
    FarOfAnother,
    /// Another directory stands where the other end's root was.
    #[error(
        "the other end is not the directory that it was: it was unmounted, replaced or made anew"
    )]
    FarReplaced,
    /// There is something at the destination of a first sync.
    #[error("{} is not empty, and nothing was ever mirrored there", end_of(*.0))]
    NotEmpty(End),
    /// The other end has changed since the ends last agreed.
    #[error("the other end has changed since the last push or pull")]
    FarChanged {
        /// What differs, the first ones.
        paths: Vec<RelPath>,
        /// How many there are.
        count: u64,
    },
    /// Something that must not be pushed is in the tree.
    #[error("the tree holds what looks like secrets")]
    Secrets(Vec<SecretName>),
    /// The configured credential is in what would be sent.
    #[error("files hold the configured credential")]
    Credential(Vec<RelPath>),
    /// Nothing waits there.
    #[error("nothing is held back there")]
    NotHeld(Vec<RelPath>),
    /// What would be replaced here was edited.
    #[error("what would be replaced here was edited since the last push or pull")]
    Edited(Vec<RelPath>),
    /// What a user brings was not put.
    #[error(transparent)]
    CopyIn(#[from] CopyInError),
    /// An exclude pattern is none.
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    /// Something that would destroy more than it should.
    #[error(transparent)]
    Brake(#[from] Brake),
    /// Not every step was done.
    #[error("{} is not what it should be", end_of(*.end))]
    Partly {
        /// Of which end.
        end: End,
        /// Paths that could not be changed, and why.
        failed: Vec<(RelPath, String)>,
        /// How many there are.
        failed_count: u64,
        /// Paths that changed meanwhile and were left alone.
        kept: Vec<(RelPath, String)>,
        /// Why the rest was not tried.
        stopped: Option<String>,
    },
    /// What was pushed is there, and its hash is another one.
    #[error("after the push the other end has not the tree that was pushed")]
    NotEqual {
        /// What differs, the first ones.
        paths: Vec<RelPath>,
        /// How many there are.
        count: u64,
    },
    /// The other end.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The system's rsync.
    #[error(transparent)]
    Rsync(#[from] RsyncError),
    /// The store here.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The mirror's state here.
    #[error(transparent)]
    State(#[from] StateError),
    /// A way of the workspace that was begun.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What can be done after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// What the user gave is wrong: nothing was tried.
    Wrong,
    /// The way to the other end is lost: it is to be made anew, and asked the same.
    Lost,
    /// An edit here can mend it.
    Edit,
    /// Somebody has to look, and decide.
    Decide,
}

impl MirrorError {
    /// What can be done.
    pub const fn class(&self) -> Class {
        match self {
            Self::Root {
                error: RootError::Missing | RootError::Symlink | RootError::NotDirectory,
                ..
            }
            | Self::Pattern(_)
            | Self::CopyIn(CopyInError::Unreadable { .. })
            | Self::NotHeld(_)
            | Self::Rsync(
                RsyncError::Absent {
                    at: Where::Here, ..
                }
                | RsyncError::TooOld {
                    at: Where::Here, ..
                }
                | RsyncError::NoVersion {
                    at: Where::Here, ..
                },
            ) => Class::Wrong,
            // With a file that was edited while it was sent, the line is in the middle of it.
            Self::Peer(
                PeerError::Silent | PeerError::Ended | PeerError::Broken(_) | PeerError::Here(_),
            ) => Class::Lost,
            Self::Incomplete {
                end: End::Local, ..
            }
            | Self::Secrets(_)
            | Self::Credential(_)
            | Self::Brake(_) => Class::Edit,
            Self::Peer(
                PeerError::Refused(_)
                | PeerError::Rule(_)
                | PeerError::Limit(_)
                | PeerError::Store(_),
            )
            | Self::Root {
                error: RootError::Io(_),
                ..
            }
            | Self::Incomplete { end: End::Far, .. }
            | Self::Rsync(_)
            | Self::CopyIn(_)
            | Self::Partly { .. }
            | Self::NotEqual { .. }
            | Self::Changing(_)
            | Self::Disk { .. }
            | Self::LocalReplaced
            | Self::FarMissing
            | Self::FarOfAnother
            | Self::FarReplaced
            | Self::NotEmpty(_)
            | Self::FarChanged { .. }
            | Self::Edited(_)
            | Self::Store(_)
            | Self::State(_)
            | Self::Journal(_) => Class::Decide,
        }
    }
}

const fn end_of(end: End) -> &'static str {
    match end {
        End::Local => "the local tree",
        End::Far => "the tree at the other end",
    }
}
