//! Large files, hashed in spans of whole groups by several threads at once. Holes are not read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use blake3::hazmat::ChainingValue;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::super::content::{GROUP, Groups, group_value};
use super::super::path::Name;
use super::super::zeros::{ZEROS, zeros};
use super::file::{Reading, read_at};
use super::record::Place;

/// Bytes that a thread hashes of a large file at a time: enough that what surrounds it does not
/// count, and a file of some mebibytes still keeps several threads busy.
const SPAN: u64 = 32 * GROUP;

/// A large file that is being read.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) place: Arc<Place>,
    pub(super) name: Name,
    pub(super) file: Arc<OwnedFd>,
    pub(super) reading: Reading,
    spans: Mutex<Vec<Span>>,
    left: AtomicUsize,
}

/// What was read of a span.
#[derive(Debug, Clone)]
enum Span {
    Waiting,
    Read(Vec<ChainingValue>),
    /// The file ended in it.
    Short,
    Failed(Errno),
}

impl Large {
    /// Begins a reading.
    pub(super) fn new(place: Arc<Place>, name: Name, file: Arc<OwnedFd>, reading: Reading) -> Self {
        let spans = usize::try_from(reading.stamp.size.div_ceil(SPAN)).unwrap_or(usize::MAX);
        Self {
            place,
            name,
            file,
            reading,
            spans: Mutex::new(vec![Span::Waiting; spans]),
            left: AtomicUsize::new(spans),
        }
    }

    /// How many spans it has.
    pub(super) fn spans(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Reads a span and says how many bytes were read; true as well when it was the last one.
    pub(super) fn read(&self, index: usize, buffer: &mut [u8]) -> (u64, bool) {
        let start = u64::try_from(index)
            .unwrap_or(u64::MAX)
            .saturating_mul(SPAN);
        let end = start.saturating_add(SPAN).min(self.reading.stamp.size);
        let mut work = Reader {
            file: self.file.as_fd(),
            values: Vec::with_capacity(usize::try_from(SPAN / GROUP).unwrap_or(0)),
            bytes: 0,
            // Nothing is a hole before the file system was asked.
            data_until: if self.reading.sparse { start } else { end },
        };
        let done = match work.read(start, end, buffer) {
            Ok(true) => Span::Read(work.values),
            Ok(false) => Span::Short,
            Err(error) => Span::Failed(error),
        };
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(span) = spans.get_mut(index) {
            *span = done;
        }
        drop(spans);
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        (work.bytes, last)
    }

    /// What all spans give; nothing when the file was too short.
    pub(super) fn groups(&self) -> Result<Option<Groups>, Errno> {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = self.reading.stamp.size.div_ceil(GROUP);
        let mut values = Vec::with_capacity(usize::try_from(groups).unwrap_or(0));
        for span in std::mem::take(&mut *spans) {
            match span {
                Span::Read(part) => values.extend(part),
                Span::Waiting | Span::Short => return Ok(None),
                Span::Failed(error) => return Err(error),
            }
        }
        Ok(Groups::new(self.reading.stamp.size, values))
    }
}

struct Reader<'a> {
    file: BorrowedFd<'a>,
    values: Vec<ChainingValue>,
    bytes: u64,
    /// Up to here there are bytes, or it is not known better.
    data_until: u64,
}

impl Reader<'_> {
    /// The values of the groups from `at` to `end`; false when the file is shorter.
    fn read(&mut self, mut at: u64, end: u64, buffer: &mut [u8]) -> Result<bool, Errno> {
        while at < end {
            if at >= self.data_until {
                let hole_until = self.ask(at, end)?;
                while at < end && at.saturating_add(GROUP).min(end) <= hole_until {
                    let length = usize::try_from(GROUP.min(end - at)).unwrap_or(0);
                    let zeros = zeros().get(..length).unwrap_or_default();
                    self.values.push(group_value(at, zeros));
                    at = at.saturating_add(GROUP);
                }
                continue;
            }
            let wanted = (self.data_until - at).next_multiple_of(GROUP).min(end - at);
            let length = usize::try_from(wanted)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let piece = buffer.get_mut(..length).unwrap_or_default();
            if !read_at(self.file, at, piece)? {
                return Ok(false);
            }
            for group in piece.chunks(ZEROS) {
                self.values.push(group_value(at, group));
                at = at.saturating_add(GROUP);
            }
            self.bytes = self
                .bytes
                .saturating_add(u64::try_from(length).unwrap_or(0));
        }
        Ok(true)
    }

    /// Asks where the next bytes are, and gives where the hole at `at` ends. What has no answer is
    /// read.
    fn ask(&mut self, at: u64, end: u64) -> Result<u64, Errno> {
        let data = match rustix::fs::seek(self.file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // A hole up to the end of the file.
            Err(Errno::NXIO) => return Ok(u64::MAX),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                self.data_until = end;
                return Ok(at);
            }
            Err(error) => return Err(error),
        };
        if data < end {
            let hole = rustix::fs::seek(self.file, SeekFrom::Hole(data));
            self.data_until = hole.unwrap_or(end).min(end).max(data.saturating_add(1));
        } else {
            self.data_until = end;
        }
        Ok(data)
    }
}
