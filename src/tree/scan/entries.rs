//! What a thread does with what is no directory: links are read, files hashed, and the rest only
//! looked at.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::super::content::{ContentId, GROUPED_ABOVE, Groups};
use super::super::entry::{LinkText, SpecialKind};
use super::super::path::Name;
use super::super::stamp::Stamp;
use super::Trouble;
use super::clock;
use super::file::{Reading, Spot, Verdict, read_whole};
use super::record::{Found, Output, Place, Sighting, Used};
use super::sight::Sight;
use super::spans::Large;
use super::walk::{Opened, Task};
use super::worker::Worker;

/// What becomes of an entry: known at once, gone, or a file that is shared by the threads.
#[derive(Debug)]
enum Looked {
    Seen(Sighting),
    Gone,
    Large(Arc<OwnedFd>, Reading),
}

impl Worker<'_, '_> {
    /// Looks at entries of a directory.
    pub(super) fn entries(&mut self, opened: &Arc<Opened>, names: Vec<Name>) {
        let place = &opened.todo.place;
        let mut names = names.into_iter();
        while let Some(name) = names.next() {
            if self.walk.is_over() {
                return;
            }
            match self.entry(opened, &name) {
                Looked::Seen(sighting) => self.tell(place, name, sighting),
                // Its directory has changed by that, and is listed again.
                Looked::Gone => {}
                Looked::Large(file, reading) => {
                    // It is read before anything else is opened, so that few files are open.
                    let rest: Vec<Name> = names.collect();
                    if !rest.is_empty() {
                        let rest = Task::Entries(Arc::clone(opened), rest);
                        self.queue.add_begun([rest]);
                    }
                    self.begin(Large::new(Arc::clone(place), name, file, reading));
                    return;
                }
            }
        }
    }

    fn tell(&mut self, place: &Arc<Place>, name: Name, sighting: Sighting) {
        let output = Output::Name(Arc::clone(place), name, sighting);
        self.found.seen.push(output);
    }

    fn entry(&mut self, opened: &Opened, name: &Name) -> Looked {
        let at = opened.directory.as_fd();
        let known = opened.todo.known.get(name);
        if let Some(known) = known
            && let Some(stamp) = known.stamp
            && !known.unconfirmed
            && !matches!(known.found, Found::Trouble(_))
            && Sight::at(at, name).is_ok_and(|sight| sight.stamp == stamp)
        {
            if matches!(known.found, Found::File(..)) {
                self.spend(stamp.size);
            }
            return Looked::Seen(known.clone());
        }
        if let Some(sighting) = self.cached(opened, name) {
            return Looked::Seen(sighting);
        }
        let asked = clock::now();
        let (spot, sight) = match Spot::at(at, name) {
            Ok(seen) => seen,
            Err(Errno::NOENT) => return Looked::Gone,
            Err(error) => return Looked::Seen(Sighting::trouble(unreadable(error))),
        };
        let found = if sight.mount != self.walk.mount {
            Found::Special(SpecialKind::Mountpoint)
        } else if sight.stamp.kind() == FileType::RegularFile {
            let earlier = known.and_then(|known| known.content_at(&sight.stamp));
            let reading = Reading::first(&sight, asked).after(earlier);
            if sight.stamp.size == 0 {
                return Looked::Seen(reading.found(ContentId::of(b""), None, false));
            }
            self.spend(sight.stamp.size);
            return match self.walk.opener.open(&spot, &sight, at, name) {
                Ok(file) => self.file(Arc::new(file), reading),
                Err(Errno::STALE | Errno::NOENT) => {
                    Looked::Seen(Sighting::trouble(Trouble::Changing))
                }
                Err(error) => Looked::Seen(Sighting::trouble(unreadable(error))),
            };
        } else {
            match sight.stamp.kind() {
                FileType::Symlink => match spot.text(at, name) {
                    Ok(text) => LinkText::new(text)
                        .map_or(Found::Trouble(unreadable(Errno::INVAL)), Found::Link),
                    Err(error) => Found::Trouble(unreadable(error)),
                },
                kind => without_content(kind),
            }
        };
        let stamp = Some(sight.stamp);
        Looked::Seen(Sighting {
            stamp,
            found,
            unconfirmed: false,
        })
    }

    /// What need not be read again.
    fn cached(&self, opened: &Opened, name: &Name) -> Option<Sighting> {
        let cache = self.walk.cache?;
        let sight = Sight::at(opened.directory.as_fd(), name).ok()?;
        if sight.mount != self.walk.mount {
            return None;
        }
        let known = cache.get(self.walk.root, &sight.stamp)?;
        self.spend(sight.stamp.size);
        Some(Sighting {
            stamp: Some(sight.stamp),
            found: Found::File(known.content, known.groups.clone()),
            unconfirmed: false,
        })
    }

    /// Reads a file, as often as it must be.
    fn file(&mut self, file: Arc<OwnedFd>, mut reading: Reading) -> Looked {
        let trouble = loop {
            let size = reading.stamp.size;
            let limit = self.walk.options.limits.file;
            if size > limit {
                break Trouble::TooLarge { size, limit };
            }
            if size > GROUPED_ABOVE {
                return Looked::Large(file, reading);
            }
            let content = match read_whole(file.as_fd(), size, &mut self.buffer) {
                Ok(content) => content,
                Err(error) => break unreadable(error),
            };
            self.count_file();
            self.count_bytes(size);
            match (self.judge(&file, reading, content), content) {
                (Ok(Verdict::Good), Some(content)) => {
                    return Looked::Seen(reading.found(content, None, false));
                }
                (Ok(Verdict::Unconfirmed), Some(content)) => {
                    return Looked::Seen(reading.found(content, None, true));
                }
                (Ok(Verdict::Again(next)), _) => reading = next,
                (Ok(Verdict::Good | Verdict::Unconfirmed | Verdict::Changing), _) => {
                    break Trouble::Changing;
                }
                (Err(error), _) => break unreadable(error),
            }
        };
        Looked::Seen(Sighting::trouble(trouble))
    }

    fn judge(
        &self,
        file: &OwnedFd,
        reading: Reading,
        content: Option<ContentId>,
    ) -> Result<Verdict, Errno> {
        let verdict = reading.judge(content, file.as_fd(), &self.walk.naps)?;
        if matches!(verdict, Verdict::Again(_)) {
            let retries = &self.walk.options.progress.file_retries;
            retries.fetch_add(1, Ordering::Relaxed);
        }
        Ok(verdict)
    }

    /// Shares a large file with the other threads.
    fn begin(&self, large: Large) {
        self.count_file();
        let spans = large.spans();
        let large = Arc::new(large);
        // The last that is added is taken first.
        let tasks = (0..spans)
            .rev()
            .map(|index| Task::Span(Arc::clone(&large), index));
        self.queue.add_begun(tasks);
    }

    /// Reads a span; the last one of a file decides what was read.
    pub(super) fn span(&mut self, large: &Large, index: usize) {
        let (read, last) = large.read(index, &mut self.buffer);
        self.count_bytes(read);
        if !last || self.walk.is_over() {
            return;
        }
        let sighting = match self.finish(large) {
            Ok(Looked::Seen(sighting)) => sighting,
            Ok(Looked::Large(file, reading)) => {
                let place = Arc::clone(&large.place);
                self.begin(Large::new(place, large.name.clone(), file, reading));
                return;
            }
            Ok(Looked::Gone) => Sighting::trouble(Trouble::Changing),
            Err(error) => Sighting::trouble(unreadable(error)),
        };
        self.tell(&large.place, large.name.clone(), sighting);
    }

    fn finish(&mut self, large: &Large) -> Result<Looked, Errno> {
        let groups = large.groups()?;
        let content = groups.as_ref().map(Groups::content);
        let verdict = self.judge(&large.file, large.reading, content)?;
        let unconfirmed = matches!(verdict, Verdict::Unconfirmed);
        Ok(match (verdict, content) {
            (Verdict::Good | Verdict::Unconfirmed, Some(content)) => {
                Looked::Seen(large.reading.found(content, groups, unconfirmed))
            }
            // It may be a small one by now.
            (Verdict::Again(next), _) => self.file(Arc::clone(&large.file), next),
            (Verdict::Good | Verdict::Unconfirmed | Verdict::Changing, _) => {
                Looked::Seen(Sighting::trouble(Trouble::Changing))
            }
        })
    }

    fn spend(&self, bytes: u64) {
        self.walk.spend(Used {
            bytes,
            ..Used::default()
        });
    }

    fn count_file(&self) {
        let files = &self.walk.options.progress.files;
        files.fetch_add(1, Ordering::Relaxed);
    }

    fn count_bytes(&self, read: u64) {
        let bytes = &self.walk.options.progress.bytes;
        bytes.fetch_add(read, Ordering::Relaxed);
    }
}

impl Sighting {
    fn trouble(trouble: Trouble) -> Self {
        Self {
            stamp: None,
            found: Found::Trouble(trouble),
            unconfirmed: false,
        }
    }

    /// The content of a file that was seen with this stamp.
    fn content_at(&self, stamp: &Stamp) -> Option<ContentId> {
        match &self.found {
            Found::File(content, _) if self.stamp.as_ref() == Some(stamp) => Some(*content),
            _ => None,
        }
    }
}

impl Reading {
    /// The file that was read.
    fn found(&self, content: ContentId, groups: Option<Groups>, unconfirmed: bool) -> Sighting {
        Sighting {
            stamp: Some(self.stamp),
            found: Found::File(content, groups.map(Arc::new)),
            unconfirmed,
        }
    }
}

/// What is neither file nor link.
const fn without_content(kind: FileType) -> Found {
    match kind {
        FileType::Fifo => Found::Special(SpecialKind::Fifo),
        FileType::Socket => Found::Special(SpecialKind::Socket),
        FileType::CharacterDevice => Found::Special(SpecialKind::CharacterDevice),
        FileType::BlockDevice => Found::Special(SpecialKind::BlockDevice),
        // It was something else when its directory was listed.
        FileType::Directory | FileType::RegularFile | FileType::Symlink => {
            Found::Trouble(Trouble::Changing)
        }
        FileType::Unknown => Found::Trouble(unreadable(Errno::INVAL)),
    }
}

pub(super) const fn unreadable(error: Errno) -> Trouble {
    Trouble::Unreadable {
        errno: error.raw_os_error(),
    }
}
