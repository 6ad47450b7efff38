//! `[audit.tool.NAME]`: tools that have a name, and what belongs to a run of each.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use toml::Spanned;
use toml::de::DeValue;

use super::fields::Fields;
use super::name::{NAME_MAX, is_name};
use super::value::{Fault, Read, Written, refuse, strings};

/// Where the tables of tools are.
pub(super) const TOOLS: &str = "audit.tool";

/// The name of a tool, of the letters of [`is_name`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ToolName(String);

impl ToolName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole name of its setting, as a file has it.
    pub fn setting(&self) -> String {
        if self.0.contains('.') {
            format!("{TOOLS}.\"{self}\"")
        } else {
            format!("{TOOLS}.{self}")
        }
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that cannot be the name of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a tool's name is made of letters, digits, '.', '-' and '_', begins with a letter or a digit, \
     and has {NAME_MAX} characters at most"
)]
pub struct ParseToolNameError;

impl FromStr for ToolName {
    type Err = ParseToolNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseToolNameError)
        }
    }
}

/// A tool with a name. A higher layer replaces it whole: a command and what it may do belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditTool {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether the host's workspace is pulled first; else the newest generation is looked at.
    pub pull: bool,
    /// Whether it may change its copy, which then becomes the work, here and on the host.
    pub push: bool,
    /// How long it may run, where that is not `audit.timeout`.
    pub timeout: Option<Duration>,
    /// Whether it has the network.
    pub network: bool,
}

impl AuditTool {
    /// What a table of settings says.
    pub(super) fn of(table: &Spanned<DeValue<'_>>) -> Read<Self> {
        let mut fields = Fields::of(table);
        let command = fields.take("command", |written| match written {
            Written::Toml(value) => strings(value, "[\"pytest\", \"-q\"]"),
            Written::Text(_) => refuse("a tool is set in a file"),
        });
        let pull = fields.take("pull", Written::flag);
        let push = fields.take("push", Written::flag);
        let timeout = fields.take("timeout", Written::duration);
        let network = fields.take("network", Written::flag);
        let has_program = command
            .as_ref()
            .is_some_and(|words| words.first().is_some_and(|program| !program.is_empty()));
        let holds_nul = command.iter().flatten().any(|word| word.contains('\0'));
        if fields.faults.is_empty() && (!has_program || holds_nul) {
            let what = "command: expected the program and its arguments, such as \
                        [\"pytest\", \"-q\"]";
            fields.faults.push(Fault::new(what));
        }
        fields.finish()?;
        Ok(Self {
            command: command.unwrap_or_default(),
            pull: pull.unwrap_or(true),
            push: push.unwrap_or(false),
            timeout,
            network: network.unwrap_or(false),
        })
    }
}
