//! What both ends had after the last push or pull that ended well: two trees, in the mirror's
//! directory.
//!
//! They are the same but for what is held back here, and what is left out of a push. A push is
//! refused when the other end is no longer the one; a pull tells by the other what was edited here.

use std::path::Path;

use super::state::StateError;
use super::two_trees::TwoTrees;
use crate::tree::directory::Directory;
use crate::tree::limits::Limits;

const FILE: TwoTrees = TwoTrees {
    name: "agreed",
    mark: b"labproxy agreed trees 1\n",
};

/// The two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The tree of this end, without what is excluded.
    pub here: Directory,
    /// The tree of the other end, without what is excluded.
    pub far: Directory,
}

impl Agreed {
    /// Reads what was agreed; nothing before the first push or pull.
    ///
    /// # Errors
    /// When it cannot be read, or is not what was written.
    pub fn read(directory: &Path, limits: &Limits) -> Result<Option<Self>, StateError> {
        let read = FILE.read::<0>(directory, limits)?;
        Ok(read.map(|([], [here, far])| Self { here, far }))
    }

    /// Writes it; durable once this returns.
    ///
    /// # Errors
    /// When it cannot be written; what was agreed before stands then.
    pub fn write(&self, directory: &Path) -> Result<(), StateError> {
        FILE.write(directory, &[], [&self.here, &self.far])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::content::ContentId;
    use crate::tree::entry::{Entry, File, Seen};
    use crate::tree::path::Name;

    /// What was agreed is read as it was written, and no other bytes are taken for it.
    #[test]
    fn what_was_agreed_is_read_back() {
        let place = tempfile::tempdir().unwrap();
        let limits = Limits::default();
        assert_eq!(Agreed::read(place.path(), &limits).unwrap(), None);
        let file = Entry::File(File {
            size: 1,
            executable: true,
            content: ContentId::of(b"x"),
            seen: Seen::default(),
        });
        let far = vec![(Name::new(&b"x"[..]).unwrap(), file)];
        let agreed = Agreed {
            here: Directory::empty(),
            far: Directory::new(far, Seen::default()).unwrap(),
        };
        agreed.write(place.path()).unwrap();
        let read = Agreed::read(place.path(), &limits).unwrap();
        assert_eq!(read, Some(agreed));
        let path = FILE.path_in(place.path());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[40] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(Agreed::read(place.path(), &limits).is_err());
    }
}
