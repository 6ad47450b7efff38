//! `[host.NAME]`: the remote machines that have settings of their own.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::Problem;
use super::key::VARIABLE_PREFIX;
use super::layer::{HostLayer, Setting};
use super::name::{NAME_MAX, is_name};
use super::source::{Source, Sourced};
use super::value::{Place, Read, Written, refuse, strings};
use crate::destination::{Destination, Workdir};

/// Where a host's sessions are when nothing else is said: in the login user's home.
pub const DEFAULT_WORKDIR: &str = "~/.labproxy";

/// The name of a configured host, of the letters of [`is_name`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As it stands in the names of variables: capitals, with `_` for what no variable has.
    fn in_variables(&self) -> String {
        let letter = |letter: char| match letter {
            '.' | '-' => '_',
            letter => letter.to_ascii_uppercase(),
        };
        self.0.chars().map(letter).collect()
    }
}

impl Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that cannot be the name of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a host's name is made of letters, digits, '.', '-' and '_', begins with a letter or a digit, \
     and has {NAME_MAX} characters at most"
)]
pub struct ParseHostNameError;

impl FromStr for HostName {
    type Err = ParseHostNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseHostNameError)
        }
    }
}

macro_rules! host_keys {
    ($($(#[$doc:meta])* $key:ident = $name:literal,)*) => {
        /// One setting of a host.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum HostKey {
            $($(#[$doc])* $key,)*
        }

        impl HostKey {
            /// Every setting, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$key,)*];

            /// The name in the host's table, such as `workdir`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name,)*
                }
            }
        }
    };
}

host_keys! {
    /// What ssh connects to.
    Ssh = "ssh",
    /// The login user.
    User = "user",
    /// The port.
    Port = "port",
    /// The private key.
    KeyPath = "key_path",
    /// A configuration of ssh's to read in place of the user's.
    SshConfig = "ssh_config",
    /// Where sessions are on the host.
    Workdir = "workdir",
    /// Whether a host that forbids unix sockets may forward a TCP port.
    TcpFallback = "tcp_fallback",
    /// Whether a host key that is seen for the first time is accepted.
    AcceptNewHostKey = "accept_new_host_key",
    /// Whether root's files may be read through sudo.
    Sudo = "sudo",
    /// The GPUs that sessions may use.
    GpuIds = "gpu_ids",
    /// Commands that run before an agent.
    SetupCommands = "setup_commands",
}

impl HostKey {
    /// The setting of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// The whole name of a host's setting, as a file has it: `host.gpu1.workdir`.
    pub fn of(self, host: &HostName) -> String {
        let key = self.name();
        if host.as_str().contains('.') {
            format!("host.\"{host}\".{key}")
        } else {
            format!("host.{host}.{key}")
        }
    }

    /// The variable that sets it, such as `LABPROXY_HOST_GPU1_WORKDIR`.
    pub fn variable(self, host: &HostName) -> String {
        let key = self.name().to_ascii_uppercase();
        format!("{HOST_PREFIX}{}_{key}", host.in_variables())
    }
}

/// What every variable of a host starts with.
pub const HOST_PREFIX: &str = "LABPROXY_HOST_";
const _: () = assert!(HOST_PREFIX.len() > VARIABLE_PREFIX.len());

/// The setting that a variable means, of a host that some file names.
///
/// # Errors
/// What is wrong with the variable's name.
pub fn of_variable<'a>(
    variable: &str,
    known: impl Iterator<Item = &'a HostName>,
) -> Result<(HostName, HostKey), String> {
    let meant: Vec<(HostName, HostKey)> = known
        .flat_map(|host| HostKey::ALL.iter().map(move |key| (host, *key)))
        .filter(|(host, key)| key.variable(host) == variable)
        .map(|(host, key)| (host.clone(), key))
        .collect();
    match <[_; 1]>::try_from(meant) {
        Ok([one]) => Ok(one),
        Err(none) if none.is_empty() => Err(
            "no setting of a configured host has this name; it is LABPROXY_HOST_NAME_KEY for a \
             host that a file names as [host.NAME]"
                .to_owned(),
        ),
        Err(several) => {
            let names: Vec<String> = several.iter().map(|(host, key)| key.of(host)).collect();
            Err(format!(
                "it could mean {}; set that in a file",
                names.join(" or ")
            ))
        }
    }
}

/// A host's settings, resolved, each with where it came from.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What ssh connects to: `HOST` or `USER@HOST`; the host's own name when none is set.
    pub ssh: Sourced<String>,
    /// The login user.
    pub user: Option<Sourced<String>>,
    /// The port.
    pub port: Option<Sourced<u16>>,
    /// The private key.
    pub key_path: Option<Sourced<PathBuf>>,
    /// A configuration of ssh's to read in place of the user's.
    pub ssh_config: Option<Sourced<PathBuf>>,
    /// Where sessions are on the host; `~/` at its start is the login user's home.
    pub workdir: Sourced<String>,
    /// Whether a host that forbids unix sockets may forward a TCP port.
    pub tcp_fallback: Sourced<bool>,
    /// Whether a host key that is seen for the first time is accepted.
    pub accept_new_host_key: Sourced<bool>,
    /// Whether root's files may be read through sudo.
    pub sudo: Sourced<bool>,
    /// The GPUs that sessions may use.
    pub gpu_ids: Sourced<Vec<String>>,
    /// Commands that run before an agent.
    pub setup_commands: Sourced<Vec<String>>,
}

impl HostConfig {
    /// The settings of a host that no file names: everything as it is by default.
    pub fn unconfigured(ssh: &str) -> Self {
        Self::of(ssh, HostLayer::default())
    }

    fn of(name: &str, folded: HostLayer) -> Self {
        fn or<T>(setting: Setting<T>, default: T) -> Sourced<T> {
            setting.unwrap_or_else(|| Sourced::new(default, Source::Default))
        }
        let HostLayer {
            ssh,
            user,
            port,
            key_path,
            ssh_config,
            workdir,
            tcp_fallback,
            accept_new_host_key,
            sudo,
            gpu_ids,
            setup_commands,
        } = folded;
        Self {
            ssh: or(ssh, name.to_owned()),
            user,
            port,
            key_path,
            ssh_config,
            workdir: or(workdir, DEFAULT_WORKDIR.to_owned()),
            tcp_fallback: or(tcp_fallback, false),
            accept_new_host_key: or(accept_new_host_key, false),
            sudo: or(sudo, false),
            gpu_ids: or(gpu_ids, Vec::new()),
            setup_commands: or(setup_commands, Vec::new()),
        }
    }
}

/// The folded layers of all hosts, resolved; what contradicts itself is added to the problems.
pub(super) fn resolve(
    folded: BTreeMap<HostName, HostLayer>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<HostName, HostConfig> {
    let mut hosts = BTreeMap::new();
    for (name, layer) in folded {
        let host = HostConfig::of(name.as_str(), layer);
        let destination: Option<Destination> = host.ssh.value.parse().ok();
        let (user, port) = destination.map_or((false, false), |to| {
            (to.user().is_some(), to.port().is_some())
        });
        let mut twice = |key: HostKey, source: Option<&Source>, is_named: bool| {
            if let (Some(source), true) = (source, is_named) {
                let (key, ssh) = (key.of(&name), &host.ssh);
                let what = format!(
                    "{key}: '{}' from {} names one already; keep one of the two",
                    ssh.value, ssh.source
                );
                problems.push(Problem::new(source.clone(), what));
            }
        };
        twice(
            HostKey::User,
            host.user.as_ref().map(|user| &user.source),
            user,
        );
        twice(
            HostKey::Port,
            host.port.as_ref().map(|port| &port.source),
            port,
        );
        hosts.insert(name, host);
    }
    hosts
}

impl Written<'_> {
    /// `ssh`: a destination.
    pub(super) fn destination(self) -> Read<String> {
        let text = self.text("\"gpu.lab.example\"")?;
        match text.parse::<Destination>() {
            Ok(_) => Ok(text.to_owned()),
            Err(error) => refuse(error.to_string()),
        }
    }

    /// `user`.
    pub(super) fn login(self) -> Read<String> {
        let text = self.text("\"ada\"")?;
        word(text, "a user's name")?;
        if text.contains(['@', '/', ':']) {
            return refuse("a user's name has no '@', '/' or ':'");
        }
        Ok(text.to_owned())
    }

    /// `port`.
    pub(super) fn port(self) -> Read<u16> {
        let port = self.count(u64::from(u16::MAX))?;
        u16::try_from(port).or_else(|_| refuse("no port has this number"))
    }

    /// `workdir`: a path on the host.
    pub(super) fn host_path(self) -> Read<String> {
        let text = self.text("\"~/.labproxy\"")?;
        match text.parse::<Workdir>() {
            Ok(_) => Ok(text.to_owned()),
            Err(error) => refuse(error.to_string()),
        }
    }

    /// `gpu_ids`: UUIDs, or indices.
    pub(super) fn gpus(self) -> Read<Vec<String>> {
        let names = self.names()?;
        let hex = |rest: &str| {
            let body = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
            !rest.is_empty() && rest.bytes().all(body)
        };
        let uuid = |name: &str| {
            let rest = name
                .strip_prefix("GPU-")
                .or_else(|| name.strip_prefix("MIG-"));
            rest.is_some_and(hex)
        };
        for (at, name) in names.iter().enumerate() {
            if !uuid(name) && name.parse::<u16>().is_err() {
                return refuse(format!(
                    "'{name}' is no GPU; write its UUID as nvidia-smi -L shows it (GPU-…), or its \
                     index"
                ));
            }
            if names.iter().take(at).any(|before| before == name) {
                return refuse(format!("'{name}' stands there twice"));
            }
        }
        Ok(names)
    }

    /// `setup_commands`: lines for the host's shell, in a file only, since they hold commas.
    pub(super) fn commands(self) -> Read<Vec<String>> {
        let Self::Toml(value) = self else {
            return refuse("commands are set in a file");
        };
        let commands = strings(value, "[\"module load cuda\"]")?;
        if commands
            .iter()
            .any(|line| line.trim().is_empty() || line.contains('\0'))
        {
            return refuse("an empty command means nothing; leave it out");
        }
        Ok(commands)
    }

    /// The value of one of a host's settings, put into its layer.
    pub(super) fn put_into(
        self,
        host: &mut HostLayer,
        key: HostKey,
        place: Place<'_>,
        source: Source,
    ) -> Read<()> {
        fn put<T>(field: &mut Setting<T>, value: T, source: Source) {
            *field = Some(Sourced::new(value, source));
        }
        match key {
            HostKey::Ssh => put(&mut host.ssh, self.destination()?, source),
            HostKey::User => put(&mut host.user, self.login()?, source),
            HostKey::Port => put(&mut host.port, self.port()?, source),
            HostKey::KeyPath => put(&mut host.key_path, self.path(place)?, source),
            HostKey::SshConfig => put(&mut host.ssh_config, self.path(place)?, source),
            HostKey::Workdir => put(&mut host.workdir, self.host_path()?, source),
            HostKey::TcpFallback => put(&mut host.tcp_fallback, self.flag()?, source),
            HostKey::AcceptNewHostKey => put(&mut host.accept_new_host_key, self.flag()?, source),
            HostKey::Sudo => put(&mut host.sudo, self.flag()?, source),
            HostKey::GpuIds => put(&mut host.gpu_ids, self.gpus()?, source),
            HostKey::SetupCommands => put(&mut host.setup_commands, self.commands()?, source),
        }
        Ok(())
    }
}

/// Refuses what ssh or a person would take for something else.
fn word(text: &str, what: &str) -> Read<()> {
    if text.is_empty() {
        return refuse(format!("expected {what}, found nothing"));
    }
    if text.starts_with('-') {
        return refuse(format!(
            "{what} does not begin with '-': ssh would take it for an option"
        ));
    }
    if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return refuse(format!("{what} has no spaces"));
    }
    Ok(())
}
