//! Opening a path inside a tree so that nothing can lead outside: no symlink, no mount, no `..`.
//!
//! `openat2` does it in one call. Where the kernel does not have it, or a sandbox forbids it, the
//! path is walked name by name through descriptors, each opened without following a link and
//! compared with the root's mount: slower and as strict. A plain open by path is never the answer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::path::RelPath;

/// A rename anywhere on the machine may make `openat2` say EAGAIN; so often it is asked again
/// before the path is walked instead.
const AGAIN_MAX: u32 = 64;
/// Longest path that is given to the kernel at once, bytes: below its limit of 4,096.
const PATH_MAX: usize = 4_000;

/// How the paths of one tree are opened.
#[derive(Debug, Default)]
pub struct Beneath {
    /// The kernel has no `openat2`; a sandbox's EPERM is asked again each time.
    walks: AtomicBool,
}

/// Which mount something is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mount {
    device: (u32, u32),
    /// Tells mounts of one device apart; 0 before Linux 5.8.
    id: u64,
}

impl Beneath {
    /// One that always walks, as where there is no `openat2`.
    pub fn walking() -> Self {
        Self {
            walks: AtomicBool::new(true),
        }
    }

    /// Opens what lies at `path` below `root`; for the root's own path, the root again. `flags`
    /// get CLOEXEC and NOFOLLOW.
    ///
    /// # Errors
    /// ELOOP or ENOTDIR where a link stands in the way, XDEV where a mount does, and what `openat`
    /// says.
    pub fn open(
        &self,
        root: BorrowedFd<'_>,
        path: &RelPath,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if path.is_root() {
            return rustix::fs::openat(root, c".", flags, mode);
        }
        if path.as_bytes().len() <= PATH_MAX && !self.walks.load(Ordering::Relaxed) {
            match at_once(root, path, flags, mode) {
                Err(Errno::NOSYS) => self.walks.store(true, Ordering::Relaxed),
                Err(Errno::PERM | Errno::AGAIN) => {}
                done => return done,
            }
        }
        walk(root, path, flags, mode)
    }
}

#[cfg(target_os = "linux")]
fn at_once(
    root: BorrowedFd<'_>,
    path: &RelPath,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let inside = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..AGAIN_MAX {
        opened = rustix::fs::openat2(root, path.as_os_str(), flags, mode, inside);
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    opened
}

#[cfg(not(target_os = "linux"))]
fn at_once(
    _root: BorrowedFd<'_>,
    _path: &RelPath,
    _flags: OFlags,
    _mode: Mode,
) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

fn walk(root: BorrowedFd<'_>, path: &RelPath, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mount = mount_of(root)?;
    let mut names = path.components().peekable();
    let mut here: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        let last = names.peek().is_none();
        let at = here.as_ref().map_or(root, |directory| directory.as_fd());
        let opened = if last {
            rustix::fs::openat(at, name, flags, mode)?
        } else {
            rustix::fs::openat(at, name, PASSING, Mode::empty())?
        };
        if mount_of(opened.as_fd())? != mount {
            return Err(Errno::XDEV);
        }
        if last {
            return Ok(opened);
        }
        here = Some(opened);
    }
    Err(Errno::NOENT)
}

/// How a directory on the way is opened.
#[cfg(target_os = "linux")]
const PASSING: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const PASSING: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

#[cfg(target_os = "linux")]
fn mount_of(file: BorrowedFd<'_>) -> Result<Mount, Errno> {
    let seen = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let known = seen.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Mount {
        device: (seen.stx_dev_major, seen.stx_dev_minor),
        id: if known { seen.stx_mnt_id } else { 0 },
    })
}

#[cfg(not(target_os = "linux"))]
fn mount_of(file: BorrowedFd<'_>) -> Result<Mount, Errno> {
    let seen = rustix::fs::fstat(file)?;
    let device = u32::try_from(seen.st_dev).unwrap_or(u32::MAX);
    Ok(Mount {
        device: (device, 0),
        id: 0,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const READ: OFlags = OFlags::RDONLY;

    fn open(beneath: &Beneath, root: &fs::File, path: &str) -> Result<OwnedFd, Errno> {
        let path = RelPath::new(path).unwrap();
        beneath.open(root.as_fd(), &path, READ, Mode::empty())
    }

    /// Links are never followed, neither as the last name nor on the way, by both ways of opening.
    #[test]
    fn m06_no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::create_dir(place.path().join("outside")).unwrap();
        fs::write(place.path().join("outside/f"), "secret").unwrap();
        fs::write(root.join("d/e/f"), "here").unwrap();
        for (text, link) in [
            ("..", "up"),
            ("../outside", "out"),
            ("d", "in"),
            ("/", "top"),
        ] {
            symlink(text, root.join(link)).unwrap();
        }
        symlink("../../outside/f", root.join("d/file")).unwrap();
        let opened = fs::File::open(&root).unwrap();
        for beneath in [Beneath::default(), Beneath::walking()] {
            assert!(open(&beneath, &opened, "d/e/f").is_ok());
            assert!(open(&beneath, &opened, "").is_ok());
            for outside in [
                "up",
                "up/outside/f",
                "out/f",
                "in",
                "in/e",
                "top/etc",
                "d/file",
            ] {
                let error = open(&beneath, &opened, outside).unwrap_err();
                assert!(
                    matches!(error, Errno::LOOP | Errno::NOTDIR),
                    "{outside}: {error}"
                );
            }
        }
    }

    /// A path longer than the kernel takes at once is walked.
    #[test]
    fn m53_a_long_path_is_opened() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::File::open(place.path()).unwrap();
        let name = "n".repeat(200);
        let path = vec![name.as_str(); 30].join("/");
        let mut at = root.try_clone().unwrap();
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, name.as_str(), READ, Mode::empty())
                .unwrap()
                .into();
        }
        let opened = open(&Beneath::default(), &root, &path).unwrap();
        let one = rustix::fs::fstat(&opened).unwrap();
        let other = rustix::fs::fstat(&at).unwrap();
        assert_eq!(one.st_ino, other.st_ino);
    }
}
