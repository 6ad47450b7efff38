//! What a session start needs, checked before anything is made: every problem at once, nothing
//! spent.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::agent::{AgentCommand, AgentError};
use super::inside;
use super::receipt_file::ReceiptFile;
use super::remote::plan::{self as hosts, PlannedHost, There};
use super::settings_file::{self, SettingsError};
use super::watched::WatchedFiles;
use crate::config::{Config, Environment, Paths};
use crate::money::PicoUsd;
use crate::pricing::PriceBook;
use crate::proxy::credential::CredentialSource;
use crate::report::{Failure, FailureKind};

/// What a user asks for, and the surroundings.
pub struct Order {
    /// The program to run and its arguments; empty to print exports.
    pub agent: Vec<OsString>,
    /// The host that the agent works on, and what goes there.
    pub there: There,
    /// Where the receipt goes as JSON.
    pub receipt: Option<PathBuf>,
    /// Whether the session has a cap already: a resumed one.
    pub has_cap: bool,
    /// The configuration, flags included, or all that is wrong in it.
    pub config: Result<Config, Failure>,
    /// The file that `--config` names.
    pub given: Option<PathBuf>,
    /// Where things are kept.
    pub paths: Result<Paths, Failure>,
    /// The environment that labproxy was started with.
    pub environment: Environment,
    /// The time, to judge the age of the prices.
    pub now: Timestamp,
    /// The limit of core dumps that labproxy was started with, for the agent.
    pub core: Option<u64>,
}

/// An agent that was found, with what its kind needs.
#[derive(Debug)]
pub struct PlannedAgent {
    /// Its command line.
    pub command: AgentCommand,
    /// What Claude Code needs beside the environment.
    pub claude: Option<ClaudeSettings>,
}

/// The caller's own settings for Claude Code, taken out of its arguments.
#[derive(Debug)]
pub struct ClaudeSettings {
    /// Where `--settings FILE` goes into the arguments.
    pub at: usize,
    /// What the caller gave.
    pub given: Map<String, Value>,
}

/// Everything that was checked and is needed to start.
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// The prices, fixed for the session.
    pub book: Arc<PriceBook>,
    /// Where the credential comes from.
    pub credential: CredentialSource,
    /// The agent; without one, exports are printed.
    pub agent: Option<PlannedAgent>,
    /// The host that it works on; this machine without one.
    pub host: Option<PlannedHost>,
    /// Where the receipt goes.
    pub receipt: Option<ReceiptFile>,
    /// Files whose later change does not reach this session.
    pub watched: WatchedFiles,
    /// Where things are kept.
    pub paths: Paths,
    /// The environment that labproxy was started with.
    pub environment: Environment,
    /// The agent's limit of core dumps.
    pub core: Option<u64>,
}

impl Plan {
    /// Whether the agent, or whatever else is started from here, runs on this machine.
    pub fn agent_is_here(&self) -> bool {
        self.host.as_ref().is_none_or(|host| host.shim.is_some())
    }

    /// The cap that was configured or given.
    pub fn cap(&self) -> Option<PicoUsd> {
        self.config.session.cap_usd.as_ref().map(|cap| cap.value)
    }

    /// Checks everything that can be checked without making anything but the state directory.
    ///
    /// # Errors
    /// All problems, at once.
    pub fn check(order: Order) -> Result<Self, Failure> {
        let mut problems = Problems::default();
        let environment = order.environment;
        let config = problems.take(order.config);
        let paths = problems.take(order.paths);
        if let Some(paths) = &paths {
            problems.take(inside::refuse_from_inside(paths));
            problems.take(paths.prepare_state());
            problems.take(paths.prepare_runtime());
        }
        let host = problems
            .take(hosts::plan(
                &order.there,
                config.as_ref(),
                &environment,
                paths.as_ref(),
                order.receipt.as_deref(),
            ))
            .flatten();
        let agent = match &order.there {
            // With a shim the agent works here, and the CLI that it starts there.
            There {
                host: Some(name),
                shim: None,
                ..
            } => problems.take(hosts::agent(order.agent, name)),
            There { .. } => problems
                .take(plan_agent(order.agent, config.as_ref(), &environment))
                .flatten(),
        };
        let receipt = problems
            .take(
                order
                    .receipt
                    .map(|path| ReceiptFile::check(&path))
                    .transpose(),
            )
            .flatten();
        let mut priced = None;
        let mut credential = None;
        if let Some(config) = &config {
            if config.session.cap_usd.is_none() && !order.has_cap {
                problems.add(no_cap());
            }
            priced = problems.take(price_book(config, order.now));
            credential = problems.take(config.upstream.credential.value.open(&environment));
        }
        match (problems.none(), config, paths, priced, credential) {
            (Ok(()), Some(config), Some(paths), Some(book), Some(credential)) => Ok(Self {
                watched: WatchedFiles::of(&config, &paths, order.given),
                config,
                book,
                credential,
                agent,
                host,
                receipt,
                paths,
                environment,
                core: order.core,
            }),
            (Err(failure), ..) => Err(failure),
            // A part is missing only together with its problem.
            (Ok(()), ..) => Err(Failure::failed("the session cannot be prepared")),
        }
    }
}

fn no_cap() -> Failure {
    Failure::usage("there is no cap, and without one no session starts")
        .hint("give --cap USD, or set cap_usd under [session] in the configuration")
}

/// Loads the prices that are configured, and judges their age.
fn price_book(config: &Config, now: Timestamp) -> Result<Arc<PriceBook>, Failure> {
    let loaded = match &config.pricing.file {
        Some(file) => PriceBook::with_file(&file.value),
        None => PriceBook::builtin(),
    };
    let book = loaded.map_err(|problems| {
        problems.into_iter().fold(
            Failure::usage("the price file cannot be used"),
            |failure, problem| failure.problem(problem.to_string()),
        )
    })?;
    match book.staleness(now) {
        Some(stale) if !config.pricing.allow_stale.value => {
            Err(Failure::usage(format!("the prices may be wrong: {stale}"))
                .hint("check them, or start with --allow-stale-prices"))
        }
        Some(_) | None => Ok(Arc::new(book)),
    }
}

fn plan_agent(
    mut argv: Vec<OsString>,
    config: Option<&Config>,
    environment: &Environment,
) -> Result<Option<PlannedAgent>, Failure> {
    if argv.is_empty() {
        return Ok(None);
    }
    let path = environment.get("PATH");
    let named = argv.clone();
    // `agent.binary` says where the program of that name is; another name is another program.
    if let Some(binary) = config.and_then(|config| config.agent.binary.value.as_ref())
        && let Some(argv0) = argv.first_mut()
        && binary.file_name() == Some(argv0.as_os_str())
    {
        *argv0 = binary.clone().into_os_string();
    }
    let mut command =
        AgentCommand::find(argv, path.as_deref()).map_err(|error| agent_failure(&error))?;
    command.argv.clone_from(&named);
    let claude = match settings_file::claude_arguments_at(&command.argv, &command.program) {
        None => None,
        Some(at) => {
            let own = command.argv.split_off(at.min(command.argv.len()));
            let (rest, given) = settings_file::take_settings(&own, Path::new(""))
                .map_err(|error| settings_failure(&error))?;
            command.argv.extend(rest);
            Some(ClaudeSettings { at, given })
        }
    };
    Ok(Some(PlannedAgent { command, claude }))
}

/// How a missing or bad agent is reported.
pub(super) fn agent_failure(error: &AgentError) -> Failure {
    let kind = match error {
        AgentError::NotFound { .. } => FailureKind::NotFound,
        AgentError::NotExecutable { .. } => FailureKind::NotExecutable,
        AgentError::Spawn(_) => {
            return Failure::because("the agent could not be started", error);
        }
    };
    Failure::new(kind, format!("the agent {error}; nothing was spent"))
}

fn settings_failure(error: &SettingsError) -> Failure {
    let text = error.to_string();
    match std::error::Error::source(error) {
        Some(cause) => Failure::usage(text).caused_by(cause),
        None => Failure::usage(text),
    }
}

/// Failures that are collected and told together.
#[derive(Debug, Default)]
struct Problems {
    failures: Vec<Failure>,
}

impl Problems {
    fn add(&mut self, failure: Failure) {
        self.failures.push(failure);
    }

    fn take<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        result.map_err(|failure| self.failures.push(failure)).ok()
    }

    /// One failure as it is; several as one that names each.
    fn none(self) -> Result<(), Failure> {
        let mut failures = self.failures;
        match failures.len() {
            0 => Ok(()),
            1 => failures.pop().map_or(Ok(()), Err),
            count => {
                let mut all = Failure::usage(format!("the session cannot start: {count} problems"));
                for failure in &failures {
                    all = all.problem(failure.message());
                    for problem in failure.problems() {
                        all = all.problem(format!("  {problem}"));
                    }
                    for cause in failure.causes() {
                        all = all.problem(format!("  caused by: {cause}"));
                    }
                }
                for hint in failures.iter().flat_map(Failure::hints) {
                    all = all.hint(hint);
                }
                Err(all)
            }
        }
    }
}
