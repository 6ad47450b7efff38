//! An audit from its pull to its verdict, each step taken once.
//!
//! Whatever comes of it is in the ledger before anybody is told: what could not be pulled, what the
//! policy found, how the tool ended, and that its input was altered.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::change::Change;
use super::desk::Desk;
use super::policy::{Finding, Policy};
use super::record::{self, Begun};
use super::sandbox::{self, Access, Sandbox};
use super::tool::{End, Tool};
use super::view::{Afterwards, View};
use crate::child::Trampoline;
use crate::clock::SharedClock;
use crate::id::SessionId;
use crate::ledger::{Audit, AuditedGeneration, Ledger, Verdict};
use crate::mirror::durable;
use crate::mirror::store::{GenerationNumber, Keep, Store};
use crate::report::Failure;

/// What keeps a tool in.
#[derive(Debug)]
pub enum Confinement {
    /// bubblewrap.
    Sandbox(Sandbox),
    /// Nothing; programs are found in this `PATH`.
    None(OsString),
}

/// An audit that has begun.
#[derive(Debug)]
pub struct Run<'a> {
    /// The session's place.
    pub desk: Desk,
    /// Where the verdict goes.
    pub ledger: Ledger,
    /// Whose workspace it is.
    pub session: SessionId,
    /// The tool and what is known of it.
    pub begun: Begun<'a>,
    /// What keeps the tool in.
    pub confinement: Confinement,
    /// The clock.
    pub clock: SharedClock,
    /// Time since boot when it began.
    pub since: Duration,
}

/// How a tool is run.
#[derive(Debug)]
pub struct Ways {
    /// What it is started through.
    pub trampoline: Trampoline,
    /// The environment that labproxy was started with; of it only a closed list goes on.
    pub inherited: Vec<(OsString, OsString)>,
    /// How long it may run.
    pub limit: Duration,
    /// Its limit of core dumps, bytes; nothing is without limit.
    pub core: Option<u64>,
    /// Whether it may change its copy, which then becomes the workspace's content.
    pub restore: bool,
}

/// What came of a look.
#[derive(Debug)]
pub enum Looked {
    /// The verdict is written down.
    Done(Box<Audit>),
    /// The tool passed and changed its copy, as it may: what becomes of that is the verdict.
    Changed(Box<Change>),
}

/// What a tool may look at.
#[derive(Debug)]
pub struct Copied {
    generation: AuditedGeneration,
    view: View,
}

/// What the policy says of a generation.
#[derive(Debug)]
pub enum Judged {
    /// The tool may look at its copy.
    Copied(Box<Copied>),
    /// It may not.
    Refused {
        /// Everything that is refused.
        findings: Vec<Finding>,
        /// What the ledger has of it.
        audit: Box<Audit>,
    },
}

impl Run<'_> {
    /// Writes down that nothing could be pulled.
    ///
    /// # Errors
    /// When the ledger does not take it.
    pub fn not_pulled(&self, failure: &Failure) -> Result<Audit, Failure> {
        let why = record::reason(failure);
        self.record(None, Verdict::NotPulled { why })
    }

    /// Judges a generation, and makes the tool's copy of it.
    ///
    /// # Errors
    /// When it cannot be read or copied, which is written down.
    pub fn judge(
        &self,
        store: &Store,
        number: GenerationNumber,
        policy: &Policy,
    ) -> Result<Judged, Failure> {
        let loaded = store.load(number).map_err(|error| {
            Failure::because(format!("generation {number} cannot be read"), &error)
        });
        let (head, tree) = match loaded {
            Ok(loaded) => loaded,
            Err(failure) => return Err(self.not_run(None, failure)),
        };
        let generation = record::generation(&head);
        let findings = policy.judge(&tree);
        if !findings.is_empty() {
            let audit = Box::new(self.record(Some(generation), record::findings(&findings))?);
            return Ok(Judged::Refused { findings, audit });
        }
        match View::make(&self.desk.view(), store, &tree) {
            Ok(view) => Ok(Judged::Copied(Box::new(Copied { generation, view }))),
            Err(failure) => Err(self.not_run(Some(generation), failure)),
        }
    }

    /// Lets the tool look, reads the copy again, and writes the verdict down; a change that it may
    /// make is given back.
    ///
    /// # Errors
    /// When the tool cannot be started, which is written down; when the ledger does not take it.
    pub fn look(&self, copied: Copied, ways: Ways) -> Result<Looked, Failure> {
        let Copied { generation, view } = copied;
        let (limit, restore) = (ways.limit, ways.restore);
        // A signal ends the tool, and the reading of what it left; afterwards it ends labproxy.
        let (cancel, is_over) = (Arc::new(AtomicBool::new(false)), Arc::default());
        hear(&cancel, &is_over)
            .map_err(|error| Failure::because("signals cannot be heard", &error))?;
        let tool = self.tool(&generation, &view, ways);
        let ended = tool.and_then(|tool| {
            let cannot = "the tool cannot be started or waited for";
            tool.run().map_err(|error| Failure::because(cannot, &error))
        });
        let end = match ended {
            Ok(end) => end,
            Err(failure) => return Err(self.not_run(Some(generation), failure)),
        };
        // What was cut short says nothing of its input.
        let mut afterwards = match end {
            End::Exited(_) => view.compare(&cancel).ok(),
            End::TimedOut | End::Interrupted(_) => None,
        };
        is_over.store(true, Ordering::Relaxed);
        if cancel.load(Ordering::Relaxed) {
            afterwards = None;
        }
        // A tool that fails changes nothing.
        let is_altered = matches!(afterwards, Some(Afterwards::Altered { tree: Some(_), .. }));
        if restore && is_altered && end != End::Exited(0) {
            afterwards = Some(Afterwards::Same);
        }
        if restore
            && end == End::Exited(0)
            && let Some(Afterwards::Altered {
                tree: Some(tree),
                paths,
                count,
            }) = afterwards
        {
            return Ok(Looked::Changed(Box::new(Change {
                generation,
                view,
                tree,
                paths,
                count,
            })));
        }
        drop(view);
        let verdict = record::verdict(end, limit, afterwards);
        let audit = self.record(Some(generation), verdict)?;
        self.desk.clear()?;
        Ok(Looked::Done(Box::new(audit)))
    }

    fn tool(
        &self,
        generation: &AuditedGeneration,
        view: &View,
        ways: Ways,
    ) -> Result<Tool, Failure> {
        let argv = self.begun.argv;
        let (program, argv, home, path, directory, workspace) = match &self.confinement {
            Confinement::Sandbox(sandbox) => {
                let access = if ways.restore {
                    Access::Write
                } else {
                    Access::Read
                };
                let (program, argv) = sandbox.command(view.workspace(), access, argv);
                let home = sandbox::home().to_owned();
                let path = OsString::from(sandbox::PATH);
                (program, argv, home, path, None, sandbox::WORKSPACE.into())
            }
            Confinement::None(path) => {
                let home = self.desk.view().join("home");
                durable::private_directory(&home)
                    .map_err(|error| Failure::because("the tool's home cannot be made", &error))?;
                let name = argv.first().map(OsString::as_os_str).unwrap_or_default();
                let program = program_of(name, path)?;
                let real = view.workspace().to_owned();
                let directory = Some(real.clone());
                let home = home.into_os_string();
                (program, argv.to_vec(), home, path.clone(), directory, real)
            }
        };
        let mut environment = sandbox::environment(ways.inherited, &home, &path);
        let told: [(&str, &OsStr); 3] = [
            ("LABPROXY_AUDIT_WORKSPACE", workspace.as_os_str()),
            ("LABPROXY_AUDIT_TREE", generation.tree.as_ref()),
            ("LABPROXY_AUDIT_SESSION", self.session.as_str().as_ref()),
        ];
        environment.extend(told.map(|(name, value)| (name.into(), value.to_owned())));
        Ok(Tool {
            trampoline: ways.trampoline,
            program,
            argv,
            environment,
            directory,
            limit: ways.limit,
            core: ways.core,
            limits: self.begun.limits.of_process(),
        })
    }

    /// Writes down why nobody looked, and gives that back.
    fn not_run(&self, generation: Option<AuditedGeneration>, failure: Failure) -> Failure {
        // What of it stays is cleared away by the next audit.
        let _cleared = self.desk.clear();
        let why = record::reason(&failure);
        match self.record(generation, Verdict::NotRun { why }) {
            Ok(_) => failure,
            Err(unrecorded) => {
                failure.problem(format!("nor is that recorded: {}", unrecorded.message()))
            }
        }
    }

    pub(super) fn record(
        &self,
        generation: Option<AuditedGeneration>,
        verdict: Verdict,
    ) -> Result<Audit, Failure> {
        let passed = self.clock.since_boot().saturating_sub(self.since);
        self.begun
            .record(&self.ledger, &self.session, generation, verdict, passed)
    }
}

/// Has a signal set `cancel`; once `is_over` is set it does what it does by itself.
fn hear(cancel: &Arc<AtomicBool>, is_over: &Arc<AtomicBool>) -> std::io::Result<()> {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP].map(Signal::as_raw) {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(is_over))?;
        signal_hook::flag::register(signal, Arc::clone(cancel))?;
    }
    Ok(())
}

/// The program of a tool without a sandbox; a path that begins in its copy is left to the start.
///
/// # Errors
/// When there is none: exit status 126 or 127.
pub fn program_of(name: &OsStr, path: &OsStr) -> Result<PathBuf, Failure> {
    use crate::child::{Unfound, find};
    use crate::report::FailureKind;
    let is_path = name.as_encoded_bytes().contains(&b'/');
    if is_path && !std::path::Path::new(name).is_absolute() {
        return Ok(PathBuf::from(name));
    }
    find(name, Some(path)).map_err(|why| {
        let shown = crate::escape::escape(name.as_encoded_bytes());
        match why {
            Unfound::Absent => {
                Failure::new(FailureKind::NotFound, format!("'{shown}' was not found"))
            }
            Unfound::NotExecutable => Failure::new(
                FailureKind::NotExecutable,
                format!("'{shown}' is not executable"),
            ),
        }
    })
}

/// Removes older generations that the configuration does not keep.
///
/// # Errors
/// When the store cannot be read or the disk refuses.
pub fn collect(
    store: &Store,
    age: Duration,
    bytes: u64,
    clock: &SharedClock,
) -> Result<(), Failure> {
    let keep = Keep {
        age,
        bytes,
        ..Keep::default()
    };
    store
        .collect(&keep, clock.now())
        .map(drop)
        .map_err(|error| Failure::because("older generations cannot be removed", &error))
}
