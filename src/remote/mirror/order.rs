//! One order after the other: what each needs to have come before it, and what it does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::io::Errno;

use super::landing::Landing;
use super::root::OpenRoot;
use super::staging::Staging;
use super::{Line, delta, glance, listing, sending};
use crate::remote::login::Login;
use crate::tree::apply::{Applied, Apply, Contents, Modes};
use crate::tree::content::ContentId;
use crate::tree::entry::File;
use crate::tree::limits::Limits;
use crate::tree::path::RelPath;
use crate::tree::root::Root;
use crate::tree::scan::{self, Progress, Scan};
use crate::tree::step::Step;
use crate::wire::bytes::ByteString;
use crate::wire::mirror::{
    ASKED_MAX, FromMirror, Landed, NAMED_MAX, Open, Patch, Pieces, Ran, RootState, Scanned,
    ToMirror, WORKING_MS, Wish,
};
use crate::wire::pieces;

/// Most steps of one run: a tree's entries twice, each removed and each made.
const STEPS_MAX: u64 = 2 * crate::tree::limits::ENTRIES_MAX;

/// What a controller has ordered so far.
pub(super) struct Orders<'a> {
    login: &'a Login,
    opened: Option<Opened>,
}

/// From the first order on.
struct Opened {
    root: OpenRoot,
    limits: Limits,
    scan: Option<Scan>,
    staging: Option<Receiving>,
    landing: Option<Landing>,
    steps: Vec<Step>,
}

/// Contents that come.
struct Receiving {
    staging: Staging,
    /// What was announced and is not there, by its number, in the order in which it comes.
    missing: Vec<(u32, ContentId, u64)>,
    /// How many of these are whole.
    whole: usize,
}

impl<'a> Orders<'a> {
    pub(super) const fn new(login: &'a Login) -> Self {
        Self {
            login,
            opened: None,
        }
    }

    /// Carries out one order, and answers it.
    ///
    /// # Errors
    /// When it cannot be carried out, or makes no sense now: then nothing more is done.
    pub(super) fn carry_out(&mut self, order: ToMirror<'_>, line: &mut Line) -> Result<(), String> {
        let order = match order {
            ToMirror::Open(open) => return self.open(&open, line),
            ToMirror::Here => return Ok(()),
            order => order,
        };
        let opened = self
            .opened
            .as_mut()
            .ok_or("an order before a root was opened")?;
        match order {
            ToMirror::Open(_) | ToMirror::Here => Ok(()),
            ToMirror::Glance { files } => glance::glance(line, opened.root()?, &files),
            ToMirror::Take { any } => {
                opened.root.take(any)?;
                line.say(&FromMirror::Taken)
            }
            ToMirror::Scan => opened.scan(line),
            ToMirror::List { directories } => {
                let scan = opened.seen()?;
                if directories.len() > ASKED_MAX {
                    return Err("too many directories in one order".to_owned());
                }
                directories
                    .iter()
                    .try_for_each(|path| listing::list(line, &scan.tree, path))
            }
            ToMirror::Groups { content } => {
                listing::groups(line, opened.seen()?.groups.get(&content))
            }
            ToMirror::Delta { wish, signature } => {
                delta::send(line, opened.as_seen()?, &wish, signature.into_owned())
            }
            ToMirror::Sign(wish) => delta::sign(line, opened.as_seen()?, &wish),
            ToMirror::Patch(patch) => opened.patch(&patch, line),
            ToMirror::Fetch { wishes, packs } => opened.fetch(&wishes, packs, line),
            ToMirror::Stage { contents } => opened.stage(&contents, line),
            ToMirror::Pieces(pieces) => opened.receive(&pieces),
            ToMirror::StageEnd => opened.staged(line),
            ToMirror::Steps(steps) => opened.take_steps(steps),
            ToMirror::Run => opened.run(line),
            ToMirror::Unstage => opened.unstage(line),
            ToMirror::Locate { landing } => opened.locate(landing, line),
            ToMirror::Landed { files } => opened.landed(&files, line),
        }
    }

    fn open(&mut self, open: &Open, line: &mut Line) -> Result<(), String> {
        if self.opened.is_some() {
            return Err("a second root on one channel".to_owned());
        }
        let (root, state): (OpenRoot, RootState) = OpenRoot::find(open, self.login)?;
        self.opened = Some(Opened {
            root,
            limits: open.limits,
            scan: None,
            staging: None,
            landing: None,
            steps: Vec::new(),
        });
        line.say(&FromMirror::Opened(state))
    }
}

impl Opened {
    fn root(&self) -> Result<&Root, String> {
        let root = self.root.root.as_ref();
        root.ok_or_else(|| "the root does not exist".to_owned())
    }

    fn seen(&self) -> Result<&Scan, String> {
        let scan = self.scan.as_ref();
        scan.ok_or_else(|| "an order that needs a scan before it".to_owned())
    }

    fn as_seen(&self) -> Result<delta::Seen<'_>, String> {
        Ok(delta::Seen {
            root: self.root()?,
            stamps: &self.seen()?.stamps,
        })
    }

    fn patch(&mut self, patch: &Patch<'_>, line: &mut Line) -> Result<(), String> {
        let made = delta::patched(self.as_seen()?, patch)?;
        let Some(bytes) = made else {
            return line.say(&FromMirror::Gone { wish: 0 });
        };
        self.receiving()?.add(patch.content, &bytes)?;
        line.say(&FromMirror::Done)
    }

    fn receiving(&mut self) -> Result<&mut Receiving, String> {
        let receiving = self.staging.as_mut();
        receiving.ok_or_else(|| "contents that were not announced".to_owned())
    }

    fn scan(&mut self, line: &mut Line) -> Result<(), String> {
        // What the last one saw takes as much memory as the next.
        self.scan = None;
        let counters = Progress::default();
        let cancel = AtomicBool::new(false);
        let (root, path, limits) = (self.root()?, &self.root.path, self.limits);
        let scan = while_working(line, &counters, &cancel, || {
            let options = scan::Options {
                limits,
                threads: scan::processors(),
                skip: None,
                progress: &counters,
                cancel: &cancel,
            };
            scan::scan(root, path, options)
        })?
        .map_err(|error| error.to_string())?;
        let named = scan.problems.iter().take(NAMED_MAX);
        line.say(&FromMirror::Scanned(Scanned {
            hash: scan.tree.hash(),
            seen: scan.tree.seen(),
            totals: scan.tree.totals(),
            problems: named
                .map(|problem| (problem.path.clone(), problem.trouble.to_string()))
                .collect(),
            problem_count: count(scan.problems.len()),
        }))?;
        self.scan = Some(scan);
        Ok(())
    }

    fn fetch(&self, wishes: &[Wish], packs: bool, line: &mut Line) -> Result<(), String> {
        if wishes.len() > ASKED_MAX {
            return Err("too many wishes in one order".to_owned());
        }
        sending::send(line, self.root()?, &self.seen()?.stamps, wishes, packs)
    }

    fn stage(&mut self, contents: &[(ContentId, u64)], line: &mut Line) -> Result<(), String> {
        let staging = match self.staging.take() {
            Some(receiving) if receiving.whole == receiving.missing.len() => receiving.staging,
            Some(_) => return Err("contents are still coming".to_owned()),
            None => {
                let path = self.root.marks.beside("staged");
                Staging::open(&path).map_err(|error| error.to_string())?
            }
        };
        if contents.len() > ASKED_MAX {
            return Err("too many contents in one order".to_owned());
        }
        let (mut have, mut missing) = (Vec::new(), Vec::new());
        for ((content, size), index) in contents.iter().zip(0..) {
            if *size > self.limits.file {
                return Err("a content that is larger than a file may be".to_owned());
            }
            if staging.has(*content) {
                have.push(index);
            } else {
                missing.push((index, *content, *size));
            }
        }
        self.staging = Some(Receiving {
            staging,
            missing,
            whole: 0,
        });
        line.say(&FromMirror::Staged { have })
    }

    fn receive(&mut self, pieces: &Pieces<'_>) -> Result<(), String> {
        self.receiving()?.take(pieces)
    }

    fn staged(&mut self, line: &mut Line) -> Result<(), String> {
        let receiving = self.receiving()?;
        if receiving.whole < receiving.missing.len() {
            return Err("the contents that were announced did not all come".to_owned());
        }
        line.say(&FromMirror::Done)
    }

    /// Forgets what came, also what a run that was cut off has left.
    fn unstage(&mut self, line: &mut Line) -> Result<(), String> {
        self.staging = None;
        self.landing = None;
        let marks = &self.root.marks;
        Staging::remove(&marks.beside("staged")).map_err(|error| error.to_string())?;
        Landing::remove(&marks.beside("landing")).map_err(|error| error.to_string())?;
        line.say(&FromMirror::Done)
    }

    fn locate(&mut self, landing: bool, line: &mut Line) -> Result<(), String> {
        self.root()?;
        if landing {
            if !self.root.is_ours() {
                return Err("contents for a root that was not taken for this mirror".to_owned());
            }
            let path = self.root.marks.beside("landing");
            self.landing = Some(Landing::make(&path)?);
        }
        let landing = self.landing.as_ref().filter(|_| landing);
        line.say(&FromMirror::Located {
            root: ByteString::from(self.root.path.as_os_str()),
            landing: landing.map(|landing| ByteString::from(landing.path().as_os_str())),
        })
    }

    fn landed(&mut self, files: &[Landed], line: &mut Line) -> Result<(), String> {
        let landing = self.landing.as_mut();
        let landing = landing.ok_or("files of a directory that was not asked for")?;
        if files.len() > ASKED_MAX {
            return Err("too many files in one order".to_owned());
        }
        let counters = Progress::default();
        let cancel = AtomicBool::new(false);
        let have = while_working(line, &counters, &cancel, || {
            let proven = files.iter().zip(0..).filter(|(landed, _)| {
                !cancel.load(Ordering::Relaxed) && landing.prove(landed, &counters)
            });
            proven.map(|(_, index)| index).collect()
        })?;
        line.say(&FromMirror::Staged { have })
    }

    fn take_steps(&mut self, mut steps: Vec<Step>) -> Result<(), String> {
        let all = count(self.steps.len()).saturating_add(count(steps.len()));
        if all > STEPS_MAX {
            return Err("more steps than a tree can need".to_owned());
        }
        self.steps.append(&mut steps);
        Ok(())
    }

    fn run(&mut self, line: &mut Line) -> Result<(), String> {
        let steps = std::mem::take(&mut self.steps);
        if !self.root.is_ours() {
            return Err("steps for a root that was not taken for this mirror".to_owned());
        }
        let counters = Progress::default();
        let cancel = AtomicBool::new(false);
        let (root, scan) = (self.root()?, self.seen()?);
        let contents = Received {
            staging: self.staging.as_ref().map(|receiving| &receiving.staging),
            landing: self.landing.as_ref(),
        };
        let applied = while_working(line, &counters, &cancel, || {
            let mut apply = Apply::new(root, &scan.stamps, &contents, Modes::SHARED)?;
            let applied = apply.run(&steps);
            // What the controller is told is on the disk.
            rustix::fs::syncfs(root)?;
            Ok(applied)
        })?
        .map_err(|error: Errno| format!("the root cannot be changed: {error}"))?;
        // What it saw is not so any more.
        self.scan = None;
        line.say(&FromMirror::Ran(told(&applied)))
    }
}

impl Receiving {
    fn take(&mut self, pieces: &Pieces<'_>) -> Result<(), String> {
        let bytes = pieces::open(pieces).map_err(|error| error.to_string())?;
        let mut rest = &*bytes;
        for (index, length) in &pieces.parts {
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            let (part, after) = rest
                .split_at_checked(length)
                .ok_or("parts that are too long")?;
            rest = after;
            self.add(*index, part)?;
        }
        Ok(())
    }

    /// Takes the next part of a content.
    fn add(&mut self, index: u32, part: &[u8]) -> Result<(), String> {
        let next = self.missing.get(self.whole);
        let Some((_, content, size)) = next.filter(|(next, ..)| *next == index) else {
            return Err("contents in another order than they were announced".to_owned());
        };
        if !self.staging.is_filling() {
            let begun = self.staging.begin(*content, *size);
            begun.map_err(|error| error.to_string())?;
        }
        if !part.is_empty() {
            let added = self.staging.add(part);
            added.map_err(|error| error.to_string())?;
        }
        if !self.staging.is_filling() {
            self.whole += 1;
        }
        Ok(())
    }
}

/// What was received, for the applier.
struct Received<'a> {
    staging: Option<&'a Staging>,
    landing: Option<&'a Landing>,
}

impl Contents for Received<'_> {
    fn open(&self, file: &File) -> std::io::Result<Box<dyn std::io::Read + '_>> {
        if let Some(staged) = self.staging.and_then(|all| all.read(file.content)) {
            return Ok(Box::new(staged));
        }
        if let Some(landing) = self.landing
            && let Some(landed) = landing.read(file.content, file.size)?
        {
            return Ok(Box::new(landed));
        }
        // No controller sends nothing; the hash is proven as that of others.
        if file.size == 0 {
            return Ok(Box::new(std::io::empty()));
        }
        Err(std::io::ErrorKind::NotFound.into())
    }
}

/// Does something that takes time, and tells the controller meanwhile that it is being done.
fn while_working<T: Send>(
    line: &mut Line,
    counters: &Progress,
    cancel: &AtomicBool,
    work: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let (done, when_done) = mpsc::sync_channel(1);
        scope.spawn(move || {
            // Nobody waits any more when the controller has left.
            let _left = done.send(work());
        });
        loop {
            match when_done.recv_timeout(Duration::from_millis(WORKING_MS)) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => return Err("a thread ended".to_owned()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let told = line.say(&FromMirror::Working {
                entries: counters.entries.load(Ordering::Relaxed),
                bytes: counters.bytes.load(Ordering::Relaxed),
            });
            if let Err(why) = told {
                cancel.store(true, Ordering::Relaxed);
                return Err(why);
            }
        }
    })
}

fn told(applied: &Applied) -> Ran {
    Ran {
        done: applied.done,
        kept: named(&applied.kept),
        kept_count: count(applied.kept.len()),
        failed: named(&applied.failed),
        failed_count: count(applied.failed.len()),
        stopped: applied.stopped.as_ref().map(ToString::to_string),
    }
}

fn named<W: ToString>(paths: &[(RelPath, W)]) -> Vec<(RelPath, String)> {
    let first = paths.iter().take(NAMED_MAX);
    first
        .map(|(path, why)| (path.clone(), why.to_string()))
        .collect()
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
