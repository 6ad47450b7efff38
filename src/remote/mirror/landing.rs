//! Contents that another program brought: files of its own in a directory of ours, outside of the
//! tree and of every other user's reach. None is used that has not the content which is said.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, Mode, OFlags};

use crate::tree::content::ContentId;
use crate::tree::path::RelPath;
use crate::tree::root::Root;
use crate::tree::scan::Progress;
use crate::wire::mirror::Landed;

/// So much is read at once.
const PART: usize = 256 * 1024;

/// The directory for what is brought.
#[derive(Debug)]
pub(super) struct Landing {
    path: PathBuf,
    root: Root,
    /// Where each content that was proven lies.
    proven: HashMap<ContentId, RelPath>,
}

impl Landing {
    /// Makes it, empty: what an earlier run left there is removed.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn make(path: &Path) -> Result<Self, String> {
        let cannot = |error: &dyn std::fmt::Display| {
            let shown = path.as_os_str().as_encoded_bytes().escape_ascii();
            format!("{shown} cannot be made for what rsync brings: {error}")
        };
        Self::remove(path).map_err(|error| cannot(&error))?;
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(|error| cannot(&error))?;
        Ok(Self {
            path: path.to_owned(),
            root: Root::open(path).map_err(|error| cannot(&error))?,
            proven: HashMap::new(),
        })
    }

    /// Removes it, with all that is in it. That there is none is no error.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub(super) fn remove(path: &Path) -> io::Result<()> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a file has the content that it shall have; it is known from then on.
    pub(super) fn prove(&mut self, landed: &Landed, counters: &Progress) -> bool {
        let hashed = self.file(&landed.path, landed.size);
        let hashed = hashed.and_then(|file| hash(file, landed.size, counters));
        let is_it = hashed.is_ok_and(|content| content == landed.content);
        if is_it {
            self.proven.insert(landed.content, landed.path.clone());
        }
        is_it
    }

    /// A content that was proven; nothing when none of this id was. It is proven again by whoever
    /// writes it.
    pub(super) fn read(&self, content: ContentId, size: u64) -> io::Result<Option<File>> {
        let path = self.proven.get(&content);
        path.map(|path| self.file(path, size)).transpose()
    }

    /// A regular file of this size.
    fn file(&self, path: &RelPath, size: u64) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.root.open_at(path, flags, Mode::empty())?;
        let seen = rustix::fs::fstat(&opened)?;
        let is_file = FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile;
        if is_file && u64::try_from(seen.st_size) == Ok(size) {
            return Ok(File::from(opened));
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn hash(mut file: File, size: u64, counters: &Progress) -> io::Result<ContentId> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; PART];
    let mut left = size;
    loop {
        let count = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if count == 0 {
            break;
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        counters.bytes.fetch_add(count, Ordering::Relaxed);
        // Whatever makes it longer now makes it another content.
        left = left.checked_sub(count).ok_or(io::ErrorKind::InvalidData)?;
    }
    counters.entries.fetch_add(1, Ordering::Relaxed);
    Ok(ContentId(*hasher.finalize().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the very content is taken: no other bytes, no other length, no link to it, nothing that
    /// is no file.
    #[test]
    fn only_what_was_said_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("landing");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("left"), "by an earlier run").unwrap();
        let mut landing = Landing::make(&path).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        for (name, text) in [("good", "abc"), ("other", "abd"), ("longer", "abcd")] {
            std::fs::write(path.join(name), text).unwrap();
        }
        let outside = place.path().join("outside");
        std::fs::write(&outside, "abc").unwrap();
        std::os::unix::fs::symlink(&outside, path.join("link")).unwrap();
        std::os::unix::fs::symlink(place.path(), path.join("up")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path.join("fifo"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let content = ContentId::of(b"abc");
        let mut prove = |name: &str| {
            let landed = Landed {
                path: RelPath::new(name.as_bytes()).unwrap(),
                content,
                size: 3,
            };
            landing.prove(&landed, &Progress::default())
        };
        for bad in ["other", "longer", "link", "up/outside", "fifo", "absent"] {
            assert!(!prove(bad), "{bad}");
        }
        assert!(landing.read(content, 3).unwrap().is_none());
        let mut prove = |name: &str| {
            let path = RelPath::new(name.as_bytes()).unwrap();
            let landed = Landed {
                path,
                content,
                size: 3,
            };
            landing.prove(&landed, &Progress::default())
        };
        assert!(prove("good"));
        assert!(landing.read(content, 3).unwrap().is_some());
        Landing::remove(&path).unwrap();
        Landing::remove(&path).unwrap();
        assert!(!path.exists());
    }
}
