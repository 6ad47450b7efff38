//! `labproxy host check`: the way that a session goes, step by step, with the same connection, helper
//! and forward, so that it fails exactly when a session would.

pub mod json;
pub mod lines;

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::lines::{Line, Step, Verdict};
use super::carrier;
use super::deploy::{Channel, ChannelLife, ChannelReader, nonce};
use super::host::HostSpec;
use super::service::{Service, ServiceError};
use super::ssh::failure::{Awaited, LinkFailure, Phase};
use super::ssh::local::Local;
use super::ssh::master::{Master, Phases};
use super::transport::Role;
use crate::wire::bytes::ByteString;
use crate::wire::link::ForwardEnd;
use crate::wire::service::{Answer, Docker, Gpus, Machine, Question, SessionHere};

/// How long the helper may take to clean up after itself.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);
/// The longest request that is looked at: the helper's has 60 bytes.
const REQUEST_MAX: usize = 4096;
/// What the listener here answers, as the proxy does.
const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
/// Most characters of a login's own output that are shown.
const NOISE_SHOWN: usize = 200;

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Checked {
    /// Every step, in order.
    pub steps: Vec<Line>,
    /// What kind of machine it is.
    pub machine: Option<Machine>,
    /// Its Docker engine.
    pub docker: Option<Docker>,
    /// Its GPUs.
    pub gpus: Option<Gpus>,
    /// Sessions that are or were there.
    pub sessions: Option<Vec<SessionHere>>,
}

impl Checked {
    /// Whether a session would start.
    pub fn works(&self) -> bool {
        !self
            .steps
            .iter()
            .any(|line| line.verdict == Verdict::Failed)
    }
}

/// A step that failed: the rest is not come to.
struct Stopped;

/// Goes the way; each line is told as soon as it is known. `scratch` is a directory of ours, 0700,
/// for a socket.
pub async fn run(
    host: &HostSpec,
    local: &Local,
    scratch: &Path,
    tell: &mut (dyn FnMut(&Line) + Send),
) -> Checked {
    let mut walk = Walk {
        host,
        tell,
        found: Checked::default(),
    };
    let _complete = walk.whole(local, scratch).await;
    let reached = walk.found.steps.len();
    for step in Step::ALL.into_iter().skip(reached) {
        walk.found.steps.push(Line {
            step,
            verdict: Verdict::Skipped,
            took: None,
            detail: String::new(),
            remedy: None,
        });
    }
    walk.found
}

struct Walk<'a> {
    host: &'a HostSpec,
    tell: &'a mut (dyn FnMut(&Line) + Send),
    found: Checked,
}

type Asked = Service<ChannelReader, openssh::ChildStdin>;

impl Walk<'_> {
    fn line(&mut self, line: Line) {
        (self.tell)(&line);
        self.found.steps.push(line);
    }

    /// A failure in a step, or in an earlier one that it shows; what lies between was passed.
    fn failed(&mut self, during: Step, took: Duration, failure: &LinkFailure) -> Stopped {
        let step = step_of(failure, during);
        for passed in Step::ALL.into_iter().take_while(|passed| *passed < step) {
            if self.found.steps.iter().all(|line| line.step != passed) {
                self.line(Line::ok(passed, None, ""));
            }
        }
        self.line(Line::failed(
            step,
            took,
            failure.to_string(),
            failure.remedy(),
        ));
        Stopped
    }

    async fn whole(&mut self, local: &Local, scratch: &Path) -> Result<(), Stopped> {
        let begun = Instant::now();
        let master = match Master::connect(self.host, local).await {
            Ok(master) => master,
            Err(failure) => return Err(self.failed(Step::Resolve, begun.elapsed(), &failure)),
        };
        self.connected(master.phases());
        let done = self.on_the_host(&master, scratch).await;
        master.close().await;
        done
    }

    fn connected(&mut self, phases: &Phases) {
        let at = |wanted: Phase| {
            let mut reached = phases.iter().filter(|(phase, _)| *phase >= wanted);
            reached.next().map(|(_, after)| after)
        };
        let between = |from: Duration, phase: Phase| Some(at(phase)?.saturating_sub(from));
        let start = |phase: Phase| at(phase).unwrap_or_default();
        let host_key = if self.host.accept_new {
            "as known, or taken as new"
        } else {
            "as known"
        };
        let login = self
            .host
            .user()
            .map_or_else(String::new, |user| format!("as {user}"));
        for (step, from, until, detail) in [
            (
                Step::Resolve,
                Duration::ZERO,
                Phase::Connecting,
                self.host.destination.to_string(),
            ),
            (
                Step::Connect,
                start(Phase::Connecting),
                Phase::Connected,
                String::new(),
            ),
            (
                Step::HostKey,
                start(Phase::Connected),
                Phase::Authenticating,
                host_key.to_owned(),
            ),
            (
                Step::Authentication,
                start(Phase::Authenticating),
                Phase::Authenticated,
                login,
            ),
        ] {
            self.line(Line::ok(step, between(from, until), detail));
        }
    }

    async fn on_the_host(&mut self, master: &Master, scratch: &Path) -> Result<(), Stopped> {
        let (mut service, life) = self.helper(master).await?;
        let done = self.questions(master, &mut service, scratch).await;
        // Its standard input ends, so it removes what it made and ends.
        drop(service);
        let _left_alone = tokio::time::timeout(LEAVE_LIMIT, life.ended()).await;
        done
    }

    async fn helper(&mut self, master: &Master) -> Result<(Asked, ChannelLife), Stopped> {
        let begun = Instant::now();
        let opened = match nonce() {
            Ok(nonce) => master.helper(Role::Serve, nonce).await,
            Err(failure) => Err(failure),
        };
        let took = begun.elapsed();
        let Channel {
            reader,
            writer,
            life,
            noise,
            was_sent,
            ..
        } = match opened {
            Ok(channel) => channel,
            Err(failure) => return Err(self.failed(Step::Helper, took, &failure)),
        };
        self.line(shell(&noise));
        let how = if was_sent { "sent" } else { "was there" };
        self.line(Line::ok(Step::Helper, Some(took), how));
        Ok((Service::new(reader, writer), life))
    }

    async fn questions(
        &mut self,
        master: &Master,
        service: &mut Asked,
        scratch: &Path,
    ) -> Result<(), Stopped> {
        let workdir = ByteString::from(self.host.workdir.as_str());
        let question = Question::Machine {
            workdir: workdir.clone(),
        };
        let machine = |answer| match answer {
            Answer::Machine(machine) => Some(machine),
            _ => None,
        };
        let (machine, took) = timed(service.ask(&question, machine)).await;
        let machine = machine.map_err(|error| {
            let remedy = "set workdir of the host to a directory that is yours alone, on a disk \
                          with room";
            self.line(Line::failed(
                Step::Disk,
                took,
                error.to_string(),
                remedy.to_owned(),
            ));
            Stopped
        })?;
        self.line(lines::disk(&machine, took));
        self.forward(master, service, scratch).await?;
        let docker = |answer| match answer {
            Answer::Docker(docker) => Some(docker),
            _ => None,
        };
        let (docker, took) = timed(service.ask(&Question::Docker, docker)).await;
        self.found.docker = self.told(Step::Docker, docker, took, lines::docker)?;
        self.line(lines::cgroup(&machine));
        self.found.machine = Some(machine);
        let question = Question::Gpus {
            workdir: workdir.clone(),
        };
        let gpus = |answer| match answer {
            Answer::Gpus(gpus) => Some(gpus),
            _ => None,
        };
        let (gpus, took) = timed(service.ask(&question, gpus)).await;
        self.found.gpus = self.told(Step::Gpus, gpus, took, lines::gpus)?;
        let sessions = |answer| match answer {
            Answer::Sessions(sessions) => Some(sessions),
            _ => None,
        };
        let question = Question::Sessions { workdir };
        let (sessions, took) = timed(service.ask(&question, sessions)).await;
        let shown = |list: &Vec<SessionHere>, took| lines::sessions(list, took);
        self.found.sessions = self.told(Step::Sessions, sessions, took, shown)?;
        Ok(())
    }

    /// What a session does without: not to know it is no failure, to hear nothing at all is.
    fn told<T>(
        &mut self,
        step: Step,
        answer: Result<T, ServiceError>,
        took: Duration,
        shown: impl FnOnce(&T, Duration) -> Line,
    ) -> Result<Option<T>, Stopped> {
        match answer {
            Ok(answer) => {
                self.line(shown(&answer, took));
                Ok(Some(answer))
            }
            Err(ServiceError::Failed(why)) => {
                let line = Line::ok(step, Some(took), format!("unknown: {why}"));
                self.line(line.warns("what the host says is all that is known"));
                Ok(None)
            }
            Err(error) => Err(self.unanswered(step, took, &error)),
        }
    }

    fn unanswered(&mut self, step: Step, took: Duration, error: &ServiceError) -> Stopped {
        let remedy = "check that the host is up and not overloaded".to_owned();
        self.line(Line::failed(step, took, error.to_string(), remedy));
        Stopped
    }

    /// A real forward, with a request through it to a listener here.
    async fn forward(
        &mut self,
        master: &Master,
        service: &mut Asked,
        scratch: &Path,
    ) -> Result<(), Stopped> {
        let begun = Instant::now();
        let directory = |answer| match answer {
            Answer::ForwardDirectory(directory) => Some(directory),
            _ => None,
        };
        let directory = match service.ask(&Question::ForwardDirectory, directory).await {
            Ok(directory) => directory.to_path_buf(),
            Err(error) => {
                let remedy = "/tmp on the host must take directories of this user".to_owned();
                let line = Line::failed(Step::Forward, begun.elapsed(), error.to_string(), remedy);
                self.line(line);
                return Err(Stopped);
            }
        };
        let (remote, here) = (directory.join("proxy.sock"), scratch.join("check.sock"));
        let forwarded = match listen(&here) {
            Ok(heard) => {
                let made = carrier::forward(master, &remote, &here).await;
                made.map(|end| (heard, end))
            }
            Err(failure) => Err(failure),
        };
        let (mut heard, end) = match forwarded {
            Ok(forwarded) => forwarded,
            Err(failure) => return Err(self.failed(Step::Forward, begun.elapsed(), &failure)),
        };
        let is_port = matches!(end, ForwardEnd::Port(_));
        let question = Question::TryForward(end);
        let answered = |answer| match answer {
            Answer::Forwarded { status, micros } => Some((status, micros)),
            _ => None,
        };
        let answer = service.ask(&question, answered).await;
        let took = begun.elapsed();
        let came = heard.try_recv().is_ok();
        match answer {
            Ok((200, micros)) if came => {
                let detail = format!("a request and its answer took {}", lines::time_of(micros));
                let line = Line::ok(Step::Forward, Some(took), detail);
                self.line(if is_port { line.warns(EXPOSED) } else { line });
                Ok(())
            }
            Ok((status, _)) => {
                let detail = format!("status {status} came from somewhere else");
                let remedy = "something on the host answers in our place".to_owned();
                self.line(Line::failed(Step::Forward, took, detail, remedy));
                Err(Stopped)
            }
            Err(error) => Err(self.unanswered(Step::Forward, took, &error)),
        }
    }
}

/// What `tcp_fallback` costs.
const EXPOSED: &str = "over a port, as tcp_fallback allows: any local user of the host can connect to \
                       it, which is of no use without a session's placeholder";

async fn timed<T>(doing: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    let done = doing.await;
    (done, begun.elapsed())
}

/// What the login printed by itself. labproxy passes over it.
fn shell(noise: &[u8]) -> Line {
    let text = String::from_utf8_lossy(noise);
    let text = text.trim();
    if text.is_empty() {
        return Line::ok(Step::Shell, None, "prints nothing by itself");
    }
    let shown: String = text.chars().take(NOISE_SHOWN).collect();
    Line::ok(
        Step::Shell,
        None,
        format!("prints {} bytes: {shown}", text.len()),
    )
    .warns("labproxy passes over it; other programs that use ssh may not")
}

/// Listens here and answers requests as the proxy would; each is told.
fn listen(socket: &Path) -> Result<mpsc::Receiver<()>, LinkFailure> {
    let listener = UnixListener::bind(socket).map_err(|error| LinkFailure::Here {
        what: "no socket can be made here".to_owned(),
        why: error.to_string(),
    })?;
    let (tell, heard) = mpsc::channel(1);
    // Ends with the receiver, or with the runtime.
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if answer(stream).await.is_ok() && tell.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(heard)
}

/// Reads one request's head and answers it.
async fn answer(mut stream: UnixStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut buffer = [0; 512];
    while !head.ends_with(b"\r\n\r\n") {
        let length = stream.read(&mut buffer).await?;
        if length == 0 || head.len() > REQUEST_MAX {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        head.extend(buffer.iter().take(length));
    }
    stream.write_all(HELLO).await?;
    stream.shutdown().await
}

/// The step that a failure belongs to; those that can come at any time belong to `during`.
fn step_of(failure: &LinkFailure, during: Step) -> Step {
    use LinkFailure as F;
    match failure {
        F::NoSsh
        | F::PathTooLong { .. }
        | F::ConfigurationUnread { .. }
        | F::ConfigurationRefused { .. }
        | F::Unresolved { .. } => Step::Resolve,
        F::Unreachable { .. } | F::Throttled { .. } | F::NoAgreement { .. } => Step::Connect,
        F::HostKeyUnknown { .. } | F::HostKeyChanged { .. } | F::HostKeyRefused { .. } => {
            Step::HostKey
        }
        F::AuthRefused { .. } => Step::Authentication,
        F::GreetingNotSeen { .. } | F::ShellNoise { .. } => Step::Shell,
        F::OtherVersion { .. }
        | F::OtherSystem { .. }
        | F::NoHelper { .. }
        | F::HelperAltered { .. }
        | F::NoDirectory { .. }
        | F::DiskFull { .. }
        | F::HelperCannotRun { .. }
        | F::ChannelRefused { .. } => Step::Helper,
        F::ForwardRefused { .. } => Step::Forward,
        F::TimedOut { what, .. } => step_of_wait(*what).unwrap_or(during),
        F::Here { .. } | F::LinkLost { .. } | F::Closed => during,
    }
}

/// The step of what did not come in time; `None` for what can be waited for at any of them.
fn step_of_wait(what: Awaited) -> Option<Step> {
    Some(match what {
        Awaited::Configuration | Awaited::Connection(Phase::Resolving) => Step::Resolve,
        Awaited::Connection(Phase::Connecting) => Step::Connect,
        Awaited::Connection(Phase::Connected) => Step::HostKey,
        Awaited::Connection(Phase::Authenticating) => Step::Authentication,
        Awaited::Connection(Phase::Authenticated) => Step::Shell,
        Awaited::Helper | Awaited::HelperSent => Step::Helper,
        Awaited::Forward => Step::Forward,
        Awaited::Connection(Phase::Up) | Awaited::Ssh | Awaited::FreeChannel | Awaited::Channel => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests;
