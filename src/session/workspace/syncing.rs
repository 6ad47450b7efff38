//! A running session's workspace: pushed before the agent, brought here after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::alone;
use super::asked::{self, Direction, Done, Gate, Turn};
use super::mirror::SessionMirror;
use super::plan::PlannedWorkspace;
use super::record::{RecordFile, Totals, Work, WorkspaceRecord};
use super::told;
use super::work::{self, After, Tools};
use crate::ledger::WorkspaceEnd;
use crate::mirror::ends::Around;
use crate::mirror::stop::Stop;
use crate::report::{self, Failure};
use crate::session::control::events::{Event, Events, Pass};
use crate::session::live::{Access, Live};
use crate::session::remote::plan::PlannedHost;
use crate::session::start::Plan;

/// The workspace of a live session.
pub struct Syncing {
    mirror: Arc<Mutex<SessionMirror>>,
    tools: Tools,
    host: String,
    /// What was pushed and pulled before this run of the session.
    before: Totals,
    /// Whether an agent was let in by this run.
    is_open: AtomicBool,
    /// The work that is done now.
    now: Mutex<Stop>,
    threads: TaskTracker,
    /// Who may work with it while the agent runs.
    gate: Arc<Gate>,
    /// Tells who watches the session.
    events: Events,
}

/// What became of the workspace, for the ledger and for the user.
pub struct Ended {
    /// For the receipt.
    pub sums: WorkspaceEnd,
    /// For the user, each ending with a newline.
    pub text: String,
}

impl Syncing {
    /// Writes down the workspace of a session that begins, unless another session lives in it.
    ///
    /// # Errors
    /// When one does, or the record cannot be written.
    pub fn claim(
        live: &Live,
        plan: &Plan,
        (host, planned): (&PlannedHost, &PlannedWorkspace),
        access: &Access,
    ) -> Result<Self, Failure> {
        let choosing = alone::choosing(&plan.paths)?;
        alone::refuse_beside_another(&planned.local, Some(&live.session), &plan.paths)?;
        let file = match RecordFile::read(&live.directory)? {
            Some(file) => file,
            None => RecordFile::begin(
                &live.directory,
                WorkspaceRecord::new(
                    &planned.local,
                    (&host.name, host.spec.clone()),
                    &format!(
                        "{}/sessions/{}/workspace",
                        host.spec.workdir.as_str(),
                        live.session
                    ),
                    planned.excludes.clone(),
                ),
            )?,
        };
        drop(choosing);
        let around = Around {
            paths: plan.paths.clone(),
            environment: plan.environment.clone(),
            directory: planned.local.clone(),
            clock: Arc::clone(&live.clock),
        };
        Ok(Self {
            before: file.record.totals,
            mirror: Arc::new(Mutex::new(SessionMirror::new(live.session.clone(), file))),
            tools: Tools {
                around,
                credential: Some(Arc::clone(&access.credential)),
                secrets: planned.secrets.clone(),
                stop: Stop::default(),
            },
            host: host.name.clone(),
            is_open: AtomicBool::new(false),
            now: Mutex::default(),
            threads: TaskTracker::new(),
            gate: Gate::new(),
            events: live.events.clone(),
        })
    }

    /// Brings the host's workspace to what the directory here is; after a resume, what was done there
    /// comes here first.
    ///
    /// # Errors
    /// What stopped it: nothing is lost at either end.
    pub async fn before(&self) -> Result<(), Failure> {
        self.tell(Direction::Push, || Pass::Began);
        let done = self.in_thread(work::before).await?;
        let host = &self.host;
        let done = done.map_err(|failure| {
            self.tell(Direction::Push, || refused(&failure));
            failure.within(format!("the workspace was not pushed to {host}"))
        })?;
        if let Some(pulled) = &done.pulled {
            self.tell(Direction::Pull, || Pass::pulled(pulled));
        }
        self.tell(Direction::Push, || Pass::pushed(&done.pushed));
        if let Some(pulled) = &done.pulled {
            report::tell(&told::pulled(pulled, &self.mirror().session().clone()));
        }
        report::tell(&told::pushed(&done.pushed, host));
        Ok(())
    }

    /// An agent is about to be started there: from now on its work may be there.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn open(&self) -> Result<(), Failure> {
        self.is_open.store(true, Ordering::Relaxed);
        self.work(Work::Open)
    }

    /// The agent was not started after all.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn not_begun(&self) -> Result<(), Failure> {
        self.is_open.store(false, Ordering::Relaxed);
        self.work(Work::None)
    }

    /// Ends what is done with it now, and waits until nothing of it runs.
    pub async fn halt(&self) {
        self.current().stop();
        self.threads.close();
        self.threads.wait().await;
        self.threads.reopen();
    }

    /// The agent was let in: from now on [`Self::ask`] may be.
    pub fn serve(&self) {
        self.gate.open();
    }

    /// The host, as the user names it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What somebody asked for and is being done.
    pub fn doing(&self) -> Option<Direction> {
        self.gate.doing()
    }

    /// Takes the only place of somebody who asks for a pull or a push.
    ///
    /// # Errors
    /// When somebody has it, or nobody may have it now.
    pub fn enter(&self, direction: Direction) -> Result<Turn, Failure> {
        self.gate.enter(direction)
    }

    /// Does what somebody asked for, to its end, also when nobody waits for it any more.
    ///
    /// # Errors
    /// What stopped it; nothing is lost at either end.
    pub async fn ask(self: Arc<Self>, turn: Turn) -> Result<Done, Failure> {
        let doing = tokio::spawn(async move {
            let direction = turn.direction();
            self.tell(direction, || Pass::Began);
            let done = match direction {
                Direction::Pull => self.in_thread(asked::pull).await,
                Direction::Push => self.in_thread(asked::push).await,
            };
            let done = done.and_then(|done| done);
            drop(turn);
            self.tell(direction, || match &done {
                Ok(done) => done.told.clone(),
                Err(failure) => refused(failure),
            });
            done
        });
        doing
            .await
            .map_err(|_| Failure::failed("the mirror's work ended without an answer"))?
    }

    /// Brings the agent's work here, when there may be some. `is_quiet`: the host said that nothing
    /// of the session runs there any more. `hurry` ends it: the work then stays there.
    pub async fn end(&self, is_quiet: bool, hurry: &CancellationToken) -> Ended {
        let host = &self.host;
        // What was asked for goes to its end first: a push that is cut off looks like edits there.
        tokio::select! {
            () = self.gate.close() => {}
            () = hurry.cancelled() => {
                self.halt().await;
                self.gate.close().await;
            }
        }
        let record = self.mirror().file().record.clone();
        let session = self.mirror().session().clone();
        if !self.is_open.load(Ordering::Relaxed) {
            return self.ended(String::new());
        }
        let come = if is_quiet {
            report::tell(&told::pulling(host));
            self.tell(Direction::Pull, || Pass::Began);
            let doing = self.in_thread(work::after);
            tokio::select! {
                come = doing => come.and_then(|come| come),
                () = hurry.cancelled() => {
                    self.halt().await;
                    Err(Failure::failed("the pull was interrupted"))
                }
            }
        } else {
            let text =
                format!("{host} did not say that nothing of the session runs there any more");
            Err(Failure::failed(text))
        };
        self.tell(Direction::Pull, || match &come {
            Ok(After::Home(pulled)) => Pass::pulled(pulled),
            Ok(After::Kept(_, why)) | Err(why) => refused(why),
        });
        let (work, mut text) = match come {
            Ok(After::Home(pulled)) => (Work::Pulled, told::pulled(&pulled, &session)),
            Ok(After::Kept(pulled, why)) => {
                let (record, text) = (&record, told::kept(&pulled, &why, &session));
                (
                    told::unpulled_as(&why),
                    text + &told::stays(record, &session),
                )
            }
            Err(why) => {
                let text = told::not_pulled(&why, host);
                (
                    told::unpulled_as(&why),
                    text + &told::stays(&record, &session),
                )
            }
        };
        if let Err(failure) = self.work(work) {
            text += &failure.render(crate::table::Style::Plain);
        }
        self.ended(text)
    }

    fn ended(&self, text: String) -> Ended {
        let mirror = self.mirror();
        let record = &mirror.file().record;
        let totals = record.totals.since(&self.before);
        let pulled = record.last_pull.as_ref().filter(|_| totals.pulls > 0);
        let pushed = record.last_push.as_ref().filter(|_| totals.pushes > 0);
        Ended {
            sums: WorkspaceEnd {
                pushes: totals.pushes,
                pulls: totals.pulls,
                sent_bytes: totals.sent_bytes,
                received_bytes: totals.received_bytes,
                changed_files: totals.changed_files,
                tree_before: pushed.map(|push| push.tree.clone()),
                tree_after: pulled.map(|pull| pull.tree.clone()),
                generation: pulled.map(|pull| pull.generation),
                unpulled: record.is_unpulled(),
            },
            text,
        }
    }

    fn work(&self, work: Work) -> Result<(), Failure> {
        self.mirror().file_mut().change(|record| record.work = work)
    }

    fn tell(&self, direction: Direction, pass: impl FnOnce() -> Pass) {
        self.events.tell(|| Event::Pass(direction, pass()));
    }

    fn mirror(&self) -> MutexGuard<'_, SessionMirror> {
        self.mirror.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Stop {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    /// Does what blocks in a thread. Who stops waiting calls [`Self::halt`].
    async fn in_thread<T: Send + 'static>(
        &self,
        work: fn(&mut SessionMirror, &Tools) -> Result<T, Failure>,
    ) -> Result<Result<T, Failure>, Failure> {
        let stop = Stop::default();
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = stop.clone();
        let tools = Tools {
            stop,
            ..self.tools.clone()
        };
        let mirror = Arc::clone(&self.mirror);
        let (reply, answer) = oneshot::channel();
        self.threads.spawn_blocking(move || {
            let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody waits any more after a halt.
            let _answered = reply.send(work(&mut mirror, &tools));
        });
        answer
            .await
            .map_err(|_| Failure::failed("the thread of the mirror ended without an answer"))
    }
}

fn refused(why: &Failure) -> Pass {
    Pass::Refused(why.message().to_owned())
}
