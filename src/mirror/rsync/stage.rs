//! A push: rsync brings files into a directory beside the other end's tree, where that end proves
//! them before a step uses one.

use std::path::Path;

use super::arguments::list;
use super::fetch::beside;
use super::way::{Direction, Order};
use super::{Rsync, RsyncError};
use crate::mirror::error::MirrorError;
use crate::mirror::pair::NAMED_MAX;
use crate::mirror::peer::{Peer, PeerError, Rule};
use crate::mirror::progress::{Amount, Progress};
use crate::wire::mirror::Landed;

/// Most that an honest rsync says while it takes files, for each and in all: the sums of an older
/// version of a file, of 8 GiB at the most, have 20 bytes for each block of its square root.
const SAID_FILE: u64 = 8 * 1024 * 1024;
const SAID_ALL: u64 = 1024 * 1024;

impl Rsync {
    /// Has files of the tree below `root`, a path of this machine, brought to the other end. Gives
    /// how many bytes of contents were sent.
    ///
    /// # Errors
    /// When rsync does not do it, or a file did not arrive as it was read before: nothing of the
    /// other end's tree was changed then.
    pub fn stage(
        &mut self,
        peer: &mut Peer,
        root: &Path,
        files: &[Landed],
        progress: &dyn Progress,
    ) -> Result<u64, MirrorError> {
        if files.is_empty() {
            return Ok(0);
        }
        let located = peer.locate(true)?;
        let landing = located.landing.ok_or(PeerError::Rule(Rule::Place))?;
        let all: u64 = files.iter().map(|landed| landed.size).sum();
        let count = u64::try_from(files.len()).unwrap_or(u64::MAX);
        let order = Order {
            here: root,
            there: &landing,
            direction: Direction::Push(&located.root),
            list: list(files.iter().map(|landed| &landed.path)),
            most: SAID_FILE.saturating_mul(count).saturating_add(SAID_ALL),
            passed: &|went, _| {
                progress.at(Amount {
                    entries: 0,
                    bytes: went.min(all),
                });
            },
        };
        let moved = beside(peer, || self.carry(order))??;
        let mut unproven = peer.landed(files, &mut |_, _| {})?;
        if !unproven.is_empty() {
            let count = u64::try_from(unproven.len()).unwrap_or(u64::MAX);
            unproven.truncate(NAMED_MAX);
            let said = moved.said;
            let paths = unproven;
            return Err(RsyncError::Unproven { paths, count, said }.into());
        }
        // Where it does not say, all may have been sent.
        Ok(moved.literal.unwrap_or(all))
    }
}
