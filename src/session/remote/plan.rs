//! What a session on a host needs, checked before anything is made.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Config, Environment, Paths};
use crate::escape::{escape, escape_line};
use crate::mirror::places::What;
use crate::report::{Failure, tell};
use crate::session::agent::AgentCommand;
use crate::session::carry::{Workspace, may_be_asked_for};
use crate::session::settings_file::claude_arguments_by_name;
use crate::session::shim::script::ShimFile;
use crate::session::start::{ClaudeSettings, PlannedAgent};
use crate::session::workspace::plan::{self as workspace, Asked, PlannedWorkspace};
use crate::tunnel::carrier;
use crate::tunnel::host::HostSpec;
use crate::tunnel::resolve::{self, ChosenHost};
use crate::tunnel::transport::Transport;

/// What a user says of the host and of what goes there.
#[derive(Debug, Default)]
pub struct There {
    /// The host, by its name in the configuration or as ssh takes it.
    pub host: Option<String>,
    /// The file that an SDK is to take for the CLI.
    pub shim: Option<PathBuf>,
    /// The directory here that the host's workspace stands for; the working directory without one.
    pub workspace: Option<PathBuf>,
    /// Variables that go there although they are not on the list.
    pub env: Vec<String>,
    /// Patterns of files of the workspace that stay here.
    pub excludes: Vec<String>,
    /// Files of the workspace that look like secrets and go all the same.
    pub secrets: Vec<OsString>,
}

/// A host that was chosen.
pub struct PlannedHost {
    /// As the user named it.
    pub name: String,
    /// How it is reached.
    pub spec: HostSpec,
    /// What reaches it.
    pub transport: Arc<dyn Transport>,
    /// The workspace.
    pub workspace: Workspace,
    /// What of it goes there and comes back; nothing where the user gave no `--workspace`: then the agent
    /// begins in an empty directory.
    pub mirrored: Option<PlannedWorkspace>,
    /// Variables that go there although they are not on the list.
    pub asked: Vec<String>,
    /// The file that an SDK is to take for the CLI.
    pub shim: Option<ShimFile>,
}

/// The host that `--host` names; `None` when the agent works here.
///
/// # Errors
/// When it is no host, or ssh is missing.
pub(crate) fn plan(
    there: &There,
    config: Option<&Config>,
    environment: &Environment,
    paths: Option<&Paths>,
    receipt: Option<&Path>,
) -> Result<Option<PlannedHost>, Failure> {
    let Some(name) = &there.host else {
        return without_host(there).map(|()| None);
    };
    let (Some(config), Some(paths)) = (config, paths) else {
        return Ok(None);
    };
    let ChosenHost { spec, notes, .. } = resolve::choose(name, config)?;
    for note in notes {
        tell(&format!("labproxy: note: {}\n", escape_line(note)));
    }
    let transport = carrier::over_ssh(name, &spec, environment.all(), paths.runtime())?;
    let mirrored = mirrored(there, config, paths, receipt)?;
    let workspace = there.workspace.as_deref().unwrap_or(Path::new("."));
    let workspace = Workspace::of(workspace).map_err(|error| {
        Failure::usage(format!(
            "the workspace {} cannot be found",
            workspace.display()
        ))
        .caused_by(&error)
    })?;
    Ok(Some(PlannedHost {
        name: name.to_owned(),
        spec,
        transport,
        workspace,
        mirrored,
        asked: asked(&there.env, &config.session.pass_env.value)?,
        shim: there.shim.as_deref().map(ShimFile::check).transpose()?,
    }))
}

/// The workspace that is mirrored, when one was named.
fn mirrored(
    there: &There,
    config: &Config,
    paths: &Paths,
    receipt: Option<&Path>,
) -> Result<Option<PlannedWorkspace>, Failure> {
    let Some(directory) = &there.workspace else {
        for (option, is_given) in [
            ("--exclude", !there.excludes.is_empty()),
            ("--allow-secret", !there.secrets.is_empty()),
        ] {
            if is_given {
                return Err(Failure::usage(format!("{option} needs a workspace"))
                    .hint("give --workspace DIR: without one nothing goes to the host"));
            }
        }
        return Ok(None);
    };
    let here = std::env::current_dir()
        .map_err(|error| Failure::because("the working directory cannot be found", &error))?;
    let shim = there.shim.iter().map(|path| (What::Shim, path.clone()));
    let receipt = receipt.map(|path| (What::Receipts, path.to_owned()));
    let files: Vec<_> = shim.chain(receipt).collect();
    let asked = Asked {
        directory: directory.clone(),
        excludes: there.excludes.clone(),
        secrets: there.secrets.clone(),
    };
    workspace::check(&asked, &files, (paths, &here), config).map(Some)
}

/// Refuses what means nothing without a host.
fn without_host(there: &There) -> Result<(), Failure> {
    for (option, is_given) in [
        ("--shim", there.shim.is_some()),
        ("--workspace", there.workspace.is_some()),
        ("--env", !there.env.is_empty()),
        ("--exclude", !there.excludes.is_empty()),
        ("--allow-secret", !there.secrets.is_empty()),
    ] {
        if is_given {
            return Err(Failure::usage(format!("{option} needs a host")).hint(
                "give --host HOST, or leave it out: the agent here has your files and variables",
            ));
        }
    }
    Ok(())
}

/// The variables that the user gave by name: those of the command line must be able to go, those of the
/// configuration are for agents here too.
fn asked(env: &[String], pass_env: &[String]) -> Result<Vec<String>, Failure> {
    for name in env {
        if let Err(stays) = may_be_asked_for(name) {
            return Err(Failure::usage(format!(
                "--env {name} does not go to a host: {}",
                stays.why()
            ))
            .hint("set it on the host, in the login's environment there"));
        }
    }
    for name in pass_env {
        if let Err(stays) = may_be_asked_for(name) {
            tell(&format!(
                "labproxy: {} of session.pass_env does not go to the host: {}\n",
                escape(name),
                stays.why()
            ));
        }
    }
    Ok([env, pass_env].concat())
}

/// The agent on a host: whether it is there is seen when it is started.
///
/// # Errors
/// When there is none: nobody here could use a session without an agent on another machine.
pub(crate) fn agent(argv: Vec<OsString>, host: &str) -> Result<PlannedAgent, Failure> {
    if argv.is_empty() {
        return Err(
            Failure::usage(format!("there is no agent to run on {host}"))
                .hint("give its command line after --, such as: -- claude -p \"…\""),
        );
    }
    // Its settings are merged where everything that goes to the host is looked through.
    let claude = claude_arguments_by_name(&argv).map(|at| ClaudeSettings {
        at,
        given: serde_json::Map::new(),
    });
    let program = PathBuf::from(argv.first().cloned().unwrap_or_default());
    Ok(PlannedAgent {
        command: AgentCommand { program, argv },
        claude,
    })
}
