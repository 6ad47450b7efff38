//! Which files of working directories the user trusts: by the hash of what they hold.

use std::io::{self, Write as _};
use std::path::Path;

use super::Paths;
use super::file::{self, FileError, Owner};
use crate::report::Failure;

/// Most hashes that are read: far more than anybody confirms by hand.
const MAX_TRUSTED: usize = 10_000;

/// Digest of a configuration file's text, as 64 hexadecimal digits.
pub fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Whether the user trusts a file that holds `text`. No list, no trust.
///
/// # Errors
/// When there is a list that cannot be read, or that others could have written.
pub fn is_trusted(paths: &Paths, text: &str) -> Result<bool, FileError> {
    Ok(holds(&read_list(paths)?, text))
}

fn holds(list: &str, text: &str) -> bool {
    let wanted = digest(text);
    list.lines()
        .take(MAX_TRUSTED)
        .any(|line| line.split(' ').next() == Some(wanted.as_str()))
}

fn read_list(paths: &Paths) -> Result<String, FileError> {
    let list = paths.trusted();
    match file::read(&list, &list, Owner::UserAlone) {
        Ok(file) => Ok(file.text),
        Err(FileError::Missing) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Adds a file's text to what the user trusts; the list stays readable by its owner only.
///
/// # Errors
/// When the state directory cannot be trusted or written.
pub fn trust(paths: &Paths, file: &Path, text: &str) -> Result<(), Failure> {
    paths.prepare_state()?;
    let list = paths.trusted();
    let shown = list.display().to_string();
    let before = read_list(paths)
        .map_err(|error| Failure::because(format!("cannot read {shown}"), &error))?;
    if holds(&before, text) {
        return Ok(());
    }
    let failed = |error: io::Error| Failure::because(format!("cannot write {shown}"), &error);
    // A temporary file is made with mode 0600.
    let mut next = tempfile::NamedTempFile::new_in(paths.state()).map_err(failed)?;
    let name = crate::escape::escape(file.as_os_str().as_encoded_bytes());
    next.write_all(before.as_bytes()).map_err(failed)?;
    writeln!(next, "{} {name}", digest(text)).map_err(failed)?;
    next.as_file().sync_all().map_err(failed)?;
    next.persist(&list).map_err(|error| failed(error.error))?;
    Ok(())
}
