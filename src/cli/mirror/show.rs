//! What a user sees of a push and a pull.

use std::time::Duration;

use serde_json::Value;

use crate::escape::escape;
use crate::mirror::copy_in::CopiedIn;
use crate::mirror::error::MirrorError;
use crate::mirror::failure::failure;
use crate::mirror::items::Item;
use crate::mirror::json;
use crate::mirror::line::size;
use crate::mirror::pull::{Pulled, Workspace};
use crate::mirror::push::Pushed;
use crate::report::{Exit, Failure, Output};
use crate::tree::path::RelPath;

/// A path, as a terminal may show it.
pub(super) fn shown(path: &RelPath) -> String {
    escape(path.as_bytes())
}

fn item_line(item: &Item) -> String {
    let word = item.what.word();
    let path = shown(&item.path);
    match &item.from {
        Some(from) => format!("{word:<8} {path} (from {})", shown(from)),
        None => format!("{word:<8} {path}"),
    }
}

fn seconds(passed: Duration) -> String {
    let tenths = passed.as_millis() / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

/// What became of a push.
pub(super) fn pushed(
    pushed: &Pushed,
    dry_run: bool,
    passed: Duration,
    as_json: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let summary = &pushed.plan.summary;
    let wanted: u64 = pushed.plan.wanted.iter().map(|(_, bytes)| bytes).sum();
    if as_json {
        return out.json(&json::pushed(pushed, dry_run, passed));
    }
    if dry_run {
        for item in &pushed.items {
            out.line(&item_line(item))?;
        }
    }
    if let Some(saved) = pushed.saved {
        out.line(&format!("what was there is saved as generation {saved}"))?;
    }
    let (verb, bytes) = if dry_run {
        ("would push", format!("{} to send", size(wanted)))
    } else {
        ("pushed", format!("{} sent", size(pushed.sent)))
    };
    out.line(&format!(
        "{verb} {summary}; {bytes} in {}; tree {}",
        seconds(passed),
        pushed.tree,
    ))
}

/// What became of files that were brought, and of their push.
pub(super) fn copied_in(
    done: &CopiedIn,
    passed: Duration,
    as_json: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let summary = &done.summary;
    let is_dry = done.pushed.is_none();
    let created = summary
        .created
        .entries
        .saturating_add(summary.copied.entries);
    if as_json {
        let push = done.pushed.as_ref();
        return out.json(&serde_json::json!({
            "dry_run": is_dry,
            "created": created,
            "replaced": summary.changed.entries,
            "items": done.items.iter().map(json::item).collect::<Value>(),
            "push": push.map(|pushed| json::pushed(pushed, false, passed)),
        }));
    }
    if is_dry {
        for item in &done.items {
            out.line(&item_line(item))?;
        }
    }
    let verb = if is_dry { "would copy in" } else { "copied in" };
    let replaced = summary.changed.entries;
    out.line(&format!("{verb} {created} new, {replaced} replaced"))?;
    match &done.pushed {
        Some(push) => pushed(push, false, passed, false, out),
        None => Ok(()),
    }
}

/// What became of a pull.
pub(super) fn pulled(
    pulled: &Pulled,
    passed: Duration,
    words: &str,
    as_json: bool,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if as_json {
        out.json(&json::pulled(pulled, passed))?;
    } else {
        pulled_lines(pulled, passed, words, out)?;
    }
    match &pulled.workspace {
        Workspace::Left | Workspace::Brought { .. } => Ok(Exit::SUCCESS),
        Workspace::Edited(paths) => {
            Err(failure(&MirrorError::Edited(paths.clone()))
                .hint("the directory here is as it was"))
        }
    }
}

fn pulled_lines(
    pulled: &Pulled,
    passed: Duration,
    words: &str,
    out: &mut Output,
) -> Result<(), Failure> {
    for link in &pulled.leaving {
        let text = escape(link.text.as_bytes());
        out.line(&format!(
            "link     {} leads out of the tree to {text}: {}",
            shown(&link.path),
            link.way
        ))?;
    }
    let mut done = String::new();
    if let Workspace::Brought {
        summary,
        held_back,
        kept,
    } = &pulled.workspace
    {
        for (path, why) in kept {
            out.line(&format!("kept     {}: {}", shown(path), escape(why)))?;
        }
        for held in held_back {
            out.line(&format!("held     {}: {}", shown(&held.path), held.why))?;
        }
        if !held_back.is_empty() {
            out.line(&format!(
                "held back until you say: labproxy mirror accept {words} PATH…"
            ))?;
        }
        done = format!("{summary} here; ");
    }
    let generation = &pulled.generation;
    out.line(&format!(
        "generation {}{}: {done}{} received in {}; tree {}",
        generation.number,
        if pulled.is_new { "" } else { " (unchanged)" },
        size(pulled.received.bytes),
        seconds(passed),
        generation.tree,
    ))
}
