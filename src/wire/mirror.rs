//! Messages of `labproxy-remote mirror`: the two ends of a mirror. The controller orders, the host
//! answers, and neither speaks out of turn: an order is sent when the answers to the one before it
//! are whole.
//!
//! What the host says of its tree is a list of wishes, never a fact: the controller checks each
//! listing against the hash that stood above it and each content against its id.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::bytes::ByteString;
use crate::tree::content::ContentId;
use crate::tree::directory::{Listed, Totals, TreeHash};
use crate::tree::entry::Seen;
use crate::tree::limits::Limits;
use crate::tree::mirror_id::MirrorId;
use crate::tree::path::{Name, RelPath};
use crate::tree::step::Step;

/// While an order takes time the host says [`FromMirror::Working`] this often.
pub const WORKING_MS: u64 = 1_000;
/// A host that was silent this long during an order is given up. The host's word does not change
/// it.
pub const SILENCE_MS: u64 = 30_000;
/// While it gives no order a controller says [`ToMirror::Here`] this often.
pub const HERE_MS: u64 = 20_000;
/// A controller that was silent this long is gone, with its network: its mirror's end leaves the root
/// to the next one. Several words may be late, but nobody who comes back waits for long.
pub const ABSENCE_MS: u64 = 120_000;
/// Most directories in one [`ToMirror::List`], and most wishes in one [`ToMirror::Fetch`]: with
/// names of the usual length well within a frame, and enough to keep a line of 100 MiB/s busy.
pub const ASKED_MAX: usize = 4_096;
/// Bytes of all paths in one order: with their heads within a frame.
pub const ASKED_BYTES_MAX: usize = 512 * 1024;
/// Most bytes of contents in one [`Pieces`], before they are packed.
pub const PIECES_MAX: usize = 256 * 1024;
/// Problems, kept paths and failed paths that are named; more are counted.
pub const NAMED_MAX: usize = 1_000;

/// From the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMirror<'a> {
    /// The first order: which directory. Answered by [`FromMirror::Opened`].
    Open(Open),
    /// Take the root as this mirror's: it is made when it is absent, and marked. Only an absent or
    /// empty root, or one that already is, is taken, unless `any` says that its content is known.
    /// Answered by [`FromMirror::Taken`].
    Take {
        /// Whether what is in it does not matter: the controller has compared it.
        any: bool,
    },
    /// Read the whole tree. Answered by [`FromMirror::Scanned`].
    Scan,
    /// List directories of the last scan. Answered by [`FromMirror::Listing`]s, one or more for
    /// each, in order.
    List {
        /// Which.
        directories: Vec<RelPath>,
    },
    /// Send the values of a content's groups, as the last scan has them. Answered by
    /// [`FromMirror::Groups`].
    Groups {
        /// Which content.
        content: ContentId,
    },
    /// Send contents. Answered by [`FromMirror::Pieces`] and [`FromMirror::Gone`], in the order of
    /// the wishes, then [`FromMirror::Done`].
    Fetch {
        /// Which.
        wishes: Vec<Wish>,
        /// Whether to pack what gets smaller by it.
        packs: bool,
    },
    /// These contents will be staged now. Answered by [`FromMirror::Staged`]; then come
    /// [`ToMirror::Pieces`] of those that are not, in order.
    Stage {
        /// Which, and their sizes.
        contents: Vec<(ContentId, u64)>,
    },
    /// Parts of contents that are staged, counted as in [`ToMirror::Stage`].
    #[serde(borrow)]
    Pieces(Pieces<'a>),
    /// All pieces were sent. Answered by [`FromMirror::Done`] when every content is whole.
    StageEnd,
    /// Steps, in order. Not answered.
    Steps(Vec<Step>),
    /// Execute all steps that came. Answered by [`FromMirror::Ran`].
    Run,
    /// What is staged is not needed any more. Answered by [`FromMirror::Done`].
    Unstage,
    /// Tell where the root is, for a program that moves contents by their paths. Answered by
    /// [`FromMirror::Located`].
    Locate {
        /// Whether an empty directory outside of the tree is to be made for what that program
        /// brings.
        landing: bool,
    },
    /// These files were brought into that directory. Answered by [`FromMirror::Staged`], with
    /// those that have the content which is said here.
    Landed {
        /// Where in it, which content, and its size.
        files: Vec<Landed>,
    },
    /// The controller is still there: it reads a large tree, or asks its user. Comes at any time
    /// between two orders. Not answered.
    Here,
    /// Look at these files of the tree, without reading them. Answered by [`FromMirror::Glanced`].
    Glance {
        /// Which.
        files: Vec<RelPath>,
    },
    /// Send the signature of a part of a file, as [`super::delta`] makes it. Answered by
    /// [`FromMirror::Signature`], or [`FromMirror::Gone`].
    Sign(Wish),
    /// The next part of a content that is staged, as a delta of what the tree has. Answered by
    /// [`FromMirror::Done`]; by [`FromMirror::Gone`] where it gives other bytes: then nothing was taken.
    #[serde(borrow)]
    Patch(Patch<'a>),
    /// Send what a part of a content has that these bytes have not, as [`super::delta`] says it.
    /// Answered by [`FromMirror::Delta`]; by [`FromMirror::Gone`] where it is not there any more or
    /// most of it is new.
    Delta {
        /// Which part.
        wish: Wish,
        /// Of the bytes.
        #[serde(with = "serde_bytes", borrow)]
        signature: Cow<'a, [u8]>,
    },
}

/// A file that another program brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landed {
    /// Its path below the directory for such files.
    pub path: RelPath,
    /// What it shall hold.
    pub content: ContentId,
    /// Bytes of that.
    pub size: u64,
}

/// Which directory, and within which bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The root: absolute, or relative to the login user's home; `~/` at its start is the home
    /// too.
    pub root: ByteString,
    /// The directory that holds our own state; `~/` at its start is the user's home.
    pub workdir: ByteString,
    /// Whose it is to be.
    pub mark: MirrorId,
    /// What it may hold.
    pub limits: Limits,
}

/// A part of a content that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The file that had it in the last scan.
    pub path: RelPath,
    /// Where the part begins.
    pub offset: u64,
    /// Its length.
    pub length: u64,
}

/// Parts of contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces<'a> {
    /// Which content each part is of, counted as they were asked for, and how long it is. The
    /// parts of one content come in order.
    pub parts: Vec<(u32, u32)>,
    /// Bytes of all parts together.
    pub length: u32,
    /// Whether `bytes` are packed, as one zstd frame.
    pub packed: bool,
    /// The parts, one behind the other.
    #[serde(with = "serde_bytes", borrow)]
    pub bytes: Cow<'a, [u8]>,
}

/// A part of a content that comes as a delta.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch<'a> {
    /// Which content, counted as in [`ToMirror::Stage`].
    pub content: u32,
    /// What it is a delta of.
    pub base: Wish,
    /// The delta.
    #[serde(with = "serde_bytes", borrow)]
    pub delta: Cow<'a, [u8]>,
    /// Bytes that it gives.
    pub length: u32,
    /// Their hash.
    pub hash: ContentId,
}

/// From the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromMirror<'a> {
    /// The root was looked at.
    Opened(RootState),
    /// The root is this mirror's.
    Taken,
    /// Still at it.
    Working {
        /// Entries met, or steps done.
        entries: u64,
        /// Bytes read or written.
        bytes: u64,
    },
    /// The tree was read.
    Scanned(Scanned),
    /// Entries of a directory.
    Listing {
        /// Some of them, in order.
        entries: Vec<(Name, Listed)>,
        /// Whether the directory ends here.
        last: bool,
    },
    /// Group values of a content.
    Groups {
        /// Some of them, in order: 32 bytes each, one behind the other.
        #[serde(with = "serde_bytes", borrow)]
        values: Cow<'a, [u8]>,
        /// Whether the list ends here; an empty list when the last scan has none.
        last: bool,
    },
    /// Parts of contents.
    #[serde(borrow)]
    Pieces(Pieces<'a>),
    /// A content is not there any more, as the last scan saw it.
    Gone {
        /// Which wish.
        wish: u32,
    },
    /// The order is carried out.
    Done,
    /// Which of the contents are staged already, counted as they came.
    Staged {
        /// In rising order.
        have: Vec<u32>,
    },
    /// The steps were executed.
    Ran(Ran),
    /// The order cannot be carried out; the last message.
    Refused {
        /// Why, for a person.
        why: String,
    },
    /// Where things are here.
    Located {
        /// The root, absolute.
        root: ByteString,
        /// The directory for what another program brings, absolute and empty, where one was asked
        /// for.
        landing: Option<ByteString>,
    },
    /// What the files look like, one for each in the order in which they were asked for; nothing
    /// where no regular file stands.
    Glanced {
        /// The looks.
        seen: Vec<Option<Glimpse>>,
    },
    /// The signature of a part of a file.
    Signature {
        /// The signature.
        #[serde(with = "serde_bytes", borrow)]
        signature: Cow<'a, [u8]>,
    },
    /// What a part of a content has that is new.
    Delta {
        /// The delta.
        #[serde(with = "serde_bytes", borrow)]
        delta: Cow<'a, [u8]>,
    },
}

/// What `stat` says of a file. One that was written to or replaced looks otherwise; whether one that
/// looks the same is the same only reading it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glimpse {
    /// Inode.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the content: seconds, nanoseconds.
    pub modified: (i64, u64),
    /// Last change of content or inode: seconds, nanoseconds.
    pub changed: (i64, u64),
}

/// What stands where the root is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootState {
    /// Nothing.
    Absent,
    /// An empty directory.
    Empty,
    /// A directory with something in it that no mirror has marked.
    Unmarked,
    /// This mirror's.
    Ours,
    /// Another mirror's.
    Another,
    /// It was this mirror's, and another directory stands there now: unmounted, or made anew.
    Replaced,
}

/// What a scan gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanned {
    /// The root's hash; of a tree that could not be read whole, of what could.
    pub hash: TreeHash,
    /// What was seen of the root itself.
    pub seen: Seen,
    /// How much it holds.
    pub totals: Totals,
    /// What could not be read, or not be read whole: the first ones.
    pub problems: Vec<(RelPath, String)>,
    /// How many there are.
    pub problem_count: u64,
}

/// What the steps came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Steps that were done.
    pub done: u64,
    /// Paths that were left alone since they changed after the scan, with the reason: the first
    /// ones.
    pub kept: Vec<(RelPath, String)>,
    /// How many there are.
    pub kept_count: u64,
    /// Paths that could not be changed, with the reason: the first ones.
    pub failed: Vec<(RelPath, String)>,
    /// How many there are.
    pub failed_count: u64,
    /// Why the rest was not tried: a full disk, a root that is gone.
    pub stopped: Option<String>,
}
