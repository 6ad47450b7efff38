//! Which credential a session uses, by reference: the secret itself is read later, once.

use std::fmt;
use std::path::PathBuf;

use zeroize::Zeroizing;

use super::Environment;
use crate::plain_file::{self, Links};
use crate::proxy::credential::CredentialSource;
use crate::report::Failure;
use crate::secret::{Credential, CredentialKind};

/// Scheme, host and port of a URL, in one spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// The origin of a URL, with the port written out.
    pub fn of(url: &http::Uri) -> Self {
        let scheme = url.scheme_str().unwrap_or_default().to_ascii_lowercase();
        let host = url.host().unwrap_or_default().to_ascii_lowercase();
        let port = url
            .port_u16()
            .unwrap_or(if scheme == "http" { 80 } else { 443 });
        Self(format!("{scheme}://{host}:{port}"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a credential is, as it was written; never the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialReference {
    /// In a variable of labproxy's own environment.
    Env {
        /// Its kind.
        kind: CredentialKind,
        /// The variable's name.
        name: String,
    },
    /// In a file.
    File {
        /// Its kind.
        kind: CredentialKind,
        /// The file.
        path: PathBuf,
    },
    /// Printed by a command.
    Command {
        /// Its kind.
        kind: CredentialKind,
        /// Program and arguments.
        argv: Vec<String>,
    },
}

/// The credential that was configured for the upstream in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialChoice {
    /// It was named for this upstream.
    Named(CredentialReference),
    /// None was named for this upstream, so a worthless one is sent: a credential never goes to
    /// another origin than the one it was configured for.
    Dummy {
        /// The upstream's origin.
        origin: String,
    },
}

impl CredentialChoice {
    /// The source for the proxy. Reads the variable, exactly once, where the choice is one.
    ///
    /// # Errors
    /// When the variable is missing or holds no credential, with the remedies as hints; when the
    /// file cannot be opened.
    pub fn open(&self, environment: &Environment) -> Result<CredentialSource, Failure> {
        match self {
            Self::Named(CredentialReference::Env { kind, name }) => given(*kind, name, environment),
            Self::Named(CredentialReference::File { kind, path }) => {
                // Who else may read it is judged where it is read; that it can be opened at all is
                // known here, together with whatever else is wrong.
                plain_file::open(path, Links::Follow).map_err(|error| {
                    let shown = path.display();
                    Failure::usage(format!("the credential file {shown} cannot be read"))
                        .caused_by(&error)
                })?;
                Ok(CredentialSource::File {
                    kind: *kind,
                    path: path.clone(),
                })
            }
            Self::Named(CredentialReference::Command { kind, argv }) => {
                Ok(CredentialSource::Command {
                    kind: *kind,
                    argv: argv.clone(),
                })
            }
            Self::Dummy { .. } => Ok(CredentialSource::Dummy),
        }
    }
}

/// The reference, as `config show` prints it; never the secret.
impl fmt::Display for CredentialChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(CredentialReference::Env { kind, name }) => {
                write!(f, "{} from variable {name}", kind_name(*kind))
            }
            Self::Named(CredentialReference::File { kind, path }) => {
                write!(f, "{} from file {}", kind_name(*kind), path.display())
            }
            Self::Named(CredentialReference::Command { kind, argv }) => {
                let program = argv.first().map_or("", String::as_str);
                write!(f, "{} printed by command {program}", kind_name(*kind))
            }
            Self::Dummy { origin } => {
                write!(
                    f,
                    "a worthless one: no credential is configured for {origin}"
                )
            }
        }
    }
}

/// The kind as it is written in a configuration.
pub fn kind_name(kind: CredentialKind) -> &'static str {
    match kind {
        CredentialKind::ApiKey => "api_key",
        CredentialKind::Oauth => "oauth",
    }
}

fn given(
    kind: CredentialKind,
    name: &str,
    environment: &Environment,
) -> Result<CredentialSource, Failure> {
    use std::os::unix::ffi::OsStringExt as _;

    let remedies = |failure: Failure| {
        failure
            .hint(format!("set {name} in the environment of labproxy"))
            .hint(
                "or name another source, such as credential = { kind = \"api_key\", file = \
                 \"~/.config/labproxy/key\" } under [upstream.anthropic], or --credential \
                 file:PATH",
            )
            .hint("to try labproxy without a key, use a stand-in upstream with --upstream URL")
    };
    let Some(bytes) = environment.get(name) else {
        return Err(remedies(Failure::usage(format!(
            "there is no credential: the variable {name} is not set"
        ))));
    };
    Credential::new(kind, Zeroizing::new(bytes.into_vec()))
        .map(CredentialSource::Given)
        .map_err(|why| {
            remedies(Failure::usage(format!(
                "the credential in {name} is bad: {why}"
            )))
        })
}
