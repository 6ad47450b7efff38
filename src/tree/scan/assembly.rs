//! The tree of all that was seen.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::content::{ContentId, Groups};
use super::super::directory::Directory;
use super::super::entry::{Entry, File, Seen, SpecialKind};
use super::super::path::{Name, RelPath};
use super::super::root::RootIdentity;
use super::super::stamp::{Stamp, Stamps};
use super::record::{Found, Record, Records, Sighting, State};
use super::{Effort, Problem, Scan, Trouble};

/// Mode bits of the owner's right to execute, setuid, setgid and sticky.
const EXECUTE: u32 = 0o100;
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// A directory whose entries are being put together.
#[derive(Debug)]
struct Open {
    path: RelPath,
    /// Nothing for the root.
    name: Option<Name>,
    stamp: Stamp,
    left: std::vec::IntoIter<(Name, Sighting)>,
    entries: Vec<(Name, Entry)>,
}

/// What comes together beside the tree.
#[derive(Debug, Default)]
struct Assembly {
    stamps: Vec<(RelPath, Stamp)>,
    groups: HashMap<ContentId, Groups>,
    problems: Vec<Problem>,
    /// Numbers of inodes with several names, in the order of a walk.
    links: HashMap<(u64, u64), u32>,
}

/// Puts the tree together, in the order of a walk; nothing of it when it passes a limit.
pub(super) fn assemble(
    mut records: Records,
    identity: RootIdentity,
    excess: Option<Trouble>,
) -> Scan {
    let mut assembly = Assembly::default();
    let tree = match excess {
        Some(trouble) => {
            assembly.problem(RelPath::ROOT, trouble);
            Directory::empty()
        }
        None => assembly.tree(&mut records),
    };
    Scan {
        tree,
        stamps: Stamps::new(assembly.stamps),
        groups: assembly.groups,
        problems: assembly.problems,
        identity,
        effort: Effort::default(),
    }
}

impl Assembly {
    fn problem(&mut self, path: RelPath, trouble: Trouble) {
        self.problems.push(Problem { path, trouble });
    }

    fn tree(&mut self, records: &mut Records) -> Directory {
        let root = Arc::clone(records.root());
        let mut above: Vec<Open> = Vec::new();
        let Some(mut here) = records
            .remove(&root)
            .and_then(|record| self.enter(record, None))
        else {
            return Directory::empty();
        };
        loop {
            if let Some((name, sighting)) = here.left.next() {
                let path = here.path.join(&name);
                if let Found::Directory(place) = &sighting.found {
                    let below = records.remove(place);
                    if let Some(below) = self.directory(below, &path, &name, &mut here) {
                        above.push(std::mem::replace(&mut here, below));
                    }
                } else if let Some(entry) = self.entry(path, sighting) {
                    here.entries.push((name, entry));
                }
                continue;
            }
            // Names of a listing are there once each.
            let directory = Directory::new(here.entries, seen(&here.stamp))
                .unwrap_or_else(|_| Directory::empty());
            match (above.pop(), here.name) {
                (Some(mut parent), Some(name)) => {
                    parent.entries.push((name, Entry::Directory(directory)));
                    here = parent;
                }
                _ => return directory,
            }
        }
    }

    /// Begins a directory, or says what is the matter with it.
    fn directory(
        &mut self,
        record: Option<Record>,
        path: &RelPath,
        name: &Name,
        parent: &mut Open,
    ) -> Option<Open> {
        let Some(record) = record else {
            self.problem(path.clone(), Trouble::Changing);
            return None;
        };
        if let Some(State::Mountpoint(stamp)) = &record.state {
            self.stamps.extend(stamp.map(|stamp| (path.clone(), stamp)));
            let entry = Entry::Special(SpecialKind::Mountpoint);
            parent.entries.push((name.clone(), entry));
            return None;
        }
        let open = self.enter(record, Some(name.clone()))?;
        self.stamps.push((path.clone(), open.stamp));
        Some(open)
    }

    fn enter(&mut self, record: Record, name: Option<Name>) -> Option<Open> {
        let path = record.place.path.clone();
        match record.state {
            Some(State::Listed { stamp, steady, bad }) => {
                if record.changed || !steady {
                    self.problem(path.clone(), Trouble::Changing);
                }
                for name in bad {
                    self.problem(path.clone(), Trouble::BadName { name });
                }
                let mut names = record.names;
                names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                Some(Open {
                    path,
                    name,
                    stamp,
                    entries: Vec::with_capacity(names.len()),
                    left: names.into_iter(),
                })
            }
            Some(State::Trouble(trouble)) => {
                self.problem(path, trouble);
                None
            }
            None | Some(State::Gone | State::Mountpoint(_)) => {
                self.problem(path, Trouble::Changing);
                None
            }
        }
    }

    fn entry(&mut self, path: RelPath, sighting: Sighting) -> Option<Entry> {
        if sighting.unconfirmed {
            self.problem(path, Trouble::Changing);
            return None;
        }
        let entry = match sighting.found {
            Found::File(content, groups) => {
                let stamp = sighting.stamp?;
                if let Some(groups) = groups {
                    let groups = Arc::unwrap_or_clone(groups);
                    self.groups.entry(content).or_insert(groups);
                }
                Entry::File(file(&stamp, content, self.hard_link(&stamp)))
            }
            Found::Link(text) => Entry::Link(text),
            Found::Special(kind) => Entry::Special(kind),
            Found::Trouble(trouble) => {
                self.problem(path, trouble);
                return None;
            }
            Found::Directory(_) => return None,
        };
        self.stamps
            .extend(sighting.stamp.map(|stamp| (path, stamp)));
        Some(entry)
    }

    /// The number of a file's inode among those with several names.
    fn hard_link(&mut self, stamp: &Stamp) -> u32 {
        if stamp.links < 2 {
            return 0;
        }
        let next = u32::try_from(self.links.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        *self
            .links
            .entry((stamp.device, stamp.inode))
            .or_insert(next)
    }
}

/// A file that has this content.
pub(super) const fn file(stamp: &Stamp, content: ContentId, hard_link: u32) -> File {
    let seen = seen(stamp);
    File {
        size: stamp.size,
        executable: stamp.mode & EXECUTE != 0,
        content,
        seen: Seen { hard_link, ..seen },
    }
}

const fn seen(stamp: &Stamp) -> Seen {
    Seen {
        setuid: stamp.mode & SETUID != 0,
        setgid: stamp.mode & SETGID != 0,
        sticky: stamp.mode & STICKY != 0,
        hard_link: 0,
    }
}
