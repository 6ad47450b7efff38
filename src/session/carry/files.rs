//! Files of this machine that an argument names: they travel as private files of the launch.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::Refused;
use super::watch::Watch;
use crate::id::random_name;
use crate::wire::bytes::ByteString;
use crate::wire::link::PrivateFile;

/// A larger file is refused: settings, prompts and lists of servers have a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// All files of a launch together: with the arguments they must fit into one launch's message.
const ALL_BYTES_MAX: usize = 4 << 20;

/// The private files of one launch.
#[derive(Debug, Default)]
pub struct Files {
    files: Vec<PrivateFile>,
}

impl Files {
    /// Adds a file and gives the text that stands for its path.
    ///
    /// # Errors
    /// When it holds the credential, or all files together are too large.
    pub fn add(
        &mut self,
        (name, ending): (&str, &str),
        content: Vec<u8>,
        of: &str,
        watch: &Watch,
    ) -> Result<ByteString, Refused> {
        if watch.finds(&content) {
            return Err(Refused::Argument { of: of.to_owned() });
        }
        let total = self.files.iter().map(|file| file.content.len());
        if total.sum::<usize>().saturating_add(content.len()) > ALL_BYTES_MAX {
            return Err(Refused::TooLarge {
                of: of.to_owned(),
                most: ALL_BYTES_MAX,
            });
        }
        let placeholder = ByteString::from(&random_name("labproxy-file-")?);
        self.files.push(PrivateFile {
            name: format!("{name}-{}{ending}", self.files.len()),
            content,
            placeholder: placeholder.clone(),
        });
        Ok(placeholder)
    }

    /// All of them.
    pub fn into_inner(self) -> Vec<PrivateFile> {
        self.files
    }
}

/// Reads the file that an argument names; `None` when there is none here, so that the name is the
/// host's business.
///
/// # Errors
/// When it is there and cannot be read, or is too large or no file.
pub fn read_here(value: &OsStr, directory: &Path, of: &str) -> Result<Option<Vec<u8>>, Refused> {
    let path = directory.join(value);
    let unreadable = |source| Refused::File {
        of: of.to_owned(),
        path: path.clone(),
        source,
    };
    let meta = match fs::metadata(&path) {
        Ok(meta) => meta,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    if !meta.is_file() {
        return Err(unreadable(std::io::Error::other("it is not a file")));
    }
    if meta.len() > FILE_BYTES_MAX {
        return Err(Refused::TooLarge {
            of: of.to_owned(),
            most: usize::try_from(FILE_BYTES_MAX).unwrap_or(usize::MAX),
        });
    }
    fs::read(&path).map(Some).map_err(unreadable)
}

/// Whether there is nothing of that name; a name that no file could have counts too.
fn is_absence(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidFilename
            | ErrorKind::InvalidInput
    )
}

/// The workspace here and on the host.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Here, without links in it.
    pub here: PathBuf,
}

/// The workspace's name in the session's directory on the host.
const THERE: &str = "workspace";

impl Workspace {
    /// The directory as it is, with every link followed.
    ///
    /// # Errors
    /// When it cannot be found.
    pub fn of(directory: &Path) -> std::io::Result<Self> {
        Ok(Self {
            here: fs::canonicalize(directory)?,
        })
    }

    /// A path in the workspace, relative to the session's directory on the host; `None` when it
    /// lies elsewhere or is not there.
    pub fn there(&self, path: &Path) -> Option<PathBuf> {
        let path = fs::canonicalize(path).ok()?;
        let inside = path.strip_prefix(&self.here).ok()?;
        Some(if inside.as_os_str().is_empty() {
            PathBuf::from(THERE)
        } else {
            Path::new(THERE).join(inside)
        })
    }
}

/// A directory that an argument names, as the host has it: in the workspace it is mapped, one that
/// is not here is taken as the host's own.
///
/// # Errors
/// When it is here and outside the workspace.
pub fn directory_there(
    value: &OsStr,
    directory: &Path,
    workspace: &Workspace,
    session_directory: &ByteString,
    of: &str,
) -> Result<ByteString, Refused> {
    let path = directory.join(value);
    if let Some(there) = workspace.there(&path) {
        let mut mapped = session_directory.as_bytes().to_vec();
        mapped.push(b'/');
        mapped.extend_from_slice(there.as_os_str().as_bytes());
        return Ok(ByteString::from(OsStr::from_bytes(&mapped)));
    }
    match fs::metadata(&path) {
        Err(error) if is_absence(&error) => Ok(ByteString::from(value)),
        Ok(_) | Err(_) => Err(Refused::OnlyHere {
            of: of.to_owned(),
            path,
        }),
    }
}
