//! A stream's bytes that were written and are still needed, in a file without a name.
//!
//! The file is divided into slots; a slot is used again as soon as all its bytes were released, so
//! that a short stream needs one slot, and a long one as many as are unreleased at once.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::rand::GetRandomFlags;

use crate::wire::link::WINDOW;

/// Bytes of a slot: a divisor of the window, and far more than one read of a pipe.
const SLOT: u64 = 256 * 1024;

/// Slots that an empty spool keeps: a window's worth.
const KEPT: u64 = WINDOW / SLOT;

/// Bytes of a stream between two offsets.
#[derive(Debug, Default)]
pub struct Spool {
    file: Option<File>,
    /// Where each slot's bytes are in the file, from the one that holds `start`.
    slots: VecDeque<u64>,
    free: Vec<u64>,
    /// Slots that the file has.
    size: u64,
    start: u64,
    end: u64,
}

impl Spool {
    /// The first byte that is held.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Behind the last byte that is held.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes are held.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }

    /// Appends bytes, all or none; the file is made in `folder` when there is none yet.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub fn push(&mut self, folder: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(nameless(folder)?);
        }
        let mut at = self.end;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (index, within) = (self.index(at), at % SLOT);
            while self.slots.len() <= index {
                let slot = self.free.pop().unwrap_or(self.size);
                self.size = self.size.max(slot + 1);
                self.slots.push_back(slot);
            }
            let room = usize::try_from(SLOT - within).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(room.min(rest.len()));
            let place = self.slots.get(index).map(|slot| slot * SLOT + within);
            if let (Some(file), Some(place)) = (&self.file, place) {
                file.write_all_at(now, place)?;
            }
            at += length(now);
            rest = later;
        }
        self.end = at;
        Ok(())
    }

    /// Reads the bytes from `offset` on; gives how many.
    ///
    /// # Errors
    /// When the disk does not give them.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (Some(file), true) = (&self.file, offset >= self.start && offset < self.end) else {
            return Ok(0);
        };
        let within = offset % SLOT;
        let most = (SLOT - within).min(self.end - offset);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (Some(slot), wanted) = (self.slots.get(self.index(offset)), buffer.len().min(most))
        else {
            return Ok(0);
        };
        let Some(part) = buffer.get_mut(..wanted) else {
            return Ok(0);
        };
        file.read_exact_at(part, slot * SLOT + within)?;
        Ok(wanted)
    }

    /// Forgets the bytes before `offset`.
    pub fn release(&mut self, offset: u64) {
        let offset = offset.clamp(self.start, self.end);
        for _ in self.start / SLOT..offset / SLOT {
            self.free.extend(self.slots.pop_front());
        }
        self.start = offset;
        if self.start == self.end {
            if self.size > KEPT {
                self.shrink();
                return;
            }
            self.free.extend(self.slots.drain(..));
            // The lowest first, so that the file stays as short as it can.
            self.free.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    /// A new beginning for bytes that went another way: `offset` is the end now.
    pub fn skip_to(&mut self, offset: u64) {
        self.release(self.end);
        (self.start, self.end) = (offset, offset);
    }

    /// Gives an empty file's room back.
    fn shrink(&mut self) {
        // A file that stays long is still used again from its beginning.
        if self
            .file
            .as_ref()
            .is_none_or(|file| file.set_len(0).is_ok())
        {
            self.slots.clear();
            self.free.clear();
            self.size = 0;
        }
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset / SLOT - self.start / SLOT).unwrap_or(usize::MAX)
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// A file in `folder` that no name leads to.
fn nameless(folder: &OwnedFd) -> io::Result<File> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    let name = format!("spool-{:016x}", u64::from_le_bytes(random));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::unlinkat(folder, &name, AtFlags::empty())?;
    Ok(File::from(opened))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folder() -> OwnedFd {
        File::open(std::env::temp_dir()).unwrap().into()
    }

    /// What a test does with a spool.
    #[derive(Debug, Clone)]
    enum Step {
        Push(usize),
        Release(u64),
        Read(u64, usize),
        Skip(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..400_000_usize).prop_map(Step::Push),
            (0..700_000_u64).prop_map(Step::Release),
            (0..700_000_u64, 1..300_000_usize).prop_map(|(at, length)| Step::Read(at, length)),
            (0..50_000_u64).prop_map(Step::Skip),
        ];
        proptest::collection::vec(step, 1..30)
    }

    fn byte(offset: u64) -> u8 {
        u8::try_from(offset.wrapping_mul(2_654_435_761) % 251).unwrap()
    }

    fn bytes(from: u64, length: usize) -> Vec<u8> {
        (from..).take(length).map(byte).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Every byte that is held reads back as it was written, whatever was released before; the
        /// file has room for little more than what is held at once.
        #[test]
        fn a_spool_holds_its_bytes(steps in steps()) {
            let folder = folder();
            let mut spool = Spool::default();
            let mut most = 0;
            for step in steps {
                match step {
                    Step::Push(length) => {
                        spool.push(&folder, &bytes(spool.end(), length)).unwrap();
                    }
                    Step::Release(more) => spool.release(spool.start() + more),
                    Step::Skip(more) if spool.length() == 0 => spool.skip_to(spool.end() + more),
                    Step::Skip(_) => {}
                    Step::Read(at, length) => {
                        let from = spool.start() + at;
                        let mut buffer = vec![0; length];
                        let read = spool.read(from, &mut buffer).unwrap();
                        prop_assert_eq!(read > 0, from < spool.end());
                        prop_assert!(buffer[..read] == bytes(from, read)[..]);
                    }
                }
                most = most.max(spool.length());
                prop_assert!(spool.size <= most / SLOT + 3);
                prop_assert!(spool.start() <= spool.end());
            }
        }
    }

    /// A spool that was long gives its room back when it is empty.
    #[test]
    fn an_empty_spool_is_small() {
        let folder = folder();
        let mut spool = Spool::default();
        let part = vec![7; 1 << 20];
        for _ in 0..20 {
            spool.push(&folder, &part).unwrap();
        }
        assert_eq!(
            spool.file.as_ref().unwrap().metadata().unwrap().len(),
            20 << 20
        );
        spool.release(spool.end());
        assert_eq!(spool.file.as_ref().unwrap().metadata().unwrap().len(), 0);
    }
}
