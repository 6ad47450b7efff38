//! Which host `--host` means: a name of the configuration, or any destination that ssh knows.

use std::path::PathBuf;

use super::host::{Destination, HostSpec};
use crate::config::host::{HostConfig, HostKey, HostName};
use crate::config::key::{did_you_mean, nearest};
use crate::config::{Config, Source, Sourced};
use crate::plain_file::{self, Links};
use crate::report::Failure;

/// The host that was meant.
#[derive(Debug, Clone)]
pub struct ChosenHost {
    /// As the user named it.
    pub name: String,
    /// How it is reached.
    pub spec: HostSpec,
    /// Configured names that are like it, when it is none of them: for a host that ssh does not
    /// know.
    pub like: Vec<String>,
    /// What the user should know of its settings.
    pub notes: Vec<String>,
}

/// Finds the host of that name in the configuration, else the one that ssh knows by it.
///
/// # Errors
/// When it is no host, or its settings cannot be followed; everything that is wrong at once.
pub fn choose(name: &str, config: &Config) -> Result<ChosenHost, Failure> {
    match config.hosts.get_key_value(name) {
        Some((name, host)) => configured(name, host),
        None => free(name, config),
    }
}

/// A host that no file names.
fn free(name: &str, config: &Config) -> Result<ChosenHost, Failure> {
    let names = || config.hosts.keys().map(HostName::as_str);
    let destination: Destination = name.parse().map_err(|error| {
        let like = did_you_mean(name, names());
        Failure::usage(format!("'{name}' is no host{like}")).caused_by(&error)
    })?;
    Ok(ChosenHost {
        name: name.to_owned(),
        spec: HostSpec::new(destination),
        like: nearest(name, names())
            .into_iter()
            .map(str::to_owned)
            .collect(),
        notes: Vec::new(),
    })
}

fn configured(name: &HostName, host: &HostConfig) -> Result<ChosenHost, Failure> {
    let mut problems = Problems {
        name,
        found: Vec::new(),
    };
    let destination = problems.parsed::<Destination>(HostKey::Ssh, &host.ssh);
    let workdir = problems.parsed(HostKey::Workdir, &host.workdir);
    problems.file(HostKey::KeyPath, host.key_path.as_ref());
    problems.file(HostKey::SshConfig, host.ssh_config.as_ref());
    for (key, names) in [
        (HostKey::GpuIds, &host.gpu_ids),
        (HostKey::SetupCommands, &host.setup_commands),
    ] {
        if !names.value.is_empty() {
            // Passed over, an agent would see more than it was given, or miss what it needs.
            problems.add(
                key,
                &names.source,
                "arrives with the workbench; take it out until then",
            );
        }
    }
    match (destination, workdir) {
        (Some(destination), Some(workdir)) if problems.found.is_empty() => Ok(ChosenHost {
            name: name.to_string(),
            spec: HostSpec {
                destination,
                user: host.user.as_ref().map(|user| user.value.clone()),
                port: host.port.as_ref().map(|port| port.value),
                key_path: host.key_path.as_ref().map(|path| path.value.clone()),
                ssh_config: host.ssh_config.as_ref().map(|path| path.value.clone()),
                workdir,
                tcp_fallback: host.tcp_fallback.value,
                accept_new: host.accept_new_host_key.value,
                sudo: host.sudo.value,
            },
            like: Vec::new(),
            notes: Vec::new(),
        }),
        _ => {
            let failure = Failure::usage(format!("host '{name}' cannot be used"));
            Err(problems.found.into_iter().fold(failure, Failure::problem))
        }
    }
}

/// What is wrong with a host's settings, each with its place.
struct Problems<'a> {
    name: &'a HostName,
    found: Vec<String>,
}

impl Problems<'_> {
    fn add(&mut self, key: HostKey, source: &Source, what: impl std::fmt::Display) {
        let key = key.of(self.name);
        self.found.push(format!("{source}: {key}: {what}"));
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        key: HostKey,
        written: &Sourced<String>,
    ) -> Option<T> {
        match written.value.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(key, &written.source, error);
                None
            }
        }
    }

    /// ssh goes on without a key or configuration that is not there: with another identity, or to
    /// another machine.
    fn file(&mut self, key: HostKey, path: Option<&Sourced<PathBuf>>) {
        if let Some(Sourced { value, source }) = path
            && let Err(error) = plain_file::open(value, Links::Follow)
        {
            self.add(key, source, format!("{}: {error}", value.display()));
        }
    }
}
