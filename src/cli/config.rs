//! `labproxy config`: what is configured, and from where.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;

use super::Context;
use crate::config::file::{self, Owner};
use crate::config::show::{Entry, entries};
use crate::config::{load, trust};
use crate::escape::escape;
use crate::report::{self, Exit, Failure, Output};
use crate::session::inside;
use crate::table::{Column, Table};

const TRUST_HELP: &str = "\
A labproxy.toml in the working directory may only make things stricter: an agent
may have written it. To let one set everything, look at it and trust it. The
trust is in its content: when the file changes, it is gone.

Example:
  labproxy config trust ./labproxy.toml";

/// What `labproxy config` can do.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print each setting and where it came from; never a secret
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let a working directory's labproxy.toml set everything, as long as it does not change
    #[command(after_help = TRUST_HELP)]
    Trust {
        /// The file, trusted by the hash of what it holds now
        file: PathBuf,
    },
}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: ConfigCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Show { json } => show(json, ctx, out),
        ConfigCommand::Trust { file } => trust_file(&file, ctx),
    }
}

fn show(json: bool, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let entries = entries(&ctx.config()?);
    if json {
        out.json(&entries)?;
        return Ok(Exit::SUCCESS);
    }
    let titles = ["SETTING", "VALUE", "SOURCE"];
    let mut table = Table::new(titles.map(Column::text));
    for Entry { key, value, source } in &entries {
        table.row([key.as_ref(), &shown(value), &source.to_string()]);
    }
    out.table(&table)?;
    Ok(Exit::SUCCESS)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let pair = |(name, value): (&String, &Value)| format!("{name} = {}", shown(value));
            fields.iter().map(pair).collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn trust_file(path: &Path, ctx: &Context) -> Result<Exit, Failure> {
    let paths = ctx.paths()?;
    inside::refuse_from_inside(&paths)?;
    let absolute = ctx.directory().join(path);
    let shown = path.display();
    let file = file::read(&absolute, path, Owner::Anybody)
        .map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    trust::trust(&paths, &absolute, &file.text)?;
    report::tell(&format!(
        "trusted: {} (hash {})\n",
        escape(absolute.as_os_str().as_encoded_bytes()),
        trust::digest(&file.text)
    ));
    if absolute.file_name() != Some(load::WORKING_FILE.as_ref()) {
        report::tell(&format!(
            "note: only a file named {} in the working directory is read without --config\n",
            load::WORKING_FILE
        ));
    }
    Ok(Exit::SUCCESS)
}
