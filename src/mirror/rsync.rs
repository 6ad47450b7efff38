//! `--engine rsync`: the system's rsync moves the contents, and nothing else.
//!
//! Everything that judges stays what it is: both ends scan their trees and prove them by hashes,
//! brakes, excludes and what is held back are decided from these, and labproxy's own ends change
//! the trees, step by step. rsync gets a list of files, and brings them into an empty private
//! directory: here for a pull, beside the tree at the other end for a push. From there only what has
//! the hash that was meant is taken, as from labproxy's own channel. So rsync deletes nothing, makes
//! no link and no device, and what a hostile one at the other end sends goes nowhere.
//!
//! At the other end it is started by `labproxy-remote rsync`, over a second connection that is made
//! as the first one was. The rsync here starts [`shell`] in place of ssh, which leads to this
//! process, and this process to that connection: it counts the bytes and keeps the time.

mod arguments;
mod child;
mod fetch;
pub mod shell;
mod stage;
mod version;
mod way;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Handle;

use self::version::Version;
use self::way::Way;
use crate::child::{self as children, Trampoline, Unfound};
use crate::report::Failure;
use crate::tree::path::RelPath;
use crate::tunnel::transport::Transport;

/// Which end's rsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// This machine's.
    Here,
    /// The other end's.
    There,
}

impl std::fmt::Display for Where {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Here => "on this machine",
            Self::There => "at the other end",
        })
    }
}

/// Why rsync did not move the contents.
#[derive(Debug, thiserror::Error)]
pub enum RsyncError {
    /// It is not there, or does not run.
    #[error("there is no rsync {at} that runs: {why}")]
    Absent {
        /// Where.
        at: Where,
        /// Why.
        why: String,
    },
    /// Its version is too low.
    #[error(
        "rsync {at} is version {found}, and --engine rsync needs {} or newer at both ends",
        Version::LOWEST
    )]
    TooOld {
        /// Where.
        at: Where,
        /// What it says of itself.
        found: String,
    },
    /// It does not say which version it is.
    #[error(
        "rsync {at} does not tell its version, which must be {} or newer: it says {said:?}",
        Version::LOWEST
    )]
    NoVersion {
        /// Where.
        at: Where,
        /// The first line of what it prints.
        said: String,
    },
    /// It ended with another status than it should.
    #[error("rsync ended with {}", status_text(*.status))]
    Ended {
        /// Its exit status; nothing when a signal ended it.
        status: Option<i32>,
        /// What it wrote to standard error, the first lines.
        said: Vec<String>,
    },
    /// Files did not arrive as they were read before.
    #[error("files did not arrive as they are here")]
    Unproven {
        /// Which, the first ones.
        paths: Vec<RelPath>,
        /// How many there are.
        count: u64,
        /// What rsync wrote to standard error, the first lines.
        said: Vec<String>,
    },
    /// Nothing passed for too long.
    #[error("rsync moved nothing for {} s", way::SILENCE.as_secs())]
    Silent,
    /// More came than was asked for.
    #[error("rsync at the other end sends more than the files that were asked for have")]
    TooMuch,
    /// There is no second connection.
    #[error("{}", .0.message())]
    Link(Box<Failure>),
    /// What the host's end said is no answer.
    #[error("the other end's answer about rsync is none: {0}")]
    Answer(String),
    /// This machine refused something.
    #[error("{what}: {error}")]
    Here {
        /// What.
        what: &'static str,
        /// Why.
        error: std::io::Error,
    },
}

fn status_text(status: Option<i32>) -> String {
    status.map_or_else(
        || "a signal".to_owned(),
        |status| format!("exit status {status}"),
    )
}

/// The rsync here, and the way to the one at the other end.
pub struct Rsync {
    program: PathBuf,
    /// Exactly what it gets of our environment.
    environment: Vec<(OsString, OsString)>,
    trampoline: Trampoline,
    /// labproxy's own file, which stands for ssh.
    own: PathBuf,
    runtime: Handle,
    /// Nothing when the other end is a directory of this machine.
    way: Option<Way>,
}

/// What rsync did.
#[derive(Debug)]
struct Moved {
    /// Bytes of contents that it sent, as it counts them; nothing when it does not say.
    literal: Option<u64>,
    /// What it wrote to standard error, the first lines.
    said: Vec<String>,
}

impl Rsync {
    /// Finds the rsync of this machine, and asks it which version it is. `path` is the PATH in
    /// which it is looked for.
    ///
    /// # Errors
    /// When there is none, or it is too old.
    pub fn find(
        path: Option<OsString>,
        runtime: Handle,
        trampoline: Trampoline,
    ) -> Result<Self, RsyncError> {
        let found = children::find("rsync".as_ref(), path.as_deref());
        let program = found.map_err(|why| RsyncError::Absent {
            at: Where::Here,
            why: match why {
                Unfound::Absent => "there is none in the PATH".to_owned(),
                Unfound::NotExecutable => "this user may not run it".to_owned(),
            },
        })?;
        let own = std::env::current_exe().map_err(|error| RsyncError::Here {
            what: "labproxy's own file cannot be found",
            error,
        })?;
        let mut environment = vec![("LC_ALL".into(), "C".into())];
        environment.extend(path.map(|path| ("PATH".into(), path)));
        let rsync = Self {
            program,
            environment,
            trampoline,
            own,
            runtime,
            way: None,
        };
        let printed = rsync.runtime.block_on(rsync.version())?;
        Version::check(&printed, Where::Here)?;
        Ok(rsync)
    }

    /// Makes the way to the rsync of a host, and asks that one which version it is. `sockets` is a
    /// directory of ours, 0700; `name` names this mirror in it.
    ///
    /// # Errors
    /// When there is no way, no rsync at its end, or one that is too old.
    pub fn reach(
        &mut self,
        transport: Arc<dyn Transport>,
        sockets: &Path,
        name: &str,
    ) -> Result<(), RsyncError> {
        let mut way = Way::new(transport, sockets.join(format!("rsync-{name}")));
        self.runtime.block_on(way.ready())?;
        self.way = Some(way);
        Ok(())
    }

    /// Leaves the host.
    pub fn leave(&mut self) {
        if let Some(way) = self.way.take() {
            self.runtime.block_on(way.close());
        }
    }
}
