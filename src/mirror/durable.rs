//! Files that outlive a crash: written whole under another name, synced, then given their name.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::plain_file::{self, Links, PlainFileError};

/// The end of the name under which a file is written before it has its own.
pub const UNFINISHED: &str = ".unfinished";

/// Writes a file of mode 0600 so that at every instant either the old or the new one stands there,
/// and the new one for good once this returns.
///
/// # Errors
/// When it cannot be written; the old one stands then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_parts(path, &[bytes])
}

/// The same, of several parts.
///
/// # Errors
/// As [`write()`].
pub fn write_parts(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let unfinished = unfinished(path);
    let written = write_new(&unfinished, parts).and_then(|()| fs::rename(&unfinished, path));
    if let Err(error) = written {
        // What is left of it is in nobody's way, and gone with the next try.
        let _gone = fs::remove_file(&unfinished);
        return Err(error);
    }
    sync_parent(path)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    PathBuf::from(name)
}

fn write_new(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = create(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_data()
}

/// Makes a file of mode 0600 that nobody has made before.
///
/// # Errors
/// When something stands there, or it cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Removes a file, for good once this returns. That it is gone already is no error.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => sync_parent(path),
    }
}

/// Reads a regular file of at most `most` bytes; nothing when there is none.
///
/// # Errors
/// When it is something else, is longer, or cannot be read.
pub fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let (file, about) = match plain_file::open(path, Links::Refuse) {
        Ok(opened) => opened,
        Err(PlainFileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(PlainFileError::Io(error)) => return Err(error),
        Err(error @ PlainFileError::NotPlain) => return Err(io::Error::other(error)),
    };
    let mut bytes = Vec::new();
    if about.len() <= most {
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if about.len() > most || length > most {
        let error = format!("it is longer than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(Some(bytes))
}

/// Makes the directory of mode 0700, with what is above it, if it is not there. One that is there
/// must be ours alone.
///
/// # Errors
/// When it cannot be made, or others may use it.
pub fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let about = fs::symlink_metadata(path)?;
    let others = 0o077;
    let ours = about.is_dir() && about.uid() == rustix::process::geteuid().as_raw();
    if ours && about.mode() & others == 0 {
        return Ok(());
    }
    let error = "it must be a directory of yours that nobody else may use (mode 0700)";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
}

/// Opens the file of a lock, mode 0600, and makes it when there is none. Whoever locks it may write into
/// it who that is.
///
/// # Errors
/// When it cannot be opened, or is a link.
pub fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

/// Removes a directory with all that is in it. That there is none is no error.
///
/// # Errors
/// When something of it cannot be removed.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes sure that the names in the directory of `path` outlive a crash.
///
/// # Errors
/// When the disk does not take them.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
