//! What of a command line goes to the host, and as what: a closed list of variables, arguments without
//! secrets, files of this machine as private files, a directory of the workspace. Everything is looked
//! through for the credential first; what holds it is refused by name and never shown.
//!
//! `session start --host -- AGENT` and the shim use the same [`Carrier`].

pub mod arguments;
pub mod environment;
pub mod files;
pub mod watch;

pub use environment::{HERE_ONLY, LISTED, LISTED_PREFIXES, Stays, may_be_asked_for};
pub use files::Workspace;
pub use watch::{Rolling, Watch};

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

use self::arguments::Surroundings;
use self::files::Files;
use super::environment::{AgentKind, LOOPBACK};
use super::settings_file::{self, SOCKET_BASE_URL, SettingsError};
use crate::id::random_name;
use crate::wire::bytes::ByteString;
use crate::wire::link::{Endpoints, ExecSpec, WindowSize};

/// Variables of the login environment that the agent gets as the host has them.
pub const INHERITED: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    // A cluster's way to the internet, its modules and its GPUs.
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "LD_LIBRARY_PATH",
    "CONDA_PREFIX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "MODULEPATH",
    "LOADEDMODULES",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Why something does not go to the host. Names the thing, never what it holds.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A variable holds the credential.
    #[error(
        "the variable {} holds the provider's credential, which never leaves this machine",
        .name.display()
    )]
    Variable {
        /// Its name.
        name: OsString,
    },
    /// An argument, or the file that it names, holds the credential.
    #[error("{of} holds the provider's credential, which never leaves this machine")]
    Argument {
        /// The option, or which argument.
        of: String,
    },
    /// What an argument names is on this machine only.
    #[error(
        "{of} names {}, which is outside the workspace and not on the host",
        .path.display()
    )]
    OnlyHere {
        /// The option.
        of: String,
        /// What it names.
        path: PathBuf,
    },
    /// A file that an argument names cannot be read.
    #[error("the file {} of {of} cannot be read", .path.display())]
    File {
        /// The option.
        of: String,
        /// What it names.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is larger than what an argument names.
    #[error("what {of} names has more than {most} bytes")]
    TooLarge {
        /// The option.
        of: String,
        /// The limit.
        most: usize,
    },
    /// The program was started outside the workspace.
    #[error(
        "the working directory {} is not inside the workspace {}, so the host has none like it",
        .directory.display(), .workspace.display()
    )]
    Directory {
        /// Where it was started.
        directory: PathBuf,
        /// The workspace.
        workspace: PathBuf,
    },
    /// The caller's settings cannot be merged.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The system gives no random bytes.
    #[error("there are no random bytes")]
    Random(#[from] getrandom::Error),
}

impl Refused {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Variable { .. } => "unset it, or set it to something else, where the SDK runs",
            Self::Argument { .. } => {
                "the agent on the host needs no key: labproxy's proxy adds it; take it out"
            }
            Self::OnlyHere { .. } => "put it into the workspace, or name a path of the host",
            Self::File { .. } | Self::Settings(_) => "check the file",
            Self::TooLarge { .. } => "put it into the workspace and let the agent read it there",
            Self::Directory { .. } => {
                "start the SDK with a cwd inside the workspace, or give --workspace DIR"
            }
            Self::Random(_) => "try again",
        }
    }
}

/// How the argument at `index` is called: the option that it is or belongs to, else its place.
fn argument_name(arguments: &[OsString], index: usize) -> String {
    let ends = arguments.iter().position(|argument| argument == "--");
    let option = |at: Option<usize>| {
        let argument = arguments.get(at?)?;
        let named = argument.as_bytes().starts_with(b"--") && ends.is_none_or(|ends| index < ends);
        let name = argument.as_bytes().split(|byte| *byte == b'=').next()?;
        let plain = name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        (named && plain).then(|| String::from_utf8_lossy(name).into_owned())
    };
    option(Some(index))
        .or_else(|| option(index.checked_sub(1)))
        .unwrap_or_else(|| format!("argument {}", index.saturating_add(1)))
}

/// What one launch asks for, as its caller has it on this machine.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The program's own arguments, without its name.
    pub arguments: &'a [OsString],
    /// The caller's whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it was started.
    pub directory: &'a Path,
    /// A terminal instead of three pipes.
    pub terminal: Option<WindowSize>,
}

/// The program on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// A path on the host, or a name for its `PATH`.
    pub path: ByteString,
    /// Its name and what stands between that and its own arguments: `claude`, or `node cli.js`.
    pub argv: Vec<ByteString>,
    /// How it is addressed.
    pub kind: AgentKind,
}

/// What is the same for every launch of a session.
#[derive(Clone)]
pub struct Carrier {
    /// The credential, to find it where it must not be.
    pub watch: Arc<Watch>,
    /// The placeholder's text.
    pub placeholder: Zeroizing<String>,
    /// The workspace here.
    pub workspace: Workspace,
    /// Names that the user gave (`--env`, `session.pass_env`).
    pub asked: Vec<String>,
}

impl Carrier {
    /// The launch as the host gets it.
    ///
    /// # Errors
    /// What may not go there, by name.
    pub fn carry(&self, wanted: Wanted<'_>, program: &Program) -> Result<ExecSpec, Refused> {
        let directory =
            self.workspace
                .there(wanted.directory)
                .ok_or_else(|| Refused::Directory {
                    directory: wanted.directory.to_owned(),
                    workspace: self.workspace.here.clone(),
                })?;
        let stands_for = |what: &str| {
            random_name(&format!("labproxy-{what}-")).map(|text| ByteString::from(&text))
        };
        let endpoints = Endpoints {
            port: stands_for("port")?,
            socket: stands_for("socket")?,
            session_directory: stands_for("directory")?,
        };
        let mut files = Files::default();
        let mut argv = program.argv.clone();
        match program.kind {
            AgentKind::Other => argv.extend(arguments::plain(wanted.arguments, &self.watch)?),
            AgentKind::ClaudeCode => {
                let at = Surroundings {
                    directory: wanted.directory,
                    workspace: &self.workspace,
                    session_directory: &endpoints.session_directory,
                    watch: &self.watch,
                };
                let (rest, given) = arguments::claude(wanted.arguments, &mut files, &at)?;
                let settings = settings_file::merged_for_socket(
                    given,
                    &text(&endpoints.socket),
                    &self.placeholder,
                );
                let settings = serde_json::Value::Object(settings).to_string().into_bytes();
                let path = files.add(("settings", ".json"), settings, "--settings", &self.watch)?;
                argv.extend([ByteString::from("--settings"), path]);
                argv.extend(rest);
            }
        }
        let mut environment = environment::carried(wanted.environment, &self.asked, &self.watch)?;
        for (name, value) in self.ours(program.kind, &endpoints) {
            environment.insert(name.into(), value);
        }
        Ok(ExecSpec {
            program: program.path.clone(),
            argv,
            environment: environment
                .iter()
                .map(|(name, value)| (ByteString::from(name), ByteString::from(value)))
                .collect(),
            inherit: INHERITED.iter().copied().map(ByteString::from).collect(),
            directory: ByteString::from(&directory),
            files: files.into_inner(),
            terminal: wanted.terminal,
            endpoints,
        })
    }

    /// The variables that lead the program to the proxy.
    fn ours(&self, kind: AgentKind, endpoints: &Endpoints) -> Vec<(&'static str, OsString)> {
        let mut state = endpoints.session_directory.as_os_str().to_owned();
        state.push("/claude");
        let placeholder = OsString::from(self.placeholder.as_str());
        let mut ours = vec![
            ("NO_PROXY", OsString::from(LOOPBACK)),
            ("no_proxy", OsString::from(LOOPBACK)),
            ("CLAUDE_CONFIG_DIR", state),
            (kind.key_variable(), placeholder),
        ];
        match kind {
            AgentKind::ClaudeCode => ours.extend([
                ("ANTHROPIC_BASE_URL", OsString::from(SOCKET_BASE_URL)),
                (
                    "ANTHROPIC_UNIX_SOCKET",
                    endpoints.socket.as_os_str().to_owned(),
                ),
            ]),
            AgentKind::Other => {
                let mut url = OsString::from("http://127.0.0.1:");
                url.push(endpoints.port.as_os_str());
                ours.push(("ANTHROPIC_BASE_URL", url));
            }
        }
        ours
    }
}

/// Our own texts are ASCII.
fn text(ours: &ByteString) -> String {
    String::from_utf8_lossy(ours.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests;
