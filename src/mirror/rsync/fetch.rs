//! A pull: rsync brings files into an empty private directory here, and what of them has its hash
//! goes into the store.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};

use super::arguments::list;
use super::way::{Direction, Order};
use super::{Rsync, RsyncError};
use crate::mirror::durable;
use crate::mirror::error::MirrorError;
use crate::mirror::peer::{Peer, PeerError};
use crate::mirror::progress::{Amount, Phase, Progress};
use crate::mirror::receive::{Missing, Received};
use crate::mirror::store::{Store, StoreError, TakenIn};
use crate::tree::root::Root;

/// What may come beside the contents: some for each file, with its name, and a share of all.
const BESIDE_FILE: u64 = 1024;
const BESIDE_SHARE: u64 = 64;
const BESIDE_ALL: u64 = 1024 * 1024;
/// How often the host's end of the mirror is asked whether it is still there while rsync works.
const BEAT: Duration = Duration::from_mins(1);

/// The private directory for what comes, until it is dropped.
struct Landing {
    path: PathBuf,
    root: Root,
}

impl Landing {
    /// Makes it, empty.
    fn make(path: &Path) -> Result<Self, RsyncError> {
        let made = durable::remove_directory(path)
            .and_then(|()| DirBuilder::new().mode(0o700).create(path));
        let opened = made.and_then(|()| Root::open(path).map_err(io::Error::other));
        let root = opened.map_err(|error| RsyncError::Here {
            what: "no directory can be made for what rsync brings",
            error,
        })?;
        Ok(Self {
            path: path.to_owned(),
            root,
        })
    }

    /// Puts a file into the store; says whether it has the content that is missing.
    fn import(&self, store: &Store, missing: &Missing) -> Result<bool, StoreError> {
        let Some(file) = self.file(missing) else {
            return Ok(false);
        };
        // One byte more than it may have is noticed.
        let file = file.take(missing.size.saturating_add(1));
        let taken = store.take_in(missing.content, missing.size, file)?;
        Ok(matches!(taken, TakenIn::Whole))
    }

    /// The file, when it is one.
    fn file(&self, missing: &Missing) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.root.open_at(&missing.path, flags, Mode::empty());
        let opened = opened.ok()?;
        let seen = rustix::fs::fstat(&opened).ok()?;
        let is_file = FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile;
        is_file.then(|| File::from(opened))
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next run, or stops it.
        let _left = durable::remove_directory(&self.path);
    }
}

impl Rsync {
    /// Fetches contents into the store by way of `place`, a directory that is made for it; each is
    /// proven by its id before it is kept.
    ///
    /// # Errors
    /// When rsync does not do it, or the store cannot keep them. A file that was not what it should
    /// be is only named: it changed.
    pub fn fetch(
        &mut self,
        peer: &mut Peer,
        store: &Store,
        missing: &[Missing],
        place: &Path,
        progress: &dyn Progress,
    ) -> Result<Received, MirrorError> {
        let mut received = Received::default();
        if missing.is_empty() {
            return Ok(received);
        }
        let all = Amount {
            entries: u64::try_from(missing.len()).unwrap_or(u64::MAX),
            bytes: missing.iter().map(|missing| missing.size).sum(),
        };
        progress.begin(Phase::Receiving, Some(all));
        let root = peer.locate(false)?.root;
        let landing = Landing::make(place)?;
        let order = Order {
            here: &landing.path,
            there: &root,
            direction: Direction::Pull,
            list: list(missing.iter().map(|missing| &missing.path)),
            most: most(missing),
            passed: &|_, came| {
                progress.at(Amount {
                    entries: 0,
                    bytes: came.min(all.bytes),
                });
            },
        };
        let moved = beside(peer, || self.carry(order))??;
        for line in &moved.said {
            tracing::warn!(said = %crate::escape::escape_line(line), "rsync");
        }
        for missing in missing {
            if landing.import(store, missing)? {
                received.contents = received.contents.saturating_add(1);
                received.bytes = received.bytes.saturating_add(missing.size);
            } else {
                received.changed.push(missing.path.clone());
            }
        }
        Ok(received)
    }
}

/// Most bytes that an honest rsync sends for these.
fn most(missing: &[Missing]) -> u64 {
    missing.iter().fold(BESIDE_ALL, |all, missing| {
        let name = u64::try_from(missing.path.as_bytes().len()).unwrap_or(u64::MAX);
        let share = missing.size / BESIDE_SHARE;
        [missing.size, share, name, BESIDE_FILE]
            .into_iter()
            .fold(all, u64::saturating_add)
    })
}

/// Does something that takes time, while the other end of the mirror has nothing to do.
pub(super) fn beside<T: Send>(
    peer: &mut Peer,
    work: impl FnOnce() -> T + Send,
) -> Result<T, PeerError> {
    std::thread::scope(|scope| {
        let (done, when_done) = mpsc::sync_channel(1);
        let worker = scope.spawn(move || {
            // Nobody waits any more when the other end is lost.
            let _left = done.send(work());
        });
        loop {
            match when_done.recv_timeout(BEAT) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => drop(peer.locate(false)?),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(PeerError::Ended),
        }
    })
}
