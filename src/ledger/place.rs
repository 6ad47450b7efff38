//! Where the ledger may live: a local disk of this machine, in a private directory, with room left.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::LedgerError;

/// Bytes that must be free before a new hold is taken: 256 requests in flight settle with a few
/// kilobytes each, and the write-ahead log and its checkpoint need the same room again.
pub(super) const FREE_BYTES_FLOOR: u64 = 16 * 1024 * 1024;

/// Separates the stored machine name from the machine's own identifier, which stays private.
const MACHINE_CONTEXT: &str = "labproxy 2026-11 ledger machine v1";

/// Names this machine without giving its identifier away; `None` where it has none.
pub(super) fn machine_name() -> Option<String> {
    ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .find(|text| text.len() >= 32)
        .map(|text| {
            let hash = blake3::derive_key(MACHINE_CONTEXT, text.as_bytes());
            blake3::Hash::from_bytes(hash).to_hex().to_string()
        })
}

/// Makes the ledger's directory where it is missing, readable by its owner only.
pub(super) fn make_directory(path: &Path) -> Result<PathBuf, LedgerError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(|source| LedgerError::Io {
            path: directory.clone(),
            doing: "the ledger's directory cannot be made",
            source,
        })?;
    Ok(directory)
}

/// Makes the file with mode 0600 where it is missing, before SQLite would make it by the umask.
pub(super) fn make_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Makes a new name in `directory` survive a power cut.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Free bytes for this user on the disk of `directory`.
pub(super) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Refuses a directory on a file system that other machines may write too.
pub(super) fn refuse_network(directory: &Path) -> Result<(), LedgerError> {
    match network_kind(directory) {
        Ok(None) => Ok(()),
        Ok(Some(kind)) => Err(LedgerError::NetworkFileSystem {
            path: directory.to_owned(),
            kind,
        }),
        Err(source) => Err(LedgerError::Io {
            path: directory.to_owned(),
            doing: "the kind of its file system cannot be found out",
            source,
        }),
    }
}

#[cfg(target_os = "linux")]
fn network_kind(directory: &Path) -> io::Result<Option<String>> {
    use std::os::unix::fs::MetadataExt;

    let magic = u64::try_from(rustix::fs::statfs(directory)?.f_type).unwrap_or(0);
    if magic != FUSE_MAGIC {
        return Ok(network_name(magic).map(str::to_owned));
    }
    let device = fs::metadata(directory)?.dev();
    let device = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(network_fuse(&mounts, &device))
}

/// Portable fallback: nothing tells the kind here, and SQLite's own locking check has to do.
#[cfg(not(target_os = "linux"))]
fn network_kind(_directory: &Path) -> io::Result<Option<String>> {
    Ok(None)
}

/// `statfs` type of every FUSE file system, local or not.
#[cfg(target_os = "linux")]
const FUSE_MAGIC: u64 = 0x6573_5546;

/// The name of a network or cluster file system, by its `statfs` type (`linux/magic.h` and each
/// file system's own header).
#[cfg(target_os = "linux")]
fn network_name(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517B => "SMB",
        0xFF53_4D42 => "CIFS",
        0xFE53_4D42 => "SMB2",
        0x0102_1997 => "9p",
        0x564C => "NCP",
        0x7375_7245 => "Coda",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x00C3_6400 => "Ceph",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0xAAD7_AAEA => "PanFS",
        0x786F_4256 => "vboxsf",
        0xBACB_ACBC => "vmhgfs",
        _ => return None,
    })
}

/// The type of the FUSE mount of `device`, unless it is known to keep its data on a local disk.
#[cfg(target_os = "linux")]
fn network_fuse(mounts: &str, device: &str) -> Option<String> {
    const LOCAL: [&str; 5] = [
        "fuseblk",
        "fuse.gocryptfs",
        "fuse.encfs",
        "fuse.cryfs",
        "fuse.fuse-overlayfs",
    ];
    let kind = mounts
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some(device))
        .filter_map(|line| line.split_once(" - "))
        .filter_map(|(_, rest)| rest.split(' ').next())
        .next_back()
        .unwrap_or("fuse");
    (!LOCAL.contains(&kind)).then(|| kind.to_owned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// T26: network file systems are told from local disks by the kernel's own numbers.
    #[test]
    fn t26_network_file_systems_are_told_from_local_disks() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xFF53_4D42), Some("CIFS"));
        assert_eq!(network_name(0x0102_1997), Some("9p"));
        for local in [0xEF53, 0x0102_1994, 0x9123_683E, 0x5846_5342, 0x794C_7630] {
            assert_eq!(network_name(local), None, "{local:x}");
        }
        let mounts = "36 25 0:52 / /mnt rw,relatime shared:1 - fuse.sshfs u@h:/x rw\n\
                      37 25 8:17 / /usb rw - fuseblk /dev/sdb1 rw\n";
        assert_eq!(network_fuse(mounts, "0:52").as_deref(), Some("fuse.sshfs"));
        assert_eq!(network_fuse(mounts, "8:17"), None);
        assert_eq!(network_fuse(mounts, "0:99").as_deref(), Some("fuse"));
    }

    /// A temporary directory on this machine is a place for a ledger.
    #[test]
    fn a_local_directory_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        refuse_network(directory.path()).unwrap();
        assert!(free_bytes(directory.path()).unwrap() > 0);
    }
}
