//! One look at an entry through its descriptor or in its directory, without opening it.

use std::os::fd::BorrowedFd;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::super::path::Name;
use super::super::stamp::Stamp;

/// What one look tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    pub(super) stamp: Stamp,
    /// The number of the mount that it is on; nothing before Linux 5.8, where a file that another one
    /// is mounted over is not told from that one. Devices do not tell: layers of one mount have
    /// several.
    pub(super) mount: Option<u64>,
    /// User who owns it: only that one may ask to leave its time of access alone.
    pub(super) owner: u32,
    /// Bytes that it takes on the disk.
    pub(super) stored: u64,
}

/// Bytes of a block in `stat`, on every system.
const BLOCK: u64 = 512;

impl Sight {
    /// Of what is open, or open as a mere place.
    pub(super) fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        look(file, None)
    }

    /// Of what has this name in a directory; of a symlink itself.
    pub(super) fn at(directory: BorrowedFd<'_>, name: &Name) -> Result<Self, Errno> {
        look(directory, Some(name))
    }

    /// Whether it has holes.
    pub(super) const fn is_sparse(&self) -> bool {
        self.stored < self.stamp.size
    }
}

#[cfg(target_os = "linux")]
fn look(at: BorrowedFd<'_>, name: Option<&Name>) -> Result<Sight, Errno> {
    use std::ffi::OsStr;

    use rustix::fs::StatxFlags;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let (name, flags) = name.map_or((OsStr::new(""), AtFlags::EMPTY_PATH), |name| {
        (name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
    });
    let seen = rustix::fs::statx(at, name, flags | AtFlags::NO_AUTOMOUNT, wanted)?;
    let device = rustix::fs::makedev(seen.stx_dev_major, seen.stx_dev_minor);
    let numbered = seen.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Sight {
        stamp: Stamp {
            device,
            inode: seen.stx_ino,
            mode: u32::from(seen.stx_mode),
            links: u64::from(seen.stx_nlink),
            size: seen.stx_size,
            modified: (seen.stx_mtime.tv_sec, u64::from(seen.stx_mtime.tv_nsec)),
            changed: (seen.stx_ctime.tv_sec, u64::from(seen.stx_ctime.tv_nsec)),
        },
        mount: numbered.then_some(seen.stx_mnt_id),
        owner: seen.stx_uid,
        stored: seen.stx_blocks.saturating_mul(BLOCK),
    })
}

#[cfg(not(target_os = "linux"))]
fn look(at: BorrowedFd<'_>, name: Option<&Name>) -> Result<Sight, Errno> {
    let seen = match name {
        Some(name) => rustix::fs::statat(at, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)?,
        None => rustix::fs::fstat(at)?,
    };
    let stamp = Stamp::of(&seen);
    Ok(Sight {
        mount: None,
        stamp,
        owner: seen.st_uid,
        stored: u64::try_from(seen.st_blocks)
            .unwrap_or(u64::MAX)
            .saturating_mul(BLOCK),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    /// The same stamp as by the older call, that others compare with.
    #[test]
    fn a_sight_has_the_stamp_of_fstat() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 10_000]).unwrap();
        let sight = Sight::of(file.as_file().as_fd()).unwrap();
        let stat = rustix::fs::fstat(file.as_file()).unwrap();
        assert_eq!(sight.stamp, Stamp::of(&stat));
        assert!(!sight.is_sparse());
    }
}
