//! Large files on their way to the disk: what will be synced at the end begins to be written while the
//! rest comes, so that the sync finds little to do. A system with much memory would begin only then.

use std::os::fd::AsFd;

/// Bytes after which what was written is given to the disk: enough for it to write in one go.
pub const WRITE_BACK: u64 = 8 * 1024 * 1024;

/// How far a file that is written from its beginning was given to the disk.
#[derive(Debug, Default)]
pub struct WriteBack {
    given: u64,
}

impl WriteBack {
    /// For a file that goes on behind so many bytes.
    pub const fn behind(length: u64) -> Self {
        Self { given: length }
    }

    /// Hears that the file was written as far as `end`. Nothing is waited for and no error taken: the
    /// sync at the end tells.
    #[cfg(target_os = "linux")]
    pub fn reached(&mut self, file: impl AsFd, end: u64) {
        let length = end.saturating_sub(self.given);
        if length < WRITE_BACK {
            return;
        }
        // Linux begins to write dirty pages that are said not to be needed.
        let advice = rustix::fs::Advice::DontNeed;
        let length = std::num::NonZero::new(length);
        let _only_advice = rustix::fs::fadvise(file, self.given, length, advice);
        self.given = end;
    }

    /// The same, where there is no such advice.
    #[cfg(not(target_os = "linux"))]
    pub const fn reached(&mut self, _file: impl AsFd, _end: u64) {}
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// What is given to the disk stays what it is, and is given once, some of it at a time.
    #[test]
    fn what_was_given_to_the_disk_can_be_read() {
        let file = tempfile::tempfile().unwrap();
        let part: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
        let mut write_back = WriteBack::default();
        let mut given = Vec::new();
        for at in 0..8 {
            file.write_all_at(&part, at * (3 << 20)).unwrap();
            write_back.reached(&file, (at + 1) * (3 << 20));
            given.push(write_back.given >> 20);
        }
        assert_eq!(given, [0, 0, 9, 9, 9, 18, 18, 18]);
        let mut read = vec![0; part.len()];
        for at in 0..8 {
            file.read_exact_at(&mut read, at * (3 << 20)).unwrap();
            assert!(read == part, "{at}");
        }
        assert_eq!(WriteBack::behind(7).given, 7);
    }
}
