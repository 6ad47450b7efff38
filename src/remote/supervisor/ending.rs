//! The end of a session: TERM, a grace, KILL, then a look at what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;

use crate::processes::{self, ProcessStamp, Seen};
use crate::remote::cgroup::Group;
use crate::remote::clock::Moment;
use crate::remote::exec::Exec;
use crate::remote::link::Link;
use crate::remote::record::Record;
use crate::remote::{kill, tell};
use crate::wire::bytes::ByteString;
use crate::wire::link::{EndReport, FromHost, HostPart, LeftProcess, Refusal};

use super::Supervisor;
use super::looking::{self, FirstLook};

/// Between TERM and KILL when no controller says how long: a CLI writes its state in less.
pub(super) const LEASE_GRACE: Duration = Duration::from_secs(5);
/// The longest grace that a controller can ask for.
pub(super) const GRACE_MAX: Duration = Duration::from_mins(1);
/// How long killing is tried: what is left then waits for a device.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at what is left; nobody is told when a grandchild ends.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the report may take to leave.
const FAREWELL: Duration = Duration::from_secs(5);
/// Processes that a report names.
const LEFT_MAX: usize = 100;

/// Why everything is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The controller said so.
    Asked,
    /// No link for the lease.
    Lease,
    /// The guard is gone.
    Guard,
    /// A signal asked us to.
    Signal,
}

impl Cause {
    /// Which part of the host's side was killed, if that is why.
    pub(super) fn killed(self) -> Option<HostPart> {
        match self {
            Self::Guard => Some(HostPart::Guard),
            Self::Signal => Some(HostPart::Supervisor),
            Self::Asked | Self::Lease => None,
        }
    }
}

/// Where the end stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// TERM was sent; KILL comes then.
    Term { until: Moment },
    /// KILL is sent until nothing is left, or then.
    Kill { until: Moment },
    /// Nothing runs any more; what outlives the session is looked at.
    Look,
    /// Nothing runs any more; what was written last goes to the controller, but not after this.
    Drain { until: Moment },
    /// The report was queued; we go when it is written, or then.
    Told { until: Moment },
}

/// A session's end.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) cause: Cause,
    stage: Stage,
    /// Processes that were seen, and whether they were killed.
    seen: BTreeMap<ProcessStamp, bool>,
    looked: Moment,
    report: EndReport,
}

impl Ending {
    /// When it goes on.
    pub(super) fn next(&self, now: Moment) -> Moment {
        match self.stage {
            Stage::Told { until } | Stage::Drain { until } => until,
            Stage::Look => now.after(LOOK_EVERY),
            Stage::Term { .. } | Stage::Kill { .. } => self.looked.after(LOOK_EVERY).max(now),
        }
    }

    fn note(&mut self, processes: &[Seen], killed: bool) {
        for process in processes {
            *self.seen.entry(process.stamp).or_default() |= killed;
        }
    }

    fn report(&self, left: &[Seen]) -> EndReport {
        let still: BTreeSet<ProcessStamp> = left.iter().map(|process| process.stamp).collect();
        let gone = || self.seen.iter().filter(|(stamp, _)| !still.contains(stamp));
        let count = |wanted: bool| {
            let count = gone().filter(|(_, killed)| **killed == wanted).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        EndReport {
            ended: count(false),
            killed: count(true),
            left: left.iter().take(LEFT_MAX).map(left_process).collect(),
            escapes: Vec::new(),
            unseen: Vec::new(),
        }
    }
}

fn kill_all(group: Option<&Group>, family: &[Seen]) {
    if let Some(group) = group {
        group.kill();
    }
    kill::kill(family);
}

fn left_process(process: &Seen) -> LeftProcess {
    use std::os::unix::ffi::OsStrExt as _;
    LeftProcess {
        pid: process.stamp.pid.unsigned_abs(),
        state: process.state,
        name: ByteString::from(std::ffi::OsStr::from_bytes(&process.name)),
    }
}

impl Supervisor {
    /// Begins the end; a second reason changes nothing but that the grace may become shorter.
    pub(super) fn begin_ending(&mut self, cause: Cause, grace: Duration, now: Moment) {
        let until = now.after(grace);
        if let Some(ending) = &mut self.ending {
            if let Stage::Term { until: before } = ending.stage {
                ending.stage = Stage::Term {
                    until: before.min(until),
                };
            }
            return;
        }
        self.give_up_first_look();
        let family = self.family();
        for process in &family {
            kill::signal(process.stamp, Signal::TERM);
            // A stopped one acts on TERM only when it goes on.
            kill::signal(process.stamp, Signal::CONT);
        }
        let mut ending = Ending {
            cause,
            stage: Stage::Term { until },
            seen: BTreeMap::new(),
            looked: now,
            report: EndReport::default(),
        };
        ending.note(&family, false);
        self.ending = Some(ending);
    }

    /// A session that ends before its first look is over has none.
    fn give_up_first_look(&mut self) {
        if let FirstLook::Under(look, _) = &self.first_look {
            let own = i32::try_from(look.pid()).ok().and_then(processes::seen);
            if let Some(own) = own {
                let mut all = own.stamp.family();
                all.push(own);
                kill::kill(&all);
            }
            self.first_look = FirstLook::Over(None);
        }
    }

    /// Descendants that are the session's and not our own.
    fn family(&self) -> Vec<Seen> {
        let own = self.forwarding.as_ref().map(|all| all.forwarder.pid());
        let mut family = kill::family();
        family.retain(|process| Some(process.stamp.pid.unsigned_abs()) != own);
        family
    }

    /// Goes on with the end; gives whether it can go on further at once.
    pub(super) fn go_on_ending(&mut self, now: Moment) -> bool {
        let before = self.ending.as_ref().map(|ending| ending.stage);
        self.step_of_ending(now);
        let after = self.ending.as_ref().map(|ending| ending.stage);
        before != after && !self.over
    }

    fn step_of_ending(&mut self, now: Moment) {
        let family = self.family_if_due(now);
        let Some(ending) = &mut self.ending else {
            return;
        };
        if let Stage::Told { until } = ending.stage {
            let link = self.link.iter().chain(&self.others);
            let waits = link.into_iter().any(Link::is_waiting);
            self.over = !waits || now >= until;
            return;
        }
        if let Stage::Drain { until } = ending.stage {
            let told = self.execs.values().all(Exec::is_told);
            if told || now >= until || !self.is_attached() {
                self.finish(now);
            }
            return;
        }
        if ending.stage == Stage::Look {
            self.look_last(now);
            return;
        }
        let Some(family) = family else { return };
        ending.looked = now;
        match ending.stage {
            Stage::Term { until } if now < until && !family.is_empty() => {
                ending.note(&family, false);
            }
            Stage::Kill { until } if family.is_empty() || now >= until => {
                ending.report = ending.report(&family);
                // Without a controller nobody would hear what was seen.
                if ending.cause == Cause::Asked {
                    self.last_look = looking::begin(&self.login);
                }
                ending.stage = Stage::Look;
            }
            Stage::Term { .. } => {
                // Who is told to end may still ask the proxy; who is killed does not.
                self.forwarding = None;
                ending.stage = Stage::Kill {
                    until: now.after(KILL_LIMIT),
                };
                for exec in self.execs.values_mut() {
                    exec.killed = true;
                }
                ending.note(&family, true);
                kill_all(self.group.as_ref(), &family);
            }
            Stage::Kill { .. } | Stage::Look | Stage::Drain { .. } | Stage::Told { .. } => {
                ending.note(&family, true);
                kill_all(self.group.as_ref(), &family);
            }
        }
    }

    /// Waits for the last look, and goes on to tell what there is to tell.
    fn look_last(&mut self, now: Moment) {
        let mut seen = None;
        if let Some((look, until)) = &mut self.last_look {
            match looking::ended(look, *until, now) {
                Poll::Pending => return,
                Poll::Ready(snapshot) => seen = snapshot,
            }
        }
        self.last_look = None;
        // What the look itself started and left.
        kill::kill(&self.family());
        let Some(ending) = &mut self.ending else {
            return;
        };
        if ending.cause == Cause::Asked {
            looking::put_in(&mut ending.report, &self.first_look, seen.as_ref());
            if !self.contained {
                let what = "processes that left their parents: no control group holds them";
                ending.report.unseen.push(what.to_owned());
            }
        }
        if let Some(group) = &self.group {
            group.remove();
        }
        ending.stage = Stage::Drain {
            until: now.after(FAREWELL),
        };
    }

    fn family_if_due(&self, now: Moment) -> Option<Vec<Seen>> {
        let ending = self.ending.as_ref()?;
        let due = now >= ending.looked.after(LOOK_EVERY);
        let looks = matches!(ending.stage, Stage::Term { .. } | Stage::Kill { .. });
        (due && looks).then(|| self.family())
    }

    /// Nothing runs any more, or nothing can be done: removes and tells.
    fn finish(&mut self, now: Moment) {
        let Some(ending) = &mut self.ending else {
            return;
        };
        let (report, cause) = (std::mem::take(&mut ending.report), ending.cause);
        for process in &report.left {
            let name = &process.name;
            tell(&format!(
                "still there: {} {name:?} {}",
                process.pid, process.state
            ));
        }
        if let Err(error) = self.private.clear() {
            tell(&format!("private files stay: {error}"));
        }
        if let Err(error) = Record::remove(&self.session) {
            tell(&format!("the record stays: {error}"));
        }
        let last = match cause.killed() {
            Some(part) => FromHost::Refused(Refusal::Killed {
                part,
                left: u32::try_from(report.left.len()).unwrap_or(u32::MAX),
            }),
            None => FromHost::Ended(report),
        };
        if let Some(link) = &mut self.link {
            link.say_last(&last);
        }
        self.flush();
        if let Err(error) = self.place.remove() {
            tell(&format!("the runtime directory stays: {error}"));
        }
        if let Some(ending) = &mut self.ending {
            ending.stage = Stage::Told {
                until: now.after(FAREWELL),
            };
        }
    }
}
