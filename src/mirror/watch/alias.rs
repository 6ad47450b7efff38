//! Paths that lead to an open directory and carry a number.
//!
//! `notify` knows a watch by its path, and tells events by it. `/proc/self/fd/N` leads to what is
//! open as N whatever happens to its name, but N is used again when it is closed, and a tree may
//! have more directories than a process may hold open. So the number is written into the way there:
//! each of its bits is a detour, through `fd` and back or through `task` and back.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::tree::path::Name;

/// Bits of a number: more directories than a tree may have, many times over. All paths have equally
/// many, so that none is the beginning of another one.
const BITS: u32 = 24;
/// Numbers go up to here and begin again.
pub(super) const NUMBERS: u32 = 1 << BITS;
const TOP: &str = "/proc/self";
const ZERO: &str = "fd";
const ONE: &str = "task";

/// A path to what is open, with a number below [`NUMBERS`].
pub(super) fn alias(number: u32, opened: BorrowedFd<'_>) -> PathBuf {
    let mut path = PathBuf::from(TOP);
    for bit in 0..BITS {
        path.push(if number >> bit & 1 == 1 { ONE } else { ZERO });
        path.push("..");
    }
    path.push("fd");
    path.push(opened.as_raw_fd().to_string());
    path
}

/// The number of such a path, and the name that was put after it.
pub(super) fn read(path: &Path) -> Option<(u32, Option<Name>)> {
    let mut parts = path.strip_prefix(TOP).ok()?.components();
    let mut number = 0;
    for bit in 0..BITS {
        match parts.next()? {
            Component::Normal(word) if word == OsStr::new(ONE) => number |= 1 << bit,
            Component::Normal(word) if word == OsStr::new(ZERO) => {}
            _ => return None,
        }
        if parts.next()? != Component::ParentDir {
            return None;
        }
    }
    // `fd`, and what was open then.
    parts.next()?;
    parts.next()?;
    let name = match parts.next() {
        Some(Component::Normal(name)) => Some(Name::new(name.as_bytes()).ok()?),
        Some(_) => return None,
        None => None,
    };
    Some((number, name))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    /// It leads to the directory, and gives back its number and a name, whatever bytes that has.
    #[test]
    fn a_number_comes_back_and_the_way_leads_there() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("x"), "here").unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        for number in [0, 1, 0b1010, 65_537, NUMBERS - 1] {
            let path = alias(number, opened.as_fd());
            assert_eq!(std::fs::read(path.join("x")).unwrap(), b"here");
            assert_eq!(read(&path), Some((number, None)));
            let name = OsStr::from_bytes(b"\xff\n..");
            let name = Name::new(name.as_bytes()).unwrap();
            let told = path.join(name.as_os_str());
            assert_eq!(read(&told), Some((number, Some(name))));
        }
        for other in ["/proc/self/fd/7", "/proc/self", "/tmp/x", ""] {
            assert_eq!(read(Path::new(other)), None, "{other}");
        }
    }
}
