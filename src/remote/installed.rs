//! The file that runs as this program, among other versions of it on the host.
//!
//! Every process of it holds a shared lock on its own file. A version whose lock is free runs
//! nowhere, also not where this process cannot see; it is removed by whoever starts another one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, Mode, OFlags};

/// What installed files are called, before their SHA-256.
const PREFIX: &[u8] = b"labproxy-remote-";
/// Digits of a SHA-256.
const DIGITS: usize = 64;

/// Takes the lock on our own file, for as long as this process lives. A file system without locks
/// gives none: then no other version is removed there either.
pub fn hold() -> Option<File> {
    let file = File::open("/proc/self/exe").ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    Some(file)
}

/// Removes other versions beside our own file that nobody runs.
pub fn remove_unused() {
    let Ok(own) = fs::read_link("/proc/self/exe") else {
        return;
    };
    let (Some(folder), Some(name)) = (own.parent(), own.file_name()) else {
        return;
    };
    if !is_installed(name) {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_installed(&entry.file_name()) && entry.file_name() != name {
            remove(&entry.path());
        }
    }
}

fn is_installed(name: &OsStr) -> bool {
    name.as_bytes()
        .strip_prefix(PREFIX)
        .is_some_and(|digest| digest.len() == DIGITS && digest.iter().all(u8::is_ascii_hexdigit))
}

fn remove(path: &PathBuf) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
        return;
    };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        // Another process may do the same.
        let _gone = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_digest_are_ours() {
        let digest = "0123456789abcdef".repeat(4);
        assert!(is_installed(format!("labproxy-remote-{digest}").as_ref()));
        for other in [
            "labproxy-remote".to_owned(),
            "labproxy-remote-".to_owned(),
            format!("labproxy-remote-{digest}0"),
            format!("labproxy-remote-{digest} (deleted)"),
            format!("x-labproxy-remote-{digest}"),
        ] {
            assert!(!is_installed(other.as_ref()), "{other}");
        }
    }

    /// A file that somebody holds stays, one that nobody holds goes.
    #[test]
    fn what_is_held_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        fs::write(&path, "").unwrap();
        let held = File::open(&path).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockShared).unwrap();
        remove(&path);
        assert!(path.exists());
        drop(held);
        remove(&path);
        assert!(!path.exists());
    }
}
