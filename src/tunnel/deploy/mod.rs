//! The helper's way to the host: found there by its content, sent when it is not there, proven
//! through the descriptor that is executed, and started in a role.

mod answer;
mod script;

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use openssh::{ChildStderr, ChildStdin, ChildStdout, Session};
use tokio::io::Chain;
use tokio::sync::OwnedSemaphorePermit;

use self::answer::{Answer, Talk};
use self::script::{COMMAND, Names};
use super::program::Program;
use super::ssh::failure::{Awaited, LinkFailure, RefusedDirectory};
use super::ssh::master::Master;
use super::transport::Role;
use crate::wire::greeting::Nonce;

/// For the helper, or for an answer in its place: a login shell that reads slow start-up files.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// For sending the helper, 1.5 MB: 15 kB/s.
const UPLOAD_LIMIT: Duration = Duration::from_secs(100);
/// Times that the helper is asked for: once for each of four directories, and once more for one that
/// was replaced at the wrong moment.
const WANTS_MAX: usize = 5;
/// For the exit status of a command whose output ended.
const STATUS_LIMIT: Duration = Duration::from_secs(2);

/// From the helper: what came with the greeting, then the rest.
pub type ChannelReader = Chain<Cursor<Vec<u8>>, ChildStdout>;

/// The helper in a role, after its greeting: frames both ways.
#[derive(Debug)]
pub struct Channel {
    /// Frames from the helper.
    pub reader: ChannelReader,
    /// Frames to it.
    pub writer: ChildStdin,
    /// What it writes to standard error.
    pub stderr: ChildStderr,
    /// Its life, and its place among the connection's channels.
    pub life: ChannelLife,
    /// What the login printed before anything of ours; the first 4 KiB of it.
    pub noise: Vec<u8>,
    /// Whether the helper had to be sent.
    pub was_sent: bool,
}

/// The life of a channel; dropping it gives its place free.
#[derive(Debug)]
pub struct ChannelLife {
    child: openssh::Child<Arc<Session>>,
    _permit: OwnedSemaphorePermit,
}

impl ChannelLife {
    /// Waits for the end of the remote program: its exit status, `None` when a signal or the end of
    /// the connection ended it.
    pub async fn ended(self) -> Option<i32> {
        status(self.child).await
    }
}

async fn status(child: openssh::Child<Arc<Session>>) -> Option<i32> {
    match child.wait().await {
        Ok(status) => status.code(),
        // The crate tells this one status by an error.
        Err(openssh::Error::Remote(_)) => Some(127),
        Err(_) => None,
    }
}

impl Master {
    /// Starts the helper on the host in a role, after sending it when it is not there.
    ///
    /// # Errors
    /// When it cannot be sent or does not run; the text holds what the login printed.
    pub async fn helper(&self, role: Role, nonce: Nonce) -> Result<Channel, LinkFailure> {
        let helped = match self.helper_of(Program::own(), role, nonce).await {
            Err(LinkFailure::NoHelper { architecture }) => {
                let program = Program::beside(&architecture)?;
                self.helper_of(program, role, nonce).await
            }
            done => done,
        };
        match helped {
            // A login may have ended because its connection did, which says more.
            Err(
                ended @ (LinkFailure::GreetingNotSeen { .. } | LinkFailure::HelperCannotRun { .. }),
            ) => Err(self.is_alive().await.err().unwrap_or(ended)),
            done => done,
        }
    }

    async fn helper_of(
        &self,
        program: Program,
        role: Role,
        nonce: Nonce,
    ) -> Result<Channel, LinkFailure> {
        let raw = self.channel(COMMAND).await?;
        let mut talk = Talk::new(raw, nonce);
        let names = self.names(&program, nonce);
        let starts = script::Starts {
            role,
            by_sudo: self.host().sudo && role.may_be_root(),
        };
        let line = script::start(&names, program.architecture(), starts);
        talk.tell(&line).await;
        let mut refused = Vec::new();
        let mut wants = 0;
        loop {
            match talk.answer(GREETING_LIMIT).await? {
                Answer::Greeted => return talk.into_channel(wants > 0),
                Answer::Architecture(architecture) => {
                    return Err(LinkFailure::NoHelper { architecture });
                }
                Answer::Refused(directory) => refused.push(directory),
                Answer::Nowhere => return Err(nowhere(refused)),
                Answer::Want { .. } if wants == WANTS_MAX => {
                    return Err(LinkFailure::HelperCannotRun {
                        why: "it is replaced as soon as it is there".to_owned(),
                    });
                }
                Answer::Want { number, path } => {
                    wants += 1;
                    match self.send(&program, number).await {
                        Ok(Sent::InPlace) => talk.tell("go\n").await,
                        Ok(Sent::ForOneStart(name)) => talk.tell(&format!("anew {name}\n")).await,
                        Err(failure) => {
                            refused.push(refusal_of(failure, path)?);
                            talk.tell(&format!("skip {number}\n")).await;
                        }
                    }
                }
                answer => return Err(answer.unexpected()),
            }
        }
    }

    fn names<'a>(&'a self, program: &'a Program, nonce: Nonce) -> Names<'a> {
        Names {
            digest: program.digest(),
            nonce,
            workdir: &self.host().workdir,
        }
    }

    /// Sends the helper into a directory of the host, over a channel of its own.
    async fn send(&self, program: &Program, number: u8) -> Result<Sent, LinkFailure> {
        let bytes = program.bytes()?;
        let nonce = nonce()?;
        let mut talk = Talk::new(self.channel(COMMAND).await?, nonce);
        let line = script::take(&self.names(program, nonce), number, bytes.len());
        talk.tell(&line).await;
        let sending = async {
            talk.pour(&bytes).await;
            talk.answer(UPLOAD_LIMIT).await
        };
        let answer = tokio::time::timeout(UPLOAD_LIMIT, sending).await;
        match answer.map_err(|_| LinkFailure::TimedOut {
            what: Awaited::HelperSent,
            after: UPLOAD_LIMIT,
        })?? {
            Answer::Taken(name) if name.starts_with('.') => Ok(Sent::ForOneStart(name)),
            Answer::Taken(_) => Ok(Sent::InPlace),
            answer => Err(answer.unexpected()),
        }
    }
}

/// A number that no greeting before this one had.
///
/// # Errors
/// When the system has no random bytes.
pub fn nonce() -> Result<Nonce, LinkFailure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| LinkFailure::Here {
        what: "there are no random bytes".to_owned(),
        why: error.to_string(),
    })?;
    Ok(Nonce::new(random))
}

/// How the helper was sent.
enum Sent {
    /// It can be found by its content.
    InPlace,
    /// Nothing on the host can prove a content: this file is executed once.
    ForOneStart(String),
}

/// Why another directory must be tried; the failure itself when that would change nothing.
fn refusal_of(failure: LinkFailure, path: String) -> Result<RefusedDirectory, LinkFailure> {
    match failure {
        LinkFailure::DiskFull { said, .. } => Ok(RefusedDirectory { path, why: said }),
        LinkFailure::HelperCannotRun { why } => Ok(RefusedDirectory { path, why }),
        other => Err(other),
    }
}

/// Full disks have a name of their own when they are the only reason.
fn nowhere(tried: Vec<RefusedDirectory>) -> LinkFailure {
    let full = |directory: &&RefusedDirectory| {
        let why = directory.why.to_lowercase();
        why.contains("no space") || why.contains("quota")
    };
    let first = tried.iter().find(full).cloned();
    match first {
        Some(RefusedDirectory { path, why }) if tried.iter().all(|one| full(&one)) => {
            LinkFailure::DiskFull {
                directory: path,
                said: why,
            }
        }
        _ => LinkFailure::NoDirectory { tried },
    }
}
