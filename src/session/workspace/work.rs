//! What is done with both ends of a session's mirror, before its agent and after. This blocks: it is
//! done in a thread of its own, and ends early when it is told to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::mirror::SessionMirror;
use crate::id::SessionId;
use crate::mirror::brakes::Allowed;
use crate::mirror::canary::Canary;
use crate::mirror::ends::{Around, Opened};
use crate::mirror::error::MirrorError;
use crate::mirror::failure::failure;
use crate::mirror::line::Line;
use crate::mirror::pair::{Local, Pair};
use crate::mirror::pull::{PullOptions, Pulled, Workspace};
use crate::mirror::push::{PushOptions, Pushed};
use crate::mirror::stop::Stop;
use crate::report::Failure;
use crate::secret::Credential;
use crate::tree::path::RelPath;

/// Pulling again because the tree there is another one than was pulled: nothing of the session runs
/// there any more, so what still writes is somebody else, who is not waited for.
const ROUNDS_MAX: u32 = 3;

/// What a mirror's work needs beside the mirror.
#[derive(Clone)]
pub struct Tools {
    /// What it is opened with.
    pub around: Around,
    /// What no file that is sent may hold.
    pub credential: Option<Arc<Credential>>,
    /// Files that look like secrets and go all the same.
    pub secrets: BTreeSet<RelPath>,
    /// Ends it early.
    pub stop: Stop,
}

/// What was done before an agent.
#[derive(Debug)]
pub struct Before {
    /// The work of the agent before, which was there still.
    pub pulled: Option<Pulled>,
    /// The push.
    pub pushed: Pushed,
}

/// What came of the agent's work.
#[derive(Debug)]
pub enum After {
    /// It is here, and nothing there is another way.
    Home(Pulled),
    /// A generation has it; the directory here stays as it is, for this reason.
    Kept(Pulled, Failure),
}

struct Work<'a> {
    mirror: &'a mut SessionMirror,
    tools: &'a Tools,
    local: Local,
    opened: Opened,
    line: Line,
}

/// Brings both ends to what the directory here is. What is there and was never brought here comes
/// first: nothing there is overwritten unseen.
///
/// # Errors
/// What stopped it; nothing is lost at either end.
pub fn before(mirror: &mut SessionMirror, tools: &Tools) -> Result<Before, Failure> {
    let mut work = Work::open(mirror, tools)?;
    let done = work.before();
    work.opened.close();
    done
}

/// Brings here what the agent did, and proves it.
///
/// # Errors
/// When no generation has it: it is on the host, and stays there.
pub fn after(mirror: &mut SessionMirror, tools: &Tools) -> Result<After, Failure> {
    let mut work = Work::open(mirror, tools)?;
    let done = work.after();
    work.opened.close();
    done
}

impl<'a> Work<'a> {
    fn open(mirror: &'a mut SessionMirror, tools: &'a Tools) -> Result<Self, Failure> {
        let around = &tools.around;
        let local = mirror.local()?;
        let opened = mirror.open_in_turn(&local, around, tools.stop.clone())?;
        let far = mirror.ends().far_text();
        Ok(Self {
            line: Line::new(&around.environment, Arc::clone(&around.clock), far),
            mirror,
            tools,
            local,
            opened,
        })
    }

    fn before(&mut self) -> Result<Before, Failure> {
        let pulled = if self.opened.pair().agreed().is_some() {
            self.bring_first()?
        } else {
            None
        };
        let credential = self.tools.credential.as_ref();
        let options = PushOptions {
            secrets: self.tools.secrets.clone(),
            canary: credential.map(|credential| Canary::new(Arc::clone(credential))),
            ..PushOptions::default()
        };
        let opened = &mut self.opened;
        let pushed = opened
            .with(&mut self.local, &self.line, |pair, ends| {
                pair.push(ends, &options)
            })
            .map_err(|error| failure(&error))?;
        opened.taken();
        self.mirror
            .pushed(&pushed, opened.pair(), &self.tools.around)?;
        self.line.clear();
        Ok(Before { pulled, pushed })
    }

    /// Pulls what is there and was not when both ends agreed.
    fn bring_first(&mut self) -> Result<Option<Pulled>, Failure> {
        let opened = &mut self.opened;
        let survey = opened.with(&mut self.local, &self.line, Pair::survey);
        if survey.map_err(|error| failure(&error))?.far.is_empty() {
            return Ok(None);
        }
        let pulled = self.pull(PullOptions::default());
        let pulled = pulled.map_err(|error| self.waits(&error))?;
        self.mirror.pulled(&pulled, &self.tools.around)?;
        match &pulled.workspace {
            Workspace::Brought { .. } | Workspace::Left => Ok(Some(pulled)),
            Workspace::Edited(paths) => {
                let edited = MirrorError::Edited(paths.clone());
                Err(self.waits(&edited))
            }
        }
    }

    fn pull(&mut self, options: PullOptions) -> Result<Pulled, MirrorError> {
        let opened = &mut self.opened;
        let pulled = opened.with(&mut self.local, &self.line, |pair, ends| {
            pair.pull(ends, options)
        })?;
        opened.taken();
        Ok(pulled)
    }

    fn after(&mut self) -> Result<After, Failure> {
        for _ in 0..ROUNDS_MAX {
            let pulled = match self.pull(PullOptions::default()) {
                Ok(pulled) => pulled,
                Err(error @ MirrorError::Brake(_)) => return self.keep(&error),
                Err(error) => return Err(failure(&error)),
            };
            self.mirror.pulled(&pulled, &self.tools.around)?;
            if let Workspace::Edited(paths) = &pulled.workspace {
                let why = self.waits(&MirrorError::Edited(paths.clone()));
                return Ok(After::Kept(pulled, why));
            }
            let opened = &mut self.opened;
            let survey = opened.with(&mut self.local, &self.line, Pair::survey);
            if survey.map_err(|error| failure(&error))?.far.is_empty() {
                self.line.clear();
                return Ok(After::Home(pulled));
            }
        }
        let host = &self.mirror.file().record.host;
        let text = format!("something on {host} still writes to the workspace");
        Err(Failure::failed(text).hint("stop it; then pull again"))
    }

    /// The work goes into a generation, and the directory here is left alone.
    fn keep(&mut self, error: &MirrorError) -> Result<After, Failure> {
        let why = self.waits(error);
        let options = PullOptions {
            allowed: Allowed::ALL,
            generation_only: true,
        };
        let pulled = self.pull(options).map_err(|error| failure(&error))?;
        self.mirror.pulled(&pulled, &self.tools.around)?;
        self.line.clear();
        Ok(After::Kept(pulled, why))
    }

    fn waits(&self, error: &MirrorError) -> Failure {
        decide(self.mirror.session(), error)
    }
}

/// Why a person has to decide, with the commands that do what was decided.
pub(super) fn decide(session: &SessionId, error: &MirrorError) -> Failure {
    let failure = failure(error);
    match error {
        MirrorError::Edited(_) => failure.hint(format!(
            "'labproxy mirror pull --session {session}' brings the rest here afterwards; \
             'labproxy mirror push --session {session} --force' keeps it as a generation and goes \
             on with what is here"
        )),
        MirrorError::Brake(_) => failure.hint(format!(
            "'labproxy mirror pull --session {session}' with --allow-empty or --allow-deletes does \
             here what was done there; 'labproxy mirror push --session {session} --force' undoes it \
             there"
        )),
        _ => failure,
    }
}
