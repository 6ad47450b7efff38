//! The other end of a mirror: what it is asked, and what of its answers is believed.
//!
//! Nothing is. A listing must have the hash that its parent's listing gave it, a content the id
//! that its listing gave it; both are bounded by limits of ours before they are kept. An end that
//! breaks a rule is left at once, and what it broke is said.

mod contents;
mod landing;
mod line;
mod patches;
mod tree;

pub use self::contents::{Sent, Sink, Source, Wanted};
pub use self::landing::Located;
pub use self::line::{Input, Output};
pub use self::patches::Older;
pub use self::tree::Known;

use std::time::Duration;

use super::store::StoreError;
use crate::tree::content::{ContentId, Groups};
use crate::tree::limits::Limits;
use crate::tree::mirror_id::MirrorId;
use crate::tree::path::RelPath;
use crate::tree::step::Step;
use crate::wire::bytes::ByteString;
use crate::wire::frame::FrameError;
use crate::wire::mirror::{
    FromMirror, Glimpse, HERE_MS, Open, Ran, RootState, SILENCE_MS, Scanned, ToMirror,
};

use self::line::Line;

/// Steps in one message: with paths of 4 KiB each still within a frame.
const STEPS: usize = 128;

/// Longest reason of the other end that is passed on, characters: a screenful.
const WHY_MAX: usize = 2_000;

/// Why the other end is left.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It said nothing for too long.
    #[error("the other end said nothing for {} s", SILENCE_MS / 1_000)]
    Silent,
    /// It is gone.
    #[error("the other end has ended")]
    Ended,
    /// The channel to it is broken.
    #[error("the channel to the other end is broken: {0}")]
    Broken(std::io::Error),
    /// It cannot do what it was asked, and says why.
    #[error("{0}")]
    Refused(String),
    /// It broke a rule: nothing that it said is used.
    #[error("the other end broke a rule, and nothing of what it said is used: {0}")]
    Rule(Rule),
    /// What it has is more than this mirror may hold.
    #[error("the tree there is beyond this mirror's limits: {0}")]
    Limit(String),
    /// What came cannot be stored here.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is to be sent cannot be read here.
    #[error("a file cannot be read here: {0}")]
    Here(#[from] std::io::Error),
}

/// The rules that an honest end keeps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// Frames are well-formed and of a known kind.
    #[error("a frame that is none ({0})")]
    Frame(#[from] FrameError),
    /// Each order has one kind of answer.
    #[error("an answer that was not asked for")]
    Order,
    /// A listing has the hash that its parent says.
    #[error("a listing whose hash is not the one that stands above it")]
    Listing,
    /// Groups merge to the content's id.
    #[error("groups that are not of the content")]
    Groups,
    /// Parts of contents come in order, and not longer than asked for.
    #[error("a part of a content that was not asked for")]
    Parts,
    /// A content has one size.
    #[error("a content of two sizes")]
    Size,
    /// Numbers are of what was asked.
    #[error("a number of something that was not asked for")]
    Index,
    /// A place is a path.
    #[error("a place that is no absolute path")]
    Place,
    /// A message may be repeated only so often.
    #[error("messages without end")]
    Endless,
}

impl From<Rule> for PeerError {
    fn from(rule: Rule) -> Self {
        Self::Rule(rule)
    }
}

/// Tells how far the other end is: entries or steps, and bytes.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// The other end, asked over two descriptors or a channel of ssh.
pub struct Peer {
    line: Line,
    limits: Limits,
    packs: bool,
}

impl Peer {
    /// Speaks over these; what a channel's greeting is has been read. `packs` says whether contents
    /// are packed on the way.
    pub fn new(
        input: Box<dyn Input>,
        output: Box<dyn Output>,
        limits: Limits,
        packs: bool,
    ) -> Self {
        Self {
            line: Line::new(input, output),
            limits,
            packs,
        }
    }

    /// Tells the other end that we are here, whatever else takes time, until it is left.
    ///
    /// # Errors
    /// When no thread can be had for it.
    pub fn kept_alive(mut self) -> std::io::Result<Self> {
        self.line.keep_alive(Duration::from_millis(HERE_MS))?;
        Ok(self)
    }

    /// Opens the root; the first thing that is asked.
    ///
    /// # Errors
    /// When no mirror may be there, or somebody works on it.
    pub fn open(
        &mut self,
        root: ByteString,
        workdir: ByteString,
        mark: MirrorId,
    ) -> Result<RootState, PeerError> {
        let limits = self.limits;
        self.line.say(&ToMirror::Open(Open {
            root,
            workdir,
            mark,
            limits,
        }))?;
        match self.line.hear()? {
            FromMirror::Opened(state) => Ok(state),
            other => Err(unasked(other)),
        }
    }

    /// Makes the root this mirror's. `any`: its content was compared.
    ///
    /// # Errors
    /// When it is not free to be taken.
    pub fn take(&mut self, any: bool) -> Result<(), PeerError> {
        self.line.say(&ToMirror::Take { any })?;
        match self.line.hear()? {
            FromMirror::Taken => Ok(()),
            other => Err(unasked(other)),
        }
    }

    /// What these files look like there, one for each.
    ///
    /// # Errors
    /// When it cannot be said.
    pub fn glance(&mut self, files: &[RelPath]) -> Result<Vec<Option<Glimpse>>, PeerError> {
        let files = files.to_vec();
        let asked = files.len();
        self.line.say(&ToMirror::Glance { files })?;
        match self.line.hear()? {
            FromMirror::Glanced { seen } if seen.len() == asked => Ok(seen),
            FromMirror::Glanced { .. } => Err(Rule::Index.into()),
            other => Err(unasked(other)),
        }
    }

    /// Has the whole tree read.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn scan(&mut self, progress: Progress<'_>) -> Result<Scanned, PeerError> {
        self.line.say(&ToMirror::Scan)?;
        loop {
            match self.line.hear()? {
                FromMirror::Working { entries, bytes } => progress(entries, bytes),
                FromMirror::Scanned(scanned) => return self.within_limits(scanned),
                other => return Err(unasked(other)),
            }
        }
    }

    /// What the other end counts is checked again, as it is listed; this only says it early.
    fn within_limits(&self, scanned: Scanned) -> Result<Scanned, PeerError> {
        let (totals, limits) = (scanned.totals, self.limits);
        if totals.entries > limits.entries {
            let (has, most) = (totals.entries, limits.entries);
            return Err(PeerError::Limit(format!(
                "{has} entries, and {most} is the most"
            )));
        }
        if totals.bytes > limits.tree {
            let (has, most) = (totals.bytes, limits.tree);
            return Err(PeerError::Limit(format!(
                "{has} bytes, and {most} is the most"
            )));
        }
        Ok(scanned)
    }

    /// The values of a large content's groups, proven; nothing when the other end has none.
    ///
    /// # Errors
    /// When they are not of the content.
    pub fn groups(&mut self, content: ContentId, size: u64) -> Result<Option<Groups>, PeerError> {
        self.line.say(&ToMirror::Groups { content })?;
        let most =
            usize::try_from(size.div_ceil(crate::tree::content::GROUP)).unwrap_or(usize::MAX);
        let mut all = Vec::new();
        loop {
            let (values, last) = match self.line.hear()? {
                FromMirror::Groups { values, last } => (values, last),
                other => return Err(unasked(other)),
            };
            let (whole, rest) = values.as_chunks::<32>();
            all.extend_from_slice(whole);
            if !rest.is_empty() || all.len() > most || (whole.is_empty() && !last) {
                return Err(Rule::Groups.into());
            }
            if last {
                break;
            }
        }
        if all.is_empty() {
            return Ok(None);
        }
        let groups = Groups::new(size, all).ok_or(Rule::Groups)?;
        if groups.content() == content {
            Ok(Some(groups))
        } else {
            Err(Rule::Groups.into())
        }
    }

    /// Has steps executed, in order, on what the last scan saw.
    ///
    /// # Errors
    /// When the other end is lost; what became of the steps only a new scan says then.
    pub fn run(&mut self, steps: &[Step], progress: Progress<'_>) -> Result<Ran, PeerError> {
        for part in steps.chunks(STEPS) {
            self.line.say(&ToMirror::Steps(part.to_vec()))?;
        }
        self.line.say(&ToMirror::Run)?;
        loop {
            match self.line.hear()? {
                FromMirror::Working { entries, bytes } => progress(entries, bytes),
                FromMirror::Ran(ran) => return Ok(ran),
                other => return Err(unasked(other)),
            }
        }
    }
}

/// What it says for a person is read by one.
fn shortened(mut why: String) -> String {
    if let Some((end, _)) = why.char_indices().nth(WHY_MAX) {
        why.truncate(end);
        why.push('…');
    }
    why
}

/// Nothing, where the other end may say that it does not have the one thing that it was asked for.
fn declined<T>(answer: FromMirror<'_>) -> Result<Option<T>, PeerError> {
    match answer {
        FromMirror::Gone { wish: 0 } => Ok(None),
        FromMirror::Gone { .. } => Err(Rule::Index.into()),
        other => Err(unasked(other)),
    }
}

fn unasked(answer: FromMirror<'_>) -> PeerError {
    match answer {
        FromMirror::Refused { why } => PeerError::Refused(shortened(why)),
        FromMirror::Opened(_)
        | FromMirror::Taken
        | FromMirror::Working { .. }
        | FromMirror::Scanned(_)
        | FromMirror::Listing { .. }
        | FromMirror::Groups { .. }
        | FromMirror::Pieces(_)
        | FromMirror::Gone { .. }
        | FromMirror::Done
        | FromMirror::Staged { .. }
        | FromMirror::Located { .. }
        | FromMirror::Glanced { .. }
        | FromMirror::Signature { .. }
        | FromMirror::Delta { .. }
        | FromMirror::Ran(_) => Rule::Order.into(),
    }
}
