//! Files that are written at once.

use std::collections::HashSet;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::super::path::RelPath;
use super::super::step::Step;
use super::WRITERS_MAX;
use super::ground::Ground;
use super::outcome::Undone;
use super::steps::{Done, Hand, size};
use super::view::View;

/// Most steps of a batch: what the results of one batch take in memory.
const BATCH_MAX: usize = 16_384;
/// Steps that a thread takes at once: neighbours mostly lie in one directory, and two threads in
/// one directory wait for each other.
const TAKEN: usize = 16;
/// Bytes after which it takes no further step at once: large files are shared out one by one.
const TAKEN_BYTES: u64 = 4 * 1024 * 1024;

/// How many of the first steps can be done in any order: files, none of which is made of another
/// one's target. At least the first.
pub(super) fn batch(steps: &[Step]) -> usize {
    let mut targets: HashSet<&RelPath> = HashSet::new();
    let mut sources: HashSet<&RelPath> = HashSet::new();
    let mut count = 0;
    for step in steps.iter().take(BATCH_MAX) {
        let (to, from) = match step {
            Step::Write { path, .. } => (path, None),
            Step::Copy { from, to, .. } => (to, Some(from)),
            Step::MakeDirectory { .. }
            | Step::Move { .. }
            | Step::Link { .. }
            | Step::SetExecutable { .. }
            | Step::Remove { .. }
            | Step::RemoveDirectory { .. } => break,
        };
        let clashes = targets.contains(to)
            || sources.contains(to)
            || from.is_some_and(|from| targets.contains(from));
        if clashes {
            break;
        }
        targets.insert(to);
        sources.extend(from);
        count += 1;
    }
    count.max(1)
}

/// Does a batch; one result a step, nothing for those that were not tried because of another one's
/// fatal end.
pub(super) fn run(
    ground: &Ground<'_>,
    view: &View<'_>,
    steps: &[Step],
    threads: NonZero<usize>,
) -> Vec<Option<Done>> {
    let all = threads.get().min(WRITERS_MAX);
    let threads = all.min(steps.len().div_ceil(TAKEN));
    // What a few large files leave idle helps with each of them.
    let each = all.div_ceil(threads.max(1));
    let work = Work {
        steps,
        next: Mutex::new(0),
        ended: AtomicBool::new(false),
        results: Mutex::new(Vec::new()),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where no thread can be had, this one does it all.
            let _started = std::thread::Builder::new()
                .name("mirror-write".to_owned())
                .spawn_scoped(scope, || work.share(ground, view, each));
        }
        work.share(ground, view, each);
    });
    let mut results: Vec<Option<Done>> = steps.iter().map(|_| None).collect();
    for (at, done) in work
        .results
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        if let Some(place) = results.get_mut(at) {
            *place = Some(done);
        }
    }
    results
}

struct Work<'a> {
    steps: &'a [Step],
    next: Mutex<usize>,
    ended: AtomicBool,
    results: Mutex<Vec<(usize, Done)>>,
}

impl Work<'_> {
    /// The next steps that nobody does yet; none when all are taken.
    fn claim(&self) -> Range<usize> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *next;
        let mut bytes = 0_u64;
        for step in self.steps.iter().skip(first).take(TAKEN) {
            *next += 1;
            bytes = bytes.saturating_add(size(step));
            if bytes >= TAKEN_BYTES {
                break;
            }
        }
        first..*next
    }

    /// Does what is left, some steps at a time.
    fn share(&self, ground: &Ground<'_>, view: &View<'_>, threads: usize) {
        let mut hand = Hand::new(ground, threads);
        let mut results = Vec::new();
        loop {
            let mine = self.claim();
            if mine.is_empty() || self.ended.load(Ordering::Relaxed) {
                break;
            }
            let steps = self.steps.iter().enumerate();
            for (at, step) in steps.skip(mine.start).take(mine.len()) {
                if self.ended.load(Ordering::Relaxed) {
                    break;
                }
                let done = hand.step(view, step);
                if matches!(done, Err(Undone::Fatal(_))) {
                    self.ended.store(true, Ordering::Relaxed);
                }
                results.push((at, done));
            }
        }
        let mut all = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut results);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::content::ContentId;
    use crate::tree::entry::{File, Seen};

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    fn file(size: u64) -> File {
        File {
            size,
            executable: false,
            content: ContentId::of(b""),
            seen: Seen::default(),
        }
    }

    fn write(at: &str, size: u64) -> Step {
        Step::Write {
            path: path(at),
            file: file(size),
        }
    }

    fn copy(from: &str, to: &str) -> Step {
        Step::Copy {
            from: path(from),
            to: path(to),
            file: file(0),
        }
    }

    /// What one step needs or makes is never in one batch with another step that changes it.
    #[test]
    fn a_batch_ends_where_order_matters() {
        let directory = || Step::MakeDirectory { path: path("d") };
        for (steps, together) in [
            (vec![write("a", 0), write("b", 0), copy("c", "d")], 3),
            (vec![write("a", 0), copy("a", "b")], 1),
            (vec![copy("a", "b"), write("a", 0)], 1),
            (vec![copy("a", "b"), copy("a", "c"), copy("b", "d")], 2),
            (vec![write("a", 0), write("b", 0), write("a", 0)], 2),
            (vec![write("a", 0), directory(), write("b", 0)], 1),
            (vec![directory(), directory()], 1),
        ] {
            assert_eq!(batch(&steps), together, "{steps:?}");
        }
        let many: Vec<Step> = (0..=BATCH_MAX)
            .map(|at| write(&at.to_string(), 0))
            .collect();
        assert_eq!(batch(&many), BATCH_MAX);
    }

    /// Small files are taken many at once, large ones by and by.
    #[test]
    fn large_files_are_shared_out() {
        let mut steps: Vec<Step> = (0..20).map(|at| write(&format!("s{at}"), 1_000)).collect();
        steps.extend((0..3).map(|at| write(&format!("l{at}"), TAKEN_BYTES)));
        let work = Work {
            steps: &steps,
            next: Mutex::new(0),
            ended: AtomicBool::new(false),
            results: Mutex::new(Vec::new()),
        };
        let claims: Vec<Range<usize>> = (0..5).map(|_| work.claim()).collect();
        assert_eq!(claims, [0..16, 16..21, 21..22, 22..23, 23..23]);
    }
}
