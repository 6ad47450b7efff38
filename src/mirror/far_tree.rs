//! The other end's tree, read there and learned here.

use super::error::{End, MirrorError};
use super::pair::NAMED_MAX;
use super::peer::{Known, Peer};
use super::progress::{Amount, Phase, Progress};
use crate::tree::directory::Directory;
use crate::wire::mirror::Scanned;

/// Has the other end read its tree.
///
/// # Errors
/// When it was not read whole: a half tree says nothing of what is not in it.
pub(super) fn scan(
    peer: &mut Peer,
    phase: Phase,
    progress: &dyn Progress,
) -> Result<Scanned, MirrorError> {
    progress.begin(phase, None);
    let scanned = peer.scan(&mut |entries, bytes| progress.at(Amount { entries, bytes }))?;
    if scanned.problem_count > 0 {
        let mut problems = scanned.problems;
        problems.truncate(NAMED_MAX);
        return Err(MirrorError::Incomplete {
            end: End::Far,
            problems,
            count: scanned.problem_count,
        });
    }
    Ok(scanned)
}

/// Learns the tree that it read: what of it is in none of the trees that are known.
///
/// # Errors
/// When a listing is not what its hash says.
pub(super) fn learn(
    peer: &mut Peer,
    scanned: &Scanned,
    known: &[&Directory],
) -> Result<Directory, MirrorError> {
    Ok(peer.tree(scanned, &Known::for_root(scanned.hash, known))?)
}
