//! A push that has begun: the tree that the other end had and the one that it shall have, in the
//! mirror's directory, from before the first step until both ends agree.
//!
//! A push that was cut off leaves the other end with a tree that is neither. The next one finds here
//! between which two it is, and so tells the cut push from what an agent did meanwhile.

use std::path::Path;

use super::agreed::Agreed;
use super::state::StateError;
use super::two_trees::TwoTrees;
use crate::tree::directory::Directory;
use crate::tree::limits::Limits;

/// Its head says what was agreed when the push began.
const FILE: TwoTrees = TwoTrees {
    name: "pushing",
    mark: b"labproxy push begun 1\n",
};
const HASH: usize = 32;

/// The two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pushing {
    /// What the other end had, whole.
    pub(super) before: Directory,
    /// What it shall have, but for what a push leaves alone.
    pub(super) wanted: Directory,
}

impl Pushing {
    /// Reads what a push that was cut off has left. What was written before the ends agreed on
    /// something else says nothing any more.
    ///
    /// # Errors
    /// When it cannot be read, or is not what was written.
    pub(super) fn read(
        directory: &Path,
        agreed: Option<&Agreed>,
        limits: &Limits,
    ) -> Result<Option<Self>, StateError> {
        Ok(FILE
            .read(directory, limits)?
            .filter(|(basis, _)| *basis == basis_of(agreed))
            .map(|(_, [before, wanted])| Self { before, wanted }))
    }

    /// Writes it; durable once this returns, and not before may the other end be changed.
    ///
    /// # Errors
    /// When it cannot be written; what a push before it left stands then.
    pub(super) fn begin(
        &self,
        directory: &Path,
        agreed: Option<&Agreed>,
    ) -> Result<(), StateError> {
        let basis = basis_of(agreed);
        FILE.write(directory, &basis, [&self.before, &self.wanted])
    }

    /// Whether a push began that did not end.
    pub(super) fn is_there(directory: &Path) -> bool {
        FILE.path_in(directory).symlink_metadata().is_ok()
    }

    /// Both ends agree: no push is under way.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub(super) fn end(directory: &Path) -> Result<(), StateError> {
        FILE.remove(directory)
    }
}

/// What was agreed when a push began, in 32 bytes.
fn basis_of(agreed: Option<&Agreed>) -> [u8; HASH] {
    let mut hasher = blake3::Hasher::new();
    for tree in agreed.iter().flat_map(|agreed| [&agreed.here, &agreed.far]) {
        hasher.update(&tree.hash().0);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::content::ContentId;
    use crate::tree::entry::{Entry, File, Seen};
    use crate::tree::path::Name;

    /// It is read as it was written, for what was agreed then only, and no other bytes are taken for
    /// it.
    #[test]
    fn m64_a_push_that_began_is_known_until_the_ends_agree() {
        let place = tempfile::tempdir().unwrap();
        let limits = Limits::default();
        assert_eq!(Pushing::read(place.path(), None, &limits).unwrap(), None);
        let file = Entry::File(File {
            size: 1,
            executable: true,
            content: ContentId::of(b"x"),
            seen: Seen::default(),
        });
        let wanted = vec![(Name::new(&b"x"[..]).unwrap(), file)];
        let pushing = Pushing {
            before: Directory::empty(),
            wanted: Directory::new(wanted, Seen::default()).unwrap(),
        };
        pushing.begin(place.path(), None).unwrap();
        let read = Pushing::read(place.path(), None, &limits).unwrap();
        assert_eq!(read.as_ref(), Some(&pushing));
        let agreed = Agreed {
            here: pushing.wanted.clone(),
            far: pushing.wanted,
        };
        let stale = Pushing::read(place.path(), Some(&agreed), &limits);
        assert_eq!(stale.unwrap(), None);
        let path = FILE.path_in(place.path());
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            std::fs::write(&path, &bent).unwrap();
            assert!(Pushing::read(place.path(), None, &limits).is_err(), "{at}");
        }
        Pushing::end(place.path()).unwrap();
        assert_eq!(Pushing::read(place.path(), None, &limits).unwrap(), None);
    }
}
