//! Reading a configuration file: a bounded, plain file, and every key in it.

use std::fmt::Display;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Problem;
use super::host::{HostKey, HostName};
use super::key::{Key, did_you_mean};
use super::layer::Layer;
use super::source::{Source, Sourced};
use super::tool::{AuditTool, TOOLS, ToolName};
use super::value::{Fault, Place, Written};
use crate::plain_file::{self, Links, PlainFileError};

/// Largest configuration file: a thousand times what a long one holds.
const MAX_FILE: u64 = 1024 * 1024;

/// The section of remote machines.
const HOSTS: &str = "host";

/// The text of a configuration file.
#[derive(Clone, Debug)]
pub struct SettingsFile {
    /// The file as the user would name it.
    pub shown: PathBuf,
    /// What it holds.
    pub text: String,
}

/// Why a configuration file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not there.
    #[error("there is no such file")]
    Missing,
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// It is a directory, a pipe, a device.
    #[error("is not a plain file")]
    NotPlain,
    /// Others could change it, or own it.
    #[error(
        "can be changed by other users, and it decides which commands run; make it yours alone"
    )]
    Writable,
    /// It is longer than any configuration.
    #[error("is larger than {MAX_FILE} bytes")]
    TooLarge,
    /// It is not UTF-8.
    #[error("is not UTF-8 text")]
    NotText,
}

/// Whose hands a file may have been in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It must be the user's (or root's) and not writable by everybody.
    User,
    /// It must be the user's, closed to everybody else, and no link.
    UserAlone,
    /// Anybody's: what it may say is judged otherwise.
    Anybody,
}

/// Reads a whole file, never waiting for a pipe that somebody put in its place.
///
/// # Errors
/// Why it cannot be read.
pub fn read(path: &Path, shown: &Path, owner: Owner) -> Result<SettingsFile, FileError> {
    let links = match owner {
        Owner::UserAlone => Links::Refuse,
        Owner::User | Owner::Anybody => Links::Follow,
    };
    let (mut file, about) = plain_file::open(path, links)?;
    if !owner.accepts(&about) {
        return Err(FileError::Writable);
    }
    let mut bytes = Vec::new();
    (&mut file)
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(FileError::Io)?;
    if u64::try_from(bytes.len()).map_or(true, |length| length > MAX_FILE) {
        return Err(FileError::TooLarge);
    }
    let text = String::from_utf8(bytes).map_err(|_| FileError::NotText)?;
    Ok(SettingsFile {
        shown: shown.to_owned(),
        text,
    })
}

impl From<PlainFileError> for FileError {
    fn from(error: PlainFileError) -> Self {
        match error {
            PlainFileError::NotPlain => Self::NotPlain,
            PlainFileError::Io(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
                _ => Self::Io(error),
            },
        }
    }
}

impl Owner {
    fn accepts(self, about: &std::fs::Metadata) -> bool {
        use std::os::unix::fs::MetadataExt as _;

        let ours = about.uid() == rustix::process::geteuid().as_raw();
        match self {
            Self::User => (ours || about.uid() == 0) && about.mode() & 0o002 == 0,
            Self::UserAlone => ours && about.mode() & 0o777 & !0o700 == 0,
            Self::Anybody => true,
        }
    }
}

impl SettingsFile {
    /// Reads every setting in the file; adds a problem for each that is wrong.
    pub fn layer(&self, place: Place<'_>, problems: &mut Vec<Problem>) -> Layer {
        self.layer_from(place, problems, Self::source)
    }

    /// The same for the text that is built in.
    pub fn default_layer(&self, place: Place<'_>, problems: &mut Vec<Problem>) -> Layer {
        self.layer_from(place, problems, |_, _| Source::Default)
    }

    fn layer_from(
        &self,
        place: Place<'_>,
        problems: &mut Vec<Problem>,
        source_of: fn(&Self, Range<usize>) -> Source,
    ) -> Layer {
        let (table, errors) = DeTable::parse_recoverable(&self.text);
        let mut walk = Walk {
            file: self,
            place,
            source_of,
            layer: Layer::default(),
            problems,
        };
        if errors.is_empty() {
            walk.table("", table.get_ref());
        }
        for error in errors {
            let at = error.span().unwrap_or(0..0);
            // The message alone: the error's own Display quotes the line, which may hold a secret.
            walk.problem(at, format!("not TOML: {}", error.message()));
        }
        walk.layer
    }

    /// Where in the file a byte stands.
    fn source(&self, at: Range<usize>) -> Source {
        let before = self.text.bytes().take(at.start);
        Source::File {
            path: self.shown.clone(),
            line: before.filter(|byte| *byte == b'\n').count() + 1,
        }
    }
}

struct Walk<'a> {
    file: &'a SettingsFile,
    place: Place<'a>,
    source_of: fn(&SettingsFile, Range<usize>) -> Source,
    layer: Layer,
    problems: &'a mut Vec<Problem>,
}

impl Walk<'_> {
    fn problem(&mut self, at: Range<usize>, what: String) {
        self.problems.push(Problem::new(self.file.source(at), what));
    }

    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = format!("{prefix}{}", name.get_ref());
            let inner = format!("{path}.");
            if path == HOSTS {
                self.hosts(value);
            } else if path == TOOLS {
                self.tools(value);
            } else if let Some(key) = Key::of_name(&path) {
                self.setting(key, value);
            } else if !Key::ALL.iter().any(|key| key.name().starts_with(&inner)) {
                let what = unknown(prefix, name.get_ref());
                self.problem(name.span(), what);
            } else if let DeValue::Table(table) = value.get_ref() {
                self.table(&inner, table);
            } else {
                self.problem(value.span(), format!("{path}: expected a table [{path}]"));
            }
        }
    }

    fn setting(&mut self, key: Key, value: &Spanned<DeValue<'_>>) {
        let source = (self.source_of)(self.file, value.span());
        let set = self
            .layer
            .set(key, Written::Toml(value), self.place, source);
        self.faults(key, value, set);
    }

    /// `[host.NAME]`: a table of tables, whose names the user chooses.
    fn hosts(&mut self, value: &Spanned<DeValue<'_>>) {
        let Some(hosts) = value.get_ref().as_table() else {
            let what = format!("{HOSTS}: expected tables [{HOSTS}.NAME]");
            self.problem(value.span(), what);
            return;
        };
        for (name, value) in hosts {
            match (name.get_ref().parse::<HostName>(), value.get_ref()) {
                (Ok(host), DeValue::Table(table)) => self.host(&host, table),
                (Ok(host), _) => {
                    let what = format!("{HOSTS}.{host}: expected a table [{HOSTS}.NAME]");
                    self.problem(value.span(), what);
                }
                (Err(error), _) => {
                    let what = format!("{HOSTS}.'{}': {error}", name.get_ref());
                    self.problem(name.span(), what);
                }
            }
        }
    }

    fn host(&mut self, host: &HostName, table: &DeTable<'_>) {
        // A table without settings names a host too.
        self.layer.hosts.entry(host.clone()).or_default();
        for (name, value) in table {
            let Some(key) = HostKey::of_name(name.get_ref()) else {
                let known = HostKey::ALL.iter().map(|key| key.name());
                let like = did_you_mean(name.get_ref(), known);
                let what = format!("unknown key '{HOSTS}.{host}.{}'{like}", name.get_ref());
                self.problem(name.span(), what);
                continue;
            };
            let source = (self.source_of)(self.file, value.span());
            let written = Written::Toml(value);
            let set = self
                .layer
                .set_host((host, key), written, self.place, source);
            self.faults(key.of(host), value, set);
        }
    }

    /// `[audit.tool.NAME]`: a table of tables, whose names the user chooses.
    fn tools(&mut self, value: &Spanned<DeValue<'_>>) {
        let Some(tools) = value.get_ref().as_table() else {
            let what = format!("{TOOLS}: expected tables [{TOOLS}.NAME]");
            self.problem(value.span(), what);
            return;
        };
        for (name, value) in tools {
            let tool = match name.get_ref().parse::<ToolName>() {
                Ok(tool) => tool,
                Err(error) => {
                    let what = format!("{TOOLS}.'{}': {error}", name.get_ref());
                    self.problem(name.span(), what);
                    continue;
                }
            };
            if value.get_ref().as_table().is_none() {
                let what = format!("{TOOLS}.{tool}: expected a table [{TOOLS}.NAME]");
                self.problem(value.span(), what);
                continue;
            }
            let source = (self.source_of)(self.file, name.span());
            let read = AuditTool::of(value).map(|read| {
                let read = Sourced::new(read, source);
                self.layer.tools.insert(tool.clone(), read);
            });
            self.faults(tool.setting(), value, read);
        }
    }

    fn faults(
        &mut self,
        key: impl Display,
        value: &Spanned<DeValue<'_>>,
        set: Result<(), Vec<Fault>>,
    ) {
        for fault in set.err().into_iter().flatten() {
            let at = fault.at.unwrap_or_else(|| value.span());
            self.problem(at, format!("{key}: {}", fault.what));
        }
    }
}

/// The text for a key that means nothing, with those at the same place that it is like.
fn unknown(prefix: &str, name: &str) -> String {
    let siblings: Vec<&str> = Key::ALL
        .iter()
        .filter_map(|key| key.name().strip_prefix(prefix))
        .filter_map(|rest| rest.split('.').next())
        .collect();
    let mut once = siblings;
    once.dedup();
    if prefix.is_empty() {
        once.push(HOSTS);
    }
    once.extend(
        TOOLS
            .strip_prefix(prefix)
            .filter(|rest| !rest.contains('.')),
    );
    let what = if prefix.is_empty() { "section" } else { "key" };
    format!(
        "unknown {what} '{prefix}{name}'{}",
        did_you_mean(name, once)
    )
}
