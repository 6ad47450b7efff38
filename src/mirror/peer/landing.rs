//! Contents that another program moves: where it reads and writes at the other end, and whether what
//! it brought there is what was meant.

use std::path::PathBuf;

use super::{Peer, PeerError, Progress, Rule, unasked};
use crate::tree::path::RelPath;
use crate::wire::bytes::ByteString;
use crate::wire::mirror::{ASKED_BYTES_MAX, ASKED_MAX, FromMirror, Landed, ToMirror};

/// Longest path of a place, bytes: what Linux takes.
const PLACE_MAX: usize = 4_096;

/// Where things are at the other end. Only that end's own program is given these paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The root.
    pub root: PathBuf,
    /// The empty directory for what is brought, where one was asked for.
    pub landing: Option<PathBuf>,
}

impl Peer {
    /// Asks where the root is, and has an empty directory made beside the tree where `landing`.
    ///
    /// # Errors
    /// When it cannot be made, or the answer is no path.
    pub fn locate(&mut self, landing: bool) -> Result<Located, PeerError> {
        self.line.say(&ToMirror::Locate { landing })?;
        let (root, made) = match self.line.hear()? {
            FromMirror::Located { root, landing } => (root, landing),
            other => return Err(unasked(other)),
        };
        if made.is_some() != landing {
            return Err(Rule::Place.into());
        }
        Ok(Located {
            root: place(&root)?,
            landing: made.as_ref().map(place).transpose()?,
        })
    }

    /// Has files that were brought there proven; gives those that are not what they shall be.
    ///
    /// # Errors
    /// When the other end is lost.
    pub fn landed(
        &mut self,
        files: &[Landed],
        progress: Progress<'_>,
    ) -> Result<Vec<RelPath>, PeerError> {
        let mut unproven = Vec::new();
        let mut rest = files;
        while !rest.is_empty() {
            let mut bytes: usize = 0;
            let fits = |landed: &&Landed| {
                bytes = bytes.saturating_add(landed.path.as_bytes().len());
                bytes < ASKED_BYTES_MAX
            };
            let count = rest.iter().take(ASKED_MAX).take_while(fits).count().max(1);
            let (batch, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            rest = after;
            self.line.say(&ToMirror::Landed {
                files: batch.to_vec(),
            })?;
            let have = loop {
                match self.line.hear()? {
                    FromMirror::Working { entries, bytes } => progress(entries, bytes),
                    FromMirror::Staged { have } => break have,
                    other => return Err(unasked(other)),
                }
            };
            let missing = batch
                .iter()
                .zip(0..)
                .filter(|(_, index)| have.binary_search(index).is_err());
            unproven.extend(missing.map(|(landed, _)| landed.path.clone()));
        }
        Ok(unproven)
    }
}

fn place(path: &ByteString) -> Result<PathBuf, PeerError> {
    let bytes = path.as_bytes();
    if bytes.first() != Some(&b'/') || bytes.len() > PLACE_MAX || bytes.contains(&0) {
        return Err(Rule::Place.into());
    }
    Ok(path.to_path_buf())
}
