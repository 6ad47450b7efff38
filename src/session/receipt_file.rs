//! The file that `--receipt` names: checked before the session, written whole or not at all.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::report::Failure;

/// A place that was found writable.
#[derive(Debug)]
pub struct ReceiptFile {
    path: PathBuf,
    /// A device or a pipe, open since the check: it is written to, not replaced, its reader sees no
    /// early end, and what takes its place afterwards is not trusted.
    in_place: Option<fs::File>,
}

impl ReceiptFile {
    /// Checks that a receipt can be written there, by making and removing a file beside it.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(path: &Path) -> Result<Self, Failure> {
        let absolute = std::path::absolute(path).map_err(|error| refused(path, &error))?;
        match fs::metadata(&absolute) {
            Ok(meta) if meta.is_dir() => {
                return Err(Failure::usage(format!(
                    "the receipt cannot be written to {}: it is a directory",
                    path.display()
                )));
            }
            Ok(meta) if meta.is_file() => {
                fs::OpenOptions::new()
                    .append(true)
                    .open(&absolute)
                    .map_err(|error| refused(path, &error))?;
            }
            Ok(_) => {
                let open = in_place(&absolute).map_err(|error| refused(path, &error))?;
                return Ok(Self {
                    path: absolute,
                    in_place: Some(open),
                });
            }
            Err(_) => {}
        }
        beside(&absolute).map_err(|error| refused(path, &error))?;
        Ok(Self {
            path: absolute,
            in_place: None,
        })
    }

    /// Writes `text`: a new file in place of an old one; a device or pipe is written to as it is.
    ///
    /// # Errors
    /// When it cannot be written; an old file is then unchanged.
    pub fn write(&self, text: &[u8]) -> Result<(), Failure> {
        self.replace(text).map_err(|error| {
            Failure::because(
                format!("the receipt cannot be written to {}", self.path.display()),
                &error,
            )
        })
    }

    fn replace(&self, text: &[u8]) -> std::io::Result<()> {
        if let Some(mut open) = self.in_place.as_ref() {
            return open.write_all(text);
        }
        let mut file = beside(&self.path)?;
        file.write_all(text)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Opens a device or pipe; a pipe that nobody reads is an error, not something to wait for.
fn in_place(path: &Path) -> std::io::Result<fs::File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
        if errno == Errno::NXIO {
            std::io::Error::other("nobody reads that pipe; start its reader first")
        } else {
            errno.into()
        }
    })?;
    // Only the opening must not wait: a receipt may be longer than a pipe is.
    rustix::fs::fcntl_setfl(&file, OFlags::WRONLY)?;
    Ok(file.into())
}

/// A new private file in the same directory, removed unless it is renamed.
fn beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    tempfile::Builder::new()
        .prefix(".labproxy-receipt-")
        .tempfile_in(directory)
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!(
        "the receipt cannot be written to {}: {error}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cannot be written is refused before the start; an old receipt is replaced whole.
    #[test]
    fn a_receipt_place_is_checked_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |path: &Path| ReceiptFile::check(path).unwrap_err().message().to_owned();
        assert!(refused(directory.path()).contains("is a directory"));
        assert!(refused(&directory.path().join("no/such/r.json")).contains("No such file"));
        let path = directory.path().join("r.json");
        let file = ReceiptFile::check(&path).unwrap();
        assert!(!path.exists(), "the check leaves nothing behind");
        file.write(b"one, longer").unwrap();
        file.write(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// A pipe without a reader is refused before the start; with one it is written to.
    #[test]
    fn a_pipe_needs_its_reader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let refused = ReceiptFile::check(&path).unwrap_err();
        assert!(refused.message().contains("start its reader first"));
        let reader = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        let reader = fs::File::from(reader.unwrap());
        let receipt = ReceiptFile::check(&path).unwrap();
        receipt.write(b"text").unwrap();
        drop(receipt);
        assert_eq!(std::io::read_to_string(reader).unwrap(), "text");
    }

    /// A pipe that an agent made in place of the receipt is replaced: nobody waits for its reader.
    #[test]
    fn a_pipe_in_place_of_a_receipt_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        let file = ReceiptFile::check(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        file.write(b"text").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }
}
