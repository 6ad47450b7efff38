//! The commands that look at a mirror: status, diff, verify, list; and accept.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Value, json};

use super::show::shown;
use super::target::{EndArgs, Target};
use crate::cli::Context;
use crate::escape::{escape, escape_line};
use crate::mirror::failure::failure;
use crate::mirror::json;
use crate::mirror::line::size;
use crate::mirror::pair::{Local, Pair};
use crate::mirror::store::{GenerationHead, Unsound};
use crate::mirror::survey::{Change, Differs, Survey};
use crate::report::{Exit, Failure, Output, counted};
use crate::session::inside;
use crate::table::{Column, Table};
use crate::tree::path::RelPath;

/// Options of the commands that only look.
#[derive(Debug, Args)]
pub struct LookArgs {
    #[command(flatten)]
    pub(super) ends: EndArgs,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `mirror accept`.
#[derive(Debug, Args)]
pub struct AcceptArgs {
    /// Both ends, but for --session, and then what to let in, as the pull named it; a directory
    /// stands for all that is held back below
    #[arg(value_name = "LOCAL HOST:PATH PATH", required = true)]
    words: Vec<OsString>,
    /// The workspace of this session (or the beginning of its name) in place of both ends
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AcceptArgs {
    /// The mirror, and what to let in.
    fn take_apart(&self) -> Result<(EndArgs, &[OsString]), Failure> {
        let few = || {
            Failure::usage("mirror accept does not say what to let in")
                .hint("give LOCAL HOST:PATH PATH…, or --session ID PATH…")
        };
        match (&self.session, self.words.as_slice()) {
            (Some(id), paths) => Ok((EndArgs::new(None, None, Some(id.clone())), paths)),
            (None, [local, far, paths @ ..]) if !paths.is_empty() => {
                let ends = EndArgs::new(Some(local.into()), Some(far.clone()), None);
                Ok((ends, paths))
            }
            (None, _) => Err(few()),
        }
    }
}

/// A survey of two ends, and which they are.
fn survey(args: &LookArgs, known: bool, ctx: &Context) -> Result<(Survey, Target), Failure> {
    let target = Target::of(&args.ends, ctx)?;
    if known {
        target.must_be_known()?;
    }
    let mut local = Local::open(target.ends().local()).map_err(|error| failure(&error))?;
    let mut opened = target.open(&local, &[])?;
    let line = super::line(&target);
    let surveyed = opened.with(&mut local, &line, Pair::survey);
    opened.close();
    drop(line);
    Ok((surveyed.map_err(|error| failure(&error))?, target))
}

pub(super) fn status(args: &LookArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let (survey, target) = survey(args, true, ctx)?;
    if args.json {
        out.json(&json!({
            "agreed": survey.agreed,
            "far_exists": survey.far_exists,
            "changed_here": survey.here.len(),
            "changed_far": survey.far.len(),
            "apart": survey.apart.len(),
            "tree_here": survey.here_tree.to_string(),
            "tree_far": survey.far_tree.to_string(),
            "generation": survey.generation.as_ref().map(generation_value),
            "held_back": json::held_back(&survey.held_back),
        }))?;
        return Ok(Exit::SUCCESS);
    }
    let state = |changes: &[Change]| match (survey.agreed, changes.len()) {
        (false, _) => "nothing was agreed on yet".to_owned(),
        (true, 0) => "as both ends agreed".to_owned(),
        (true, count) => {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            format!("{} since", counted(count, "change", "changes"))
        }
    };
    let local = escape(target.ends().local().as_os_str().as_encoded_bytes());
    out.line(&format!("here        {local}: {}", state(&survey.here)))?;
    let far = if survey.far_exists {
        state(&survey.far)
    } else {
        "it does not exist".to_owned()
    };
    out.line(&format!("other end   {}: {far}", target.ends().far_text()))?;
    match &survey.generation {
        Some(head) => out.line(&format!("generation  {}", generation_line(head)))?,
        None => out.line("generation  none: nothing was pulled yet")?,
    }
    for held in &survey.held_back {
        out.line(&format!("held back   {}: {}", shown(&held.path), held.why))?;
    }
    Ok(Exit::SUCCESS)
}

pub(super) fn diff(args: &LookArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let (survey, _) = survey(args, false, ctx)?;
    if args.json {
        out.json(&json!({
            "same": survey.apart.is_empty(),
            "changes": changes_value(&survey.apart),
            "held_back": json::held_back(&survey.held_back),
        }))?;
    } else {
        for (path, differs) in &survey.apart {
            let word = match differs {
                Differs::Added => "here",
                Differs::Removed => "there",
                Differs::Changed => "differs",
            };
            out.line(&format!("{word:<8} {}", shown(path)))?;
        }
        for held in &survey.held_back {
            out.line(&format!("held     {}", shown(&held.path)))?;
        }
    }
    Ok(if survey.apart.is_empty() {
        Exit::SUCCESS
    } else {
        Exit::FAILED
    })
}

pub(super) fn verify(args: &LookArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let (survey, target) = survey(args, true, ctx)?;
    let local = Local::open(target.ends().local()).map_err(|error| failure(&error))?;
    let pair = target.pair_of(&local)?;
    let verified = pair.verify_generation();
    let verified = verified.map_err(|error| failure(&error))?;
    let unsound: &[Unsound] = verified.as_ref().map_or(&[], |(_, unsound)| unsound);
    let is_sound = survey.is_as_agreed() && unsound.is_empty();
    if args.json {
        let wrong = unsound.iter().map(
            |wrong| json!({ "path": json::path(&wrong.path), "why": wrong.error.to_string() }),
        );
        out.json(&json!({
            "sound": is_sound,
            "agreed": survey.agreed,
            "generation": verified.as_ref().map(|(head, _)| generation_value(head)),
            "unsound": wrong.collect::<Value>(),
            "changed_here": changes_value(&survey.here),
            "changed_far": changes_value(&survey.far),
        }))?;
    } else {
        match &verified {
            Some((head, _)) => out.line(&format!("generation {}", generation_line(head)))?,
            None => out.line("there is no generation yet")?,
        }
        for wrong in unsound {
            let line = format!("{}: {}", shown(&wrong.path), wrong.error);
            out.line(&format!("unsound  {}", escape_line(line)))?;
        }
        for (place, changes) in [("here", &survey.here), ("there", &survey.far)] {
            for (path, differs) in changes {
                out.line(&format!("{:<8} {place}: {}", word(*differs), shown(path)))?;
            }
        }
        out.line(match (survey.agreed, is_sound) {
            (true, true) => "both ends are what they agreed on, and the generation is whole",
            (true, false) => "not all is what it was",
            (false, _) => "nothing was agreed on yet: push or pull first",
        })?;
    }
    Ok(if is_sound {
        Exit::SUCCESS
    } else {
        Exit::FAILED
    })
}

pub(super) fn list(args: &LookArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let target = Target::of(&args.ends, ctx)?;
    target.must_be_known()?;
    let local = Local::open(target.ends().local()).map_err(|error| failure(&error))?;
    let pair = target.pair_of(&local)?;
    let heads = pair.store().generations();
    let heads = heads.map_err(|error| failure(&error.into()))?;
    if args.json {
        out.json(&heads.iter().map(generation_value).collect::<Value>())?;
        return Ok(Exit::SUCCESS);
    }
    let mut table = Table::new([
        Column::number("GENERATION"),
        Column::text("TIME"),
        Column::number("FILES"),
        Column::number("SIZE"),
        Column::text("TREE"),
    ]);
    for head in &heads {
        table.row([
            head.number.to_string(),
            head.time.to_string(),
            head.totals.files.to_string(),
            size(head.totals.bytes),
            head.tree.to_string(),
        ]);
    }
    out.table(&table)?;
    Ok(Exit::SUCCESS)
}

pub(super) fn accept(args: &AcceptArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let (ends, paths) = args.take_apart()?;
    let paths: Result<Vec<RelPath>, Failure> = paths
        .iter()
        .map(|path| {
            let bytes = path.as_encoded_bytes();
            RelPath::new(bytes).map_err(|error| {
                Failure::usage(format!("{}: {error}", escape(bytes)))
                    .hint("give a path in the tree, as the pull named it")
            })
        })
        .collect();
    // What was held back runs on this machine: an agent must not let it in.
    inside::refuse_from_inside(&ctx.paths()?)?;
    let target = Target::to_change(&ends, ctx)?;
    target.must_be_known()?;
    let local = Local::open(target.ends().local()).map_err(|error| failure(&error))?;
    let mut pair = target.pair_of(&local)?;
    let line = super::line(&target);
    let accepted = pair.accept(&local, &paths?, &line);
    drop(line);
    let accepted = accepted.map_err(|error| failure(&error))?;
    if args.json {
        out.json(&json!({ "accepted": json::held_back(&accepted) }))?;
    } else {
        for held in &accepted {
            out.line(&format!("accepted {}", shown(&held.path)))?;
        }
    }
    Ok(Exit::SUCCESS)
}

const fn word(differs: Differs) -> &'static str {
    match differs {
        Differs::Added => "added",
        Differs::Removed => "removed",
        Differs::Changed => "changed",
    }
}

fn changes_value(changes: &[Change]) -> Value {
    changes
        .iter()
        .map(|(path, differs)| json!({ "path": json::path(path), "what": word(*differs) }))
        .collect()
}

fn generation_value(head: &GenerationHead) -> Value {
    json!({
        "generation": head.number.0,
        "time": head.time.to_string(),
        "tree": head.tree.to_string(),
        "entries": head.totals.entries,
        "files": head.totals.files,
        "bytes": head.totals.bytes,
    })
}

fn generation_line(head: &GenerationHead) -> String {
    format!(
        "{} of {}: {}, {}; tree {}",
        head.number,
        head.time,
        counted(head.totals.files, "file", "files"),
        size(head.totals.bytes),
        head.tree
    )
}
