//! `--detach`: the same command again in a session of its own, told everything over a pipe.
//!
//! The credential travels neither in the environment nor in arguments nor in a file: the new
//! process reads the environment it has to work with from its stdin, and its real environment is
//! filtered like an agent's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::agent::AgentStdio;
use super::environment::{contains, passes};
use super::launch::{Audience, private_log};
use super::live::Live;
use crate::child::own_program;
use crate::config::Environment;
use crate::config::load::LOG_VARIABLE;
use crate::id::SessionId;
use crate::report::{Exit, Failure};
use crate::secret::Credential;

/// The hidden command that is the detached process.
pub const DETACHED_COMMAND: &str = "__detached";

/// What a detached agent writes to standard error.
const AGENT_ERR: &str = "agent.err";
/// Arguments and environment together stay below the kernel's limit for a new program, 6 MiB with
/// the usual stack; base64 and JSON add less than this again.
const HANDOVER_BYTES_MAX: u64 = 16 << 20;

/// What the detached process is told.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    session: SessionId,
    core: Option<u64>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// What the detached process works with.
pub struct Handover {
    /// The session it runs.
    pub session: SessionId,
    /// The limit of core dumps that labproxy was started with.
    pub core: Option<u64>,
    /// The whole command line, the program's name first.
    pub arguments: Vec<OsString>,
    /// The environment that labproxy was started with.
    pub environment: Environment,
}

/// What the detached process says when it is ready, or cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Word {
    /// It runs; what to export when there is no agent.
    Ready {
        /// The export lines.
        exports: Option<String>,
    },
    /// It does not: the exit status, and what to tell the user, escaped already.
    Failed {
        /// The exit status.
        exit: u8,
        /// The text for stderr.
        text: String,
    },
}

fn encode(text: &OsStr) -> String {
    BASE64.encode(text.as_bytes())
}

fn decode(text: &str) -> Result<OsString, Failure> {
    BASE64
        .decode(text)
        .map(OsString::from_vec)
        .map_err(|error| Failure::because("the handover is damaged", &error))
}

/// Starts the detached process and waits until it is ready or says why not.
///
/// # Errors
/// When it cannot be started or ends without a word.
pub fn start(
    session: &SessionId,
    directory: &Path,
    arguments: &[OsString],
    environment: &Environment,
    core: Option<u64>,
    credential: Option<&Credential>,
) -> Result<Word, Failure> {
    let variables = environment.all();
    let wire = Wire {
        session: session.clone(),
        core,
        arguments: arguments.iter().map(|text| encode(text)).collect(),
        environment: variables
            .iter()
            .map(|(name, value)| (encode(name), encode(value)))
            .collect(),
    };
    let text = serde_json::to_vec(&wire)
        .map_err(|error| Failure::because("the handover has no JSON form", &error))?;
    let text = Zeroizing::new(text);
    let log = directory.join("labproxy.err");
    let mut command = Command::new(own_program());
    command
        .arg0("labproxy")
        .arg(DETACHED_COMMAND)
        .env_clear()
        .envs(variables.into_iter().filter(|(name, value)| {
            let secret = credential
                .is_some_and(|credential| contains(value.as_bytes(), credential.expose()));
            (passes(name, &[]) || name == LOG_VARIABLE) && !secret
        }))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(private_log(&log)?);
    let failed = |error| Failure::because("the detached session cannot be started", &error);
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // When it is gone already, its silence below tells the rest.
        let _written = stdin.write_all(&text);
    }
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let limit = HANDOVER_BYTES_MAX;
        let _length = BufReader::new(stdout.take(limit))
            .read_line(&mut line)
            .map_err(failed)?;
    }
    serde_json::from_str(&line).map_err(|_| {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let failure = Failure::failed("the detached session ended before it was ready");
        said.lines().fold(failure, Failure::problem)
    })
}

/// The first thing the detached process does: leaves the terminal and reads what it is told.
///
/// # Errors
/// When stdin holds no handover.
pub fn receive() -> Result<Handover, Failure> {
    // A group leader cannot; then whoever started us has given us a group of our own already.
    let _leader = rustix::process::setsid();
    let mut text = Zeroizing::new(Vec::new());
    std::io::stdin()
        .take(HANDOVER_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| Failure::because("the handover cannot be read", &error))?;
    let wire: Wire = serde_json::from_slice(&text)
        .map_err(|error| Failure::because("this command is not for people", &error))?;
    let arguments = wire
        .arguments
        .iter()
        .map(|text| decode(text))
        .collect::<Result<_, _>>()?;
    let mut variables = BTreeMap::new();
    for (name, value) in &wire.environment {
        // Names that are not UTF-8 are nothing that labproxy reads or an agent needs.
        if let Ok(name) = decode(name)?.into_string() {
            variables.insert(name, decode(value)?);
        }
    }
    Ok(Handover {
        session: wire.session,
        core: wire.core,
        arguments,
        environment: Environment::Fixed(variables),
    })
}

/// Says a word to the process that waits.
///
/// # Errors
/// When it is gone.
pub fn say(word: &Word) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(word)
        .map_err(|error| Failure::because("the answer has no JSON form", &error))?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(&line)
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::because("whoever started this session is gone", &error))
}

/// A session without a terminal: the agent reads nothing and writes two files.
#[derive(Debug, Default)]
pub struct Detached {
    /// Whether the word was said.
    pub said: bool,
}

impl Audience for Detached {
    fn stdio(&self, directory: &Path) -> Result<AgentStdio, Failure> {
        Ok(AgentStdio::Files {
            out: private_log(&directory.join("agent.out"))?,
            err: private_log(&directory.join(AGENT_ERR))?,
        })
    }

    fn error_file(&self, directory: &Path) -> Option<PathBuf> {
        Some(directory.join(AGENT_ERR))
    }

    fn ready(&mut self, _live: &Live, exports: Option<&str>) -> Result<(), Failure> {
        self.said = true;
        say(&Word::Ready {
            exports: exports.map(str::to_owned),
        })
    }
}

/// What the waiting command ends with.
pub fn exit_of(word: &Word) -> Exit {
    match word {
        Word::Ready { .. } => Exit::SUCCESS,
        Word::Failed { exit, .. } => Exit(*exit),
    }
}
