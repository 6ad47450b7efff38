//! Which tool `audit run` runs, and how: as the command line says, or as the configuration does of a
//! tool that has a name.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::json;

use super::run::RunArgs;
use crate::cli::Context;
use crate::config::key::did_you_mean;
use crate::config::show::show_tool;
use crate::config::{Config, ToolName};
use crate::escape::escape;
use crate::report::{Exit, Failure, Output};
use crate::table::{Column, Table};

/// What is to be run.
#[derive(Debug)]
pub(super) struct Order {
    /// The tool's name in the configuration.
    pub(super) named: Option<ToolName>,
    /// The program and its arguments.
    pub(super) argv: Vec<OsString>,
    /// Whether the host's workspace is pulled first.
    pub(super) pull: bool,
    /// Whether the tool may change its copy, which then becomes the work.
    pub(super) restore: bool,
    /// Whether it has the network.
    pub(super) network: bool,
    /// How long it may run.
    pub(super) limit: Duration,
}

impl Order {
    /// What the command line orders. What it allows is added to what a named tool has.
    ///
    /// # Errors
    /// When there is no tool of that name.
    pub(super) fn of(args: &RunArgs, config: &Config) -> Result<Self, Failure> {
        let limit = config.audit.timeout.value;
        let network = args.network || args.no_sandbox;
        let Some(name) = &args.name else {
            return Ok(Self {
                named: None,
                argv: args.tool.clone(),
                pull: true,
                restore: args.restore,
                network,
                limit,
            });
        };
        let tools = &config.audit.tools;
        let Some((name, tool)) = tools.get_key_value(name.as_str()) else {
            let shown = escape(name.as_bytes());
            let like = did_you_mean(name, tools.keys().map(ToolName::as_str));
            return Err(Failure::usage(format!("no tool is named '{shown}'{like}"))
                .hint("labproxy audit tools lists those of the configuration, [audit.tool.NAME]")
                .hint(format!(
                    "the tool and its arguments stand after '--', as in '-- {shown}'"
                )));
        };
        let tool = &tool.value;
        Ok(Self {
            named: Some(name.clone()),
            argv: tool.command.iter().map(OsString::from).collect(),
            pull: tool.pull,
            restore: args.restore || tool.push,
            network: network || tool.network,
            limit: match (&args.timeout, tool.timeout) {
                (None, Some(own)) => own,
                (Some(_), _) | (None, None) => limit,
            },
        })
    }
}

/// Lists the tools that have a name.
pub(super) fn tools(is_json: bool, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let config = ctx.config()?;
    let tools = &config.audit.tools;
    if is_json {
        let listed = tools.iter().map(|(name, tool)| {
            let mut shown = show_tool(&tool.value);
            if let Some(fields) = shown.as_object_mut() {
                fields.insert("name".to_owned(), json!(name));
                fields.insert("source".to_owned(), json!(tool.source.to_string()));
            }
            shown
        });
        out.json(&json!({ "tools": listed.collect::<Vec<_>>() }))?;
        return Ok(Exit::SUCCESS);
    }
    let mut table = Table::new(
        [
            "NAME", "PULL", "PUSH", "NETWORK", "TIMEOUT", "COMMAND", "FROM",
        ]
        .map(Column::text),
    );
    let yes = |flag| if flag { "yes" } else { "no" };
    for (name, tool) in tools {
        let limit = tool.value.timeout.unwrap_or(config.audit.timeout.value);
        table.row([
            name.as_str(),
            yes(tool.value.pull),
            yes(tool.value.push),
            yes(tool.value.network),
            &format!("{limit:?}"),
            &tool.value.command.join(" "),
            &tool.source.to_string(),
        ]);
    }
    if table.is_empty() {
        out.line("no tool has a name: [audit.tool.NAME] in the configuration gives one")?;
    } else {
        out.table(&table)?;
    }
    Ok(Exit::SUCCESS)
}
