//! Where file systems are mounted.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Where file systems are mounted, as this process sees it, that are `root` or lie below: all that
/// a judgement of it needs.
///
/// # Errors
/// When the system does not tell.
#[cfg(target_os = "linux")]
pub fn mountpoints_of(root: &Path) -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    let mut mounts = mountpoints(&text);
    mounts.retain(|mount| mount.starts_with(root));
    Ok(mounts)
}

/// The root itself, when it is on another device than the directory above it. What is mounted below
/// is met by the scan.
///
/// # Errors
/// When the system does not tell.
#[cfg(not(target_os = "linux"))]
pub fn mountpoints_of(root: &Path) -> io::Result<Vec<PathBuf>> {
    use std::os::unix::fs::MetadataExt as _;
    let (Some(above), true) = (root.parent(), root.exists()) else {
        return Ok(Vec::new());
    };
    let differs = root.metadata()?.dev() != above.metadata()?.dev();
    Ok(differs.then(|| root.to_owned()).into_iter().collect())
}

/// The mountpoints that a text in the form of `/proc/self/mountinfo` names: the fifth field of each
/// line, in which a backslash and three octal digits are one byte.
pub fn mountpoints(text: &[u8]) -> Vec<PathBuf> {
    let fields = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    fields
        .map(|field| PathBuf::from(OsString::from_vec(unescaped(field))))
        .collect()
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = match (first, after) {
            (b'\\', [a, b, c, ..]) => byte_of([*a, *b, *c]),
            _ => None,
        };
        bytes.push(octal.unwrap_or(*first));
        let taken = if octal.is_some() { 3 } else { 0 };
        rest = after.get(taken..).unwrap_or_default();
    }
    bytes
}

fn byte_of(digits: [u8; 3]) -> Option<u8> {
    let text = std::str::from_utf8(&digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountpoints_are_read_as_the_kernel_writes_them() {
        let text = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            30 22 0:5 / /mnt/a\\040b\\134c rw - tmpfs tmpfs rw\n\
            31 22 0:6 / /mnt/\xc3\xa4\\011x rw master:1 - tmpfs tmpfs rw\n\
            short line\n";
        let found = mountpoints(text);
        let expected = ["/", "/mnt/a b\\c", "/mnt/\u{e4}\tx"].map(PathBuf::from);
        assert_eq!(found, expected);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_its_mounts() {
        let all = mountpoints_of(Path::new("/")).unwrap();
        assert!(all.contains(&PathBuf::from("/")) && all.contains(&PathBuf::from("/proc")));
        assert!(
            mountpoints_of(Path::new("/nowhere/at/all"))
                .unwrap()
                .is_empty()
        );
    }
}
