//! The configured credential, looked for in what a push would send.

use std::fmt;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::error::{End, MirrorError};
use super::pair::NAMED_MAX;
use super::secrets::holds_secret;
use crate::secret::Credential;
use crate::tree::content::ContentId;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;
use crate::tree::root::Root;
use crate::tree::scan::Scan;
use crate::tree::stamp::Stamp;

/// A credential that no file of a push may hold.
pub struct Canary(Arc<Credential>);

impl Canary {
    /// Looks for this one.
    pub const fn new(credential: Arc<Credential>) -> Self {
        Self(credential)
    }

    /// The files whose content would be sent and holds the credential, the first ones.
    ///
    /// # Errors
    /// When one cannot be read as it was scanned: then nobody knows what it holds.
    pub(super) fn find(
        &self,
        root: &Root,
        here: &Scan,
        wanted: &[(ContentId, u64)],
    ) -> Result<Vec<RelPath>, MirrorError> {
        let wanted: std::collections::HashSet<_> = wanted.iter().map(|(id, _)| *id).collect();
        let mut places = Vec::new();
        here.tree.walk(&mut |path, entry| {
            if let Entry::File(file) = entry
                && wanted.contains(&file.content)
            {
                places.push((path.clone(), file.content));
            }
        });
        let mut found = Vec::new();
        let mut clean = std::collections::HashSet::new();
        for (path, content) in places {
            if found.len() >= NAMED_MAX {
                break;
            }
            if clean.contains(&content) {
                continue;
            }
            if self.is_in(root, here, &path)? {
                found.push(path);
            } else {
                clean.insert(content);
            }
        }
        Ok(found)
    }

    /// Whether a content holds it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn holds(&self, content: impl std::io::Read) -> std::io::Result<bool> {
        holds_secret(content, &[self.0.expose()])
    }

    fn is_in(&self, root: &Root, here: &Scan, path: &RelPath) -> Result<bool, MirrorError> {
        let incomplete = |why: String| MirrorError::Incomplete {
            end: End::Local,
            problems: vec![(path.clone(), why)],
            count: 1,
        };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = root.open_at(path, flags, Mode::empty());
        let opened = opened.map_err(|error| incomplete(error.to_string()))?;
        let seen = rustix::fs::fstat(&opened).map_err(|error| incomplete(error.to_string()))?;
        let was = here.stamps.get(path);
        if !was.is_some_and(|was| Stamp::of(&seen).is_same_file(was)) {
            return Err(incomplete("it changed while it was read".to_owned()));
        }
        self.holds(std::fs::File::from(opened))
            .map_err(|error| incomplete(error.to_string()))
    }
}

/// Never the credential.
impl fmt::Debug for Canary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Canary")
    }
}
