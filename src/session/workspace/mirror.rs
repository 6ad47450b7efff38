//! The mirror of a session, opened by the session's name.

use std::path::Path;
use std::sync::Arc;

use super::record::{Pull, Push, RecordFile, Work};
use crate::config::Paths;
use crate::escape::escape;
use crate::id::SessionId;
use crate::mirror::ends::{Around, Ends, Opened};
use crate::mirror::failure::failure;
use crate::mirror::pair::{Local, Pair};
use crate::mirror::pull::{Pulled, Workspace};
use crate::mirror::push::Pushed;
use crate::mirror::stop::Stop;
use crate::report::Failure;
use crate::session::owner::{Ownership, ownership};
use crate::session::remote::record::{RecordFile as HostFile, Remains};
use crate::wire::bytes::ByteString;

/// The mirror of a session's workspace: the directory here and the one on the host.
#[derive(Clone, Debug)]
pub struct SessionMirror {
    session: SessionId,
    file: RecordFile,
    ends: Ends,
}

impl SessionMirror {
    /// Finds the mirror of a session.
    ///
    /// # Errors
    /// When the session has none, or its record cannot be read.
    pub fn of(session: &SessionId, paths: &Paths) -> Result<Self, Failure> {
        Self::find(session, paths)?.ok_or_else(|| {
            Failure::usage(format!(
                "session {session} has no workspace that is mirrored"
            ))
            .hint("only a session that began with --host HOST --workspace DIR has one")
        })
    }

    /// The same; `None` when the session has none.
    ///
    /// # Errors
    /// When its record cannot be read.
    pub fn find(session: &SessionId, paths: &Paths) -> Result<Option<Self>, Failure> {
        let file = RecordFile::read(&paths.session(session))?;
        Ok(file.map(|file| Self::new(session.clone(), file)))
    }

    pub(super) fn new(session: SessionId, file: RecordFile) -> Self {
        let record = &file.record;
        let remote = record.remote.clone().into_os_string();
        let ends = Ends::known(
            record.local(),
            record.host.clone(),
            ByteString::from(&remote),
            record.spec.clone(),
        );
        Self {
            session,
            file,
            ends,
        }
    }

    /// The session.
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// What is written down of it.
    pub const fn file(&self) -> &RecordFile {
        &self.file
    }

    /// To change what is written down.
    pub const fn file_mut(&mut self) -> &mut RecordFile {
        &mut self.file
    }

    /// Both ends.
    pub const fn ends(&self) -> &Ends {
        &self.ends
    }

    /// The directory here.
    ///
    /// # Errors
    /// When something else stands there.
    pub fn local(&self) -> Result<Local, Failure> {
        Local::open(self.ends.local()).map_err(|error| failure(&error))
    }

    /// Opens what is kept of the mirror here, generations among it, without the host.
    ///
    /// # Errors
    /// When somebody works with it, or it is damaged.
    pub fn pair(&self, local: &Local, around: &Around) -> Result<Pair, Failure> {
        self.ends.pair_of(local, around)
    }

    /// Opens both ends, over an ssh connection of its own. Work with them ends early when `stop` is
    /// told.
    ///
    /// # Errors
    /// When the host cannot be reached, or somebody works with the mirror.
    pub fn open(&self, local: &Local, around: &Around, stop: Stop) -> Result<Opened, Failure> {
        let excludes = self.file.record.excludes.without_files();
        self.ends.open(local, excludes, around, stop)
    }

    /// A person's line of what stays where when the session is forgotten: nobody's work is removed.
    pub fn given_up(&self) -> String {
        let record = &self.file.record;
        let pulled = if record.is_unpulled() {
            "work that was NOT pulled stays"
        } else {
            "its files stay"
        };
        let generations = match &record.last_pull {
            Some(_) => {
                let local = record.local();
                let local = escape(local.as_os_str().as_encoded_bytes());
                let far = self.ends.far_text();
                format!("; 'labproxy mirror list {local} {far}' lists what was pulled")
            }
            None => String::new(),
        };
        format!("{pulled} in {}{generations}", self.ends.far_text())
    }

    /// The same, in its turn: while somebody else works with the mirror it waits.
    ///
    /// # Errors
    /// As [`Self::open`]; when the other one does not end in time.
    pub fn open_in_turn(
        &self,
        local: &Local,
        around: &Around,
        stop: Stop,
    ) -> Result<Opened, Failure> {
        let excludes = self.file.record.excludes.without_files();
        self.ends.open_in_turn(local, &excludes, around, stop)
    }

    /// Writes down a push that ended well, with the excludes that are fixed from now on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn pushed(&mut self, pushed: &Pushed, pair: &Pair, around: &Around) -> Result<(), Failure> {
        let push = Push {
            at: around.clock.now(),
            tree: pushed.tree.to_string(),
            sent_bytes: pushed.sent,
        };
        let excludes = pair.frozen().clone();
        self.file.change(|record| {
            record.excludes = excludes;
            record.pushed(push);
        })
    }

    /// Writes down a pull. Only when nothing runs on the host any more, and the directory here
    /// followed, is the agent's work here.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn pulled(&mut self, pulled: &Pulled, around: &Around) -> Result<(), Failure> {
        let pull = Pull {
            at: around.clock.now(),
            generation: pulled.generation.number.0,
            tree: pulled.generation.tree.to_string(),
            received_bytes: pulled.received.bytes,
        };
        let is_home = matches!(pulled.workspace, Workspace::Brought { .. })
            && nothing_runs(&around.paths.session(&self.session))?;
        let changed_files = match &pulled.workspace {
            Workspace::Left | Workspace::Edited(_) => 0,
            Workspace::Brought { summary, .. } => summary.files(),
        };
        self.file.change(|record| {
            record.pulled(pull, changed_files);
            if is_home && record.is_unpulled() {
                record.work = Work::Pulled;
            }
        })
    }
}

/// Whether the host said that nothing of the session runs there any more, and no owner lives here who
/// could start something.
fn nothing_runs(directory: &Path) -> Result<bool, Failure> {
    let is_free = matches!(ownership(directory), Ok(Ownership::Free(_)));
    let host = HostFile::read(directory)?;
    Ok(is_free && host.is_none_or(|file| file.record.remains != Remains::Unknown))
}

/// What mirrors of a running session are opened with.
pub fn around(plan: &crate::session::start::Plan, clock: &crate::clock::SharedClock) -> Around {
    Around {
        paths: plan.paths.clone(),
        environment: plan.environment.clone(),
        directory: std::env::current_dir().unwrap_or_default(),
        clock: Arc::clone(clock),
    }
}
