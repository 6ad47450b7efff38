//! Where the content of each file comes from, and the order of the steps that follow from it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::differ::{Changes, Gone, Place, Wanted};
use super::shape::Shape;
use super::{PARKED, Plan, Tally};
use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::File;
use crate::tree::path::{Name, RelPath};
use crate::tree::step::Step;

/// Takes the steps that move and make contents, and all that follow.
pub(super) fn finish<'a>(
    from: &Directory,
    to: &Directory,
    shape: &Shape<'a>,
    changes: Changes<'a>,
    plan: &mut Plan,
) {
    let mut work = Work::new(Parking { from, to, used: 0 });
    work.files(shape, &changes);
    work.emit(changes, plan);
}

/// What has a content that is needed.
#[derive(Default)]
struct Holders {
    /// Files that stay as they are.
    stay: Vec<RelPath>,
    /// Files that are to go.
    gone: Vec<RelPath>,
    /// Files that are replaced.
    replaced: Vec<RelPath>,
}

/// A copy that reads what is replaced or removed later.
struct Early {
    from: RelPath,
    to: RelPath,
    file: File,
}

struct Work<'t> {
    parking: Parking<'t>,
    moves: Vec<(RelPath, RelPath)>,
    early: Vec<Early>,
    copies: Vec<Step>,
    writes: Vec<Step>,
    modes: Vec<(RelPath, bool)>,
    late_moves: Vec<(RelPath, RelPath)>,
    late_writes: Vec<Step>,
    late_copies: Vec<Step>,
    late_modes: Vec<(RelPath, bool)>,
    /// Files that are not removed, because they are moved.
    moved: HashSet<RelPath>,
    wanted: BTreeMap<ContentId, u64>,
    moved_tally: Tally,
    copied: Tally,
}

impl<'t> Work<'t> {
    fn new(parking: Parking<'t>) -> Self {
        Self {
            parking,
            moves: Vec::new(),
            early: Vec::new(),
            copies: Vec::new(),
            writes: Vec::new(),
            modes: Vec::new(),
            late_moves: Vec::new(),
            late_writes: Vec::new(),
            late_copies: Vec::new(),
            late_modes: Vec::new(),
            moved: HashSet::new(),
            wanted: BTreeMap::new(),
            moved_tally: Tally::default(),
            copied: Tally::default(),
        }
    }

    fn files<'a>(&mut self, shape: &Shape<'a>, changes: &Changes<'a>) {
        let mut needed: BTreeMap<ContentId, Vec<&Wanted<'a>>> = BTreeMap::new();
        for wanted in &changes.files {
            if wanted.file.size == 0 {
                self.write(wanted);
            } else {
                needed.entry(wanted.file.content).or_default().push(wanted);
            }
        }
        let (mut holders, executable) = holders(shape, changes, &needed);
        for (content, wanted) in needed {
            match holders.remove(&content) {
                Some(holders) => self.content(wanted, holders, &executable),
                None => {
                    for wanted in wanted {
                        self.wanted.insert(content, wanted.file.size);
                        self.write(wanted);
                    }
                }
            }
        }
    }

    fn write(&mut self, wanted: &Wanted<'_>) {
        let step = Step::Write {
            path: wanted.path.clone(),
            file: wanted.file.clone(),
        };
        match wanted.place {
            Place::Free | Place::Taken => self.writes.push(step),
            Place::Late => self.late_writes.push(step),
        }
    }

    /// Brings a content that is there to each file that needs it.
    fn content(
        &mut self,
        wanted: Vec<&Wanted<'_>>,
        mut holders: Holders,
        executable: &HashSet<RelPath>,
    ) {
        let (movable, fixed): (Vec<&Wanted<'_>>, Vec<&Wanted<'_>>) = wanted
            .into_iter()
            .partition(|one| one.place != Place::Taken);
        let (pairs, mut rest) = pair(movable, &mut holders.gone);
        let mut parked = None;
        for (from, one) in pairs {
            let is_executable = executable.contains(&from);
            self.moved.insert(from.clone());
            self.moved_tally.add(Some(one.file.size));
            let modes = if one.place == Place::Late {
                let at = self.parking.name();
                self.moves.push((from, at.clone()));
                self.late_moves.push((at.clone(), one.path.clone()));
                parked.get_or_insert((at, one.path.clone()));
                &mut self.late_modes
            } else {
                self.moves.push((from, one.path.clone()));
                holders.stay.push(one.path.clone());
                &mut self.modes
            };
            if is_executable != one.file.executable {
                modes.push((one.path.clone(), one.file.executable));
            }
        }
        rest.extend(fixed);
        let (late, now): (Vec<&Wanted<'_>>, Vec<&Wanted<'_>>) =
            rest.into_iter().partition(|one| one.place == Place::Late);
        if holders.stay.is_empty() {
            self.rescue(&now, &late, &holders, parked);
        } else {
            let sources = Sources::of(&holders.stay);
            self.copy(&now, &sources);
            self.copy(&late, &sources);
        }
    }

    /// Copies where no file that stays has the content: one is copied while it can be read, the
    /// others from that one.
    fn rescue(
        &mut self,
        now: &[&Wanted<'_>],
        late: &[&Wanted<'_>],
        holders: &Holders,
        parked: Option<(RelPath, RelPath)>,
    ) {
        if let Some((first, others)) = now.split_first() {
            let (_, name) = first.path.split_last().unzip();
            let sources = holders.gone.iter().chain(parked.as_ref().map(|(at, _)| at));
            let source = sources.chain(same_name(&holders.replaced, name.as_ref()));
            let Some(source) = source.chain(&holders.replaced).next() else {
                return;
            };
            self.early.push(Early {
                from: source.clone(),
                to: first.path.clone(),
                file: first.file.clone(),
            });
            self.count_copy(first);
            let made = [first.path.clone()];
            let sources = Sources::of(&made);
            self.copy(others, &sources);
            self.copy(late, &sources);
        } else if let Some((_, becomes)) = parked {
            self.copy(late, &Sources::of(&[becomes]));
        } else if let (Some((first, others)), Some(source)) =
            (late.split_first(), holders.replaced.first())
        {
            let at = self.parking.name();
            self.early.push(Early {
                from: source.clone(),
                to: at.clone(),
                file: first.file.clone(),
            });
            self.late_moves.push((at, first.path.clone()));
            self.count_copy(first);
            self.copy(others, &Sources::of(std::slice::from_ref(&first.path)));
        }
    }

    fn copy(&mut self, wanted: &[&Wanted<'_>], sources: &Sources<'_>) {
        for one in wanted {
            let Some(from) = sources.best(&one.path) else {
                continue;
            };
            let step = Step::Copy {
                from: from.clone(),
                to: one.path.clone(),
                file: one.file.clone(),
            };
            match one.place {
                Place::Free | Place::Taken => self.copies.push(step),
                Place::Late => self.late_copies.push(step),
            }
            self.count_copy(one);
        }
    }

    /// One that replaces something is counted as a change, where all those are.
    fn count_copy(&mut self, wanted: &Wanted<'_>) {
        if wanted.place != Place::Taken {
            self.copied.add(Some(wanted.file.size));
        }
    }

    fn emit(mut self, changes: Changes<'_>, plan: &mut Plan) {
        self.count(&changes, plan);
        plan.kept = changes.kept;
        plan.kept.sort_by(|one, other| one.path.cmp(&other.path));
        plan.wanted = std::mem::take(&mut self.wanted).into_iter().collect();
        for (path, file) in changes.modes {
            self.modes.push((path, file.executable));
        }
        let (late, links): (Vec<_>, Vec<_>) = changes
            .links
            .into_iter()
            .partition(|(_, _, place)| *place == Place::Late);
        let link = |(path, text, _): (RelPath, &crate::tree::entry::LinkText, Place)| Step::Link {
            path,
            text: text.clone(),
        };
        let (early, released) = in_order(self.early, &mut self.parking);
        let steps = &mut plan.steps;
        steps.extend(by_target(self.moves.into_iter().map(rename)));
        steps.extend(early);
        steps.extend(by_target(self.copies.into_iter()));
        steps.extend(by_target(self.writes.into_iter()));
        steps.extend(by_target(links.into_iter().map(link)));
        steps.extend(by_target(self.modes.into_iter().map(mode)));
        steps.extend(released.into_iter().map(|path| Step::Remove { path }));
        // Backwards, what is in a directory comes before it.
        for (path, gone) in changes.gone.into_iter().rev() {
            match gone {
                Gone::Directory => steps.push(Step::RemoveDirectory { path }),
                Gone::File(_) if self.moved.contains(&path) => {}
                Gone::File(_) | Gone::Other => steps.push(Step::Remove { path }),
            }
        }
        let directories = changes.late_directories.into_iter();
        steps.extend(by_target(
            directories.map(|path| Step::MakeDirectory { path }),
        ));
        steps.extend(by_target(self.late_moves.into_iter().map(rename)));
        steps.extend(by_target(self.late_copies.into_iter()));
        steps.extend(by_target(self.late_writes.into_iter()));
        steps.extend(by_target(late.into_iter().map(link)));
        steps.extend(by_target(self.late_modes.into_iter().map(mode)));
    }

    fn count(&self, changes: &Changes<'_>, plan: &mut Plan) {
        let summary = &mut plan.summary;
        for wanted in &changes.files {
            let bytes = Some(wanted.file.size);
            let written = wanted.file.size == 0 || self.wanted.contains_key(&wanted.file.content);
            match wanted.place {
                Place::Taken => summary.changed.add(bytes),
                Place::Free | Place::Late if written => summary.created.add(bytes),
                // Moved or copied, and counted as such.
                Place::Free | Place::Late => {}
            }
        }
        for (_, file) in &changes.modes {
            summary.changed.add(Some(file.size));
        }
        for (_, _, place) in &changes.links {
            match place {
                Place::Taken => summary.changed.add(None),
                Place::Free | Place::Late => summary.created.add(None),
            }
        }
        for _ in &changes.late_directories {
            summary.created.add(None);
        }
        for (path, gone) in &changes.gone {
            match gone {
                Gone::File(_) if self.moved.contains(path) => {}
                Gone::File(file) => summary.deleted.add(Some(file.size)),
                Gone::Directory | Gone::Other => summary.deleted.add(None),
            }
        }
        summary.copied = self.copied;
        let (all, files) = (&mut summary.moved, self.moved_tally);
        all.entries = all.entries.saturating_add(files.entries);
        all.files = all.files.saturating_add(files.files);
        all.bytes = all.bytes.saturating_add(files.bytes);
    }
}

fn rename((from, to): (RelPath, RelPath)) -> Step {
    Step::Move { from, to }
}

fn mode((path, executable): (RelPath, bool)) -> Step {
    Step::SetExecutable { path, executable }
}

fn by_target(steps: impl Iterator<Item = Step>) -> Vec<Step> {
    let mut steps: Vec<Step> = steps.collect();
    steps.sort_by(|one, other| one.target().cmp(other.target()));
    steps
}

/// What has each needed content, in the order of the paths, and which of those files are
/// executable.
fn holders<'a>(
    shape: &Shape<'a>,
    changes: &Changes<'a>,
    needed: &BTreeMap<ContentId, Vec<&Wanted<'a>>>,
) -> (HashMap<ContentId, Holders>, HashSet<RelPath>) {
    let mut found: HashMap<ContentId, Holders> = HashMap::new();
    let mut executable = HashSet::new();
    if needed.is_empty() {
        return (found, executable);
    }
    let gone: HashSet<&RelPath> = changes.gone.iter().map(|(path, _)| path).collect();
    shape.files(&mut |path, file| {
        if !needed.contains_key(&file.content) {
            return;
        }
        if file.executable {
            executable.insert(path.clone());
        }
        let holders = found.entry(file.content).or_default();
        if gone.contains(&path) {
            holders.gone.push(path);
        } else if changes.replaced.contains(&path) {
            holders.replaced.push(path);
        } else {
            holders.stay.push(path);
        }
    });
    for holders in found.values_mut() {
        holders.stay.sort();
        holders.gone.sort();
        holders.replaced.sort();
    }
    (found, executable)
}

/// Pairs files that can be moved to with files that are to go: the same name first, then in the
/// order of their paths. What is over stays in `gone` and comes back.
fn pair<'w, 'a>(
    wanted: Vec<&'w Wanted<'a>>,
    gone: &mut Vec<RelPath>,
) -> (Vec<(RelPath, &'w Wanted<'a>)>, Vec<&'w Wanted<'a>>) {
    let mut named: HashMap<Option<Name>, VecDeque<&RelPath>> = HashMap::new();
    for path in &*gone {
        named.entry(name_of(path)).or_default().push_back(path);
    }
    let mut pairs = Vec::new();
    let mut others = Vec::new();
    for one in wanted {
        match named
            .get_mut(&name_of(&one.path))
            .and_then(VecDeque::pop_front)
        {
            Some(from) => pairs.push((from.clone(), one)),
            None => others.push(one),
        }
    }
    let taken: HashSet<RelPath> = pairs.iter().map(|(from, _)| from.clone()).collect();
    gone.retain(|path| !taken.contains(path));
    let both = gone.len().min(others.len());
    let rest = others.split_off(both);
    pairs.extend(gone.drain(..both).zip(others));
    (pairs, rest)
}

fn name_of(path: &RelPath) -> Option<Name> {
    path.split_last().map(|(_, name)| name)
}

fn same_name<'p>(paths: &'p [RelPath], name: Option<&Name>) -> Option<&'p RelPath> {
    let name = name?.as_bytes();
    let mut paths = paths.iter();
    paths.find(|path| path.components().next_back() == Some(name))
}

/// Files that have one content, by name.
struct Sources<'p> {
    named: HashMap<&'p [u8], &'p RelPath>,
    first: Option<&'p RelPath>,
}

impl<'p> Sources<'p> {
    fn of(paths: &'p [RelPath]) -> Self {
        let mut named = HashMap::new();
        for path in paths {
            if let Some(name) = path.components().next_back() {
                named.entry(name).or_insert(path);
            }
        }
        Self {
            named,
            first: paths.first(),
        }
    }

    fn best(&self, path: &RelPath) -> Option<&'p RelPath> {
        let name = path.components().next_back();
        let named = name.and_then(|name| self.named.get(name).copied());
        named.or(self.first)
    }
}

/// Orders copies so that each file is read before it is replaced. Each reads one file and replaces
/// one at most, and no file is read by two, so what must come before what is chains and rings; a
/// ring is opened by parking one of its files, whose second name is given back to be removed.
fn in_order(copies: Vec<Early>, parking: &mut Parking<'_>) -> (Vec<Step>, Vec<RelPath>) {
    let mut left: BTreeMap<RelPath, Early> = BTreeMap::new();
    let mut reader: HashMap<RelPath, RelPath> = HashMap::new();
    for copy in copies {
        reader.insert(copy.from.clone(), copy.to.clone());
        left.insert(copy.to.clone(), copy);
    }
    let mut steps = Vec::new();
    let mut parked = Vec::new();
    while let Some((_, mut start)) = left.pop_first() {
        // All that must come before it, the last one first to be done.
        let mut chain = Vec::new();
        let mut at = start.to.clone();
        while let Some(before) = reader.get(&at).and_then(|to| left.remove(to)) {
            at = before.to.clone();
            chain.push(before);
        }
        if chain.last().is_some_and(|last| last.to == start.from) {
            let spare = parking.name();
            steps.push(Step::Copy {
                from: start.from,
                to: spare.clone(),
                file: start.file.clone(),
            });
            start.from = spare.clone();
            parked.push(spare);
        }
        let ordered = chain.into_iter().rev().chain([start]);
        steps.extend(ordered.map(|Early { from, to, file }| Step::Copy { from, to, file }));
    }
    (steps, parked)
}

/// Gives names in the root that neither tree has.
struct Parking<'t> {
    from: &'t Directory,
    to: &'t Directory,
    used: u64,
}

impl Parking<'_> {
    fn name(&mut self) -> RelPath {
        loop {
            let name = format!("{PARKED}{}", self.used);
            self.used = self.used.saturating_add(1);
            let free = [self.from, self.to]
                .iter()
                .all(|tree| tree.get(name.as_bytes()).is_none());
            if let (true, Ok(path)) = (free, RelPath::new(name)) {
                return path;
            }
        }
    }
}
