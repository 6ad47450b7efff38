//! Both sides of a talk with the host before frames are spoken: a greeting or an answer, behind
//! whatever the login prints.

use std::io::Cursor;
use std::time::Duration;

use openssh::{ChildStderr, ChildStdin, ChildStdout};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::{Channel, ChannelLife, STATUS_LIMIT};
use crate::tunnel::ssh::failure::{Awaited, LinkFailure, RefusedDirectory};
use crate::tunnel::ssh::master::RawChannel;
use crate::wire::greeting::{self, GREETING_BYTES, NOISE_MAX, Nonce, Opening};

/// Bytes of what the login printed that are kept to be shown.
const SHOWN_MAX: usize = 4_096;

/// What the host says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The helper runs.
    Greeted,
    /// Another architecture than that of the helper.
    Architecture(String),
    /// Another system than Linux.
    System(String),
    /// A directory cannot hold the helper.
    Refused(RefusedDirectory),
    /// No directory can.
    Nowhere,
    /// The helper is wanted in a directory.
    Want {
        /// Its number.
        number: u8,
        /// Its path.
        path: String,
    },
    /// The helper was taken under this name.
    Taken(String),
    /// The disk is full.
    Full {
        /// Of which directory.
        directory: String,
        /// What the host says.
        said: String,
    },
    /// Something else failed.
    Failed {
        /// What the host says.
        why: String,
    },
}

impl Answer {
    /// The failure that an answer means where another one was waited for.
    pub(super) fn unexpected(self) -> LinkFailure {
        match self {
            Self::System(system) => LinkFailure::OtherSystem { system },
            Self::Full { directory, said } => LinkFailure::DiskFull { directory, said },
            Self::Failed { why } => LinkFailure::HelperCannotRun { why },
            other => LinkFailure::HelperCannotRun {
                why: format!("the host answers {other:?}"),
            },
        }
    }

    /// Reads the fields of an answer; `None` for one that only says how far it came.
    fn parse(fields: &str) -> Option<Self> {
        let mut fields = fields.split('\t');
        let word = fields.next()?;
        let mut field = || fields.next().unwrap_or_default().to_owned();
        Some(match word {
            "architecture" => Self::Architecture(field()),
            "system" => Self::System(field()),
            "refused" => Self::Refused(RefusedDirectory {
                path: field(),
                why: field(),
            }),
            "nowhere" => Self::Nowhere,
            "want" => Self::Want {
                number: field().parse().ok()?,
                path: field(),
            },
            "taken" => Self::Taken(field()),
            "full" => Self::Full {
                directory: field(),
                said: field(),
            },
            "failed" => Self::Failed {
                why: format!("{}: {}", field(), field()),
            },
            "cannot" => Self::Failed { why: field() },
            _ => return None,
        })
    }
}

/// A channel on which `sh` reads our line.
#[derive(Debug)]
pub(super) struct Talk {
    life: ChannelLife,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
    nonce: Nonce,
    /// What begins an answer.
    mark: Vec<u8>,
    /// What came and was not yet an answer.
    received: Vec<u8>,
    /// What the login printed before our script began; the first bytes of it.
    noise: Vec<u8>,
    /// The first bytes that came on standard error.
    complaint: Vec<u8>,
    /// Whether our own script began.
    begun: bool,
}

impl Talk {
    /// On a channel that runs the command.
    pub(super) fn new(raw: RawChannel, nonce: Nonce) -> Self {
        let RawChannel {
            child,
            stdin,
            stdout,
            stderr,
            permit,
        } = raw;
        Self {
            life: ChannelLife {
                child,
                _permit: permit,
            },
            stdin: Some(stdin),
            stdout,
            stderr,
            nonce,
            mark: format!("\nlabproxy-{nonce}\t").into_bytes(),
            received: Vec::new(),
            noise: Vec::new(),
            complaint: Vec::new(),
            begun: false,
        }
    }

    /// Says something; whoever does not listen any more is heard of by the missing answer.
    pub(super) async fn tell(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _heard = stdin.write_all(text.as_bytes()).await;
        }
    }

    /// Sends everything, and that nothing follows.
    pub(super) async fn pour(&mut self, bytes: &[u8]) {
        if let Some(mut stdin) = self.stdin.take() {
            let _heard = stdin.write_all(bytes).await;
            let _ended = stdin.shutdown().await;
        }
    }

    /// The next answer.
    pub(super) async fn answer(&mut self, limit: Duration) -> Result<Answer, LinkFailure> {
        let until = Instant::now() + limit;
        let (mut out, mut err) = ([0; 8_192], [0; 4_096]);
        let mut complaining = true;
        loop {
            while let Some(fields) = self.next_fields() {
                self.begun = true;
                if let Some(answer) = Answer::parse(&fields) {
                    return Ok(answer);
                }
            }
            match greeting::find(&self.received, self.nonce) {
                Opening::Greeted(end) => {
                    self.keep_noise(end.saturating_sub(GREETING_BYTES));
                    self.received.drain(..end.min(self.received.len()));
                    return Ok(Answer::Greeted);
                }
                Opening::OtherVersion(theirs) => return Err(LinkFailure::OtherVersion { theirs }),
                Opening::TooMuchNoise => {
                    return Err(LinkFailure::ShellNoise {
                        printed: self.printed(),
                    });
                }
                Opening::Waiting => {}
            }
            tokio::select! {
                read = self.stdout.read(&mut out) => match read {
                    Ok(length @ 1..) => {
                        self.received.extend(out.iter().take(length));
                    }
                    Ok(0) | Err(_) => return Err(self.ended().await),
                },
                read = self.stderr.read(&mut err), if complaining => match read {
                    Ok(length @ 1..) => {
                        let room = SHOWN_MAX.saturating_sub(self.complaint.len());
                        self.complaint.extend(err.iter().take(length.min(room)));
                    }
                    Ok(0) | Err(_) => complaining = false,
                },
                () = tokio::time::sleep_until(until) => return Err(self.silent(limit)),
            }
        }
    }

    /// Takes the fields of the next whole answer out of what came.
    fn next_fields(&mut self) -> Option<String> {
        let at = memchr::memmem::find(&self.received, &self.mark)?;
        let start = at + self.mark.len();
        let rest = self.received.get(start..)?;
        let length = memchr::memchr(b'\n', rest)?;
        let fields = String::from_utf8_lossy(rest.get(..length)?).into_owned();
        self.keep_noise(at);
        // The new line may begin the next answer, and noise before this one was noise.
        self.received.drain(..start + length);
        Some(fields)
    }

    /// What came first, up to `end`, is the login's own, unless our script has begun.
    fn keep_noise(&mut self, end: usize) {
        if !self.begun {
            let shown = end.min(SHOWN_MAX);
            self.noise = self.received.get(..shown).unwrap_or_default().to_vec();
        }
    }

    /// What was printed, for a person.
    fn printed(&self) -> String {
        let shown = self.received.len().min(SHOWN_MAX);
        let out = self.received.get(..shown).unwrap_or_default();
        let mut all = String::from_utf8_lossy(out).trim().to_owned();
        if !self.complaint.is_empty() {
            all.push_str(if all.is_empty() { "" } else { "\n" });
            all.push_str(String::from_utf8_lossy(&self.complaint).trim());
        }
        all
    }

    /// Why nothing came for too long.
    fn silent(&self, after: Duration) -> LinkFailure {
        if self.begun {
            return LinkFailure::TimedOut {
                what: Awaited::Helper,
                after,
            };
        }
        LinkFailure::GreetingNotSeen {
            printed: self.printed(),
            status: None,
        }
    }

    /// Why the output ended.
    async fn ended(&mut self) -> LinkFailure {
        let rest = NOISE_MAX.saturating_sub(self.complaint.len());
        let mut reader = (&mut self.stderr).take(u64::try_from(rest).unwrap_or(u64::MAX));
        let reading = reader.read_to_end(&mut self.complaint);
        let _held_open = tokio::time::timeout(STATUS_LIMIT, reading).await;
        self.complaint.truncate(SHOWN_MAX);
        let printed = self.printed();
        if self.begun {
            return LinkFailure::HelperCannotRun { why: printed };
        }
        // Both shells of Windows answer so to our command.
        if printed.contains("'exec' is not recognized as") {
            return LinkFailure::OtherSystem {
                system: "Windows".to_owned(),
            };
        }
        LinkFailure::GreetingNotSeen {
            printed,
            status: None,
        }
    }

    /// The channel after the greeting.
    pub(super) fn into_channel(self, was_sent: bool) -> Result<Channel, LinkFailure> {
        let writer = self.stdin.ok_or(LinkFailure::Closed)?;
        Ok(Channel {
            reader: Cursor::new(self.received).chain(self.stdout),
            writer,
            stderr: self.stderr,
            life: self.life,
            noise: self.noise,
            was_sent,
        })
    }
}
