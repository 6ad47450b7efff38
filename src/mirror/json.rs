//! What a push and a pull came to, as JSON: for `--json` and for the control socket of a session.

use std::time::Duration;

use serde_json::{Value, json};

use super::held_back::Held;
use super::items::Item;
use super::pull::{Pulled, Workspace};
use super::push::Pushed;
use crate::tree::path::RelPath;

/// A path in JSON: text where it is text, else its bytes as numbers.
pub fn path(path: &RelPath) -> Value {
    match std::str::from_utf8(path.as_bytes()) {
        Ok(text) => Value::from(text),
        Err(_) => Value::from(path.as_bytes()),
    }
}

/// What waits, in JSON.
pub fn held_back(held: &[Held]) -> Value {
    held.iter()
        .map(|held| json!({ "path": path(&held.path), "why": held.why }))
        .collect()
}

/// What is done to one path.
pub fn item(item: &Item) -> Value {
    json!({
        "what": item.what.word(),
        "path": path(&item.path),
        "from": item.from.as_ref().map(path),
    })
}

/// A time in milliseconds, for JSON.
pub fn milliseconds(passed: Duration) -> u64 {
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}

/// What became of a push.
pub fn pushed(pushed: &Pushed, dry_run: bool, passed: Duration) -> Value {
    let summary = &pushed.plan.summary;
    let wanted: u64 = pushed.plan.wanted.iter().map(|(_, bytes)| bytes).sum();
    let changed = pushed.excludes_changed.iter().map(path);
    json!({
        "dry_run": dry_run,
        "tree": pushed.tree.to_string(),
        "created": summary.created.entries,
        "changed": summary.changed.entries,
        "moved": summary.moved.entries,
        "copied": summary.copied.entries,
        "deleted": summary.deleted.entries,
        "wanted_bytes": wanted,
        "sent_bytes": pushed.sent,
        "elapsed_ms": milliseconds(passed),
        "saved_generation": pushed.saved.map(|number| number.0),
        "items": pushed.items.iter().map(item).collect::<Value>(),
        "excludes_without_effect": changed.collect::<Value>(),
    })
}

/// What became of a pull.
pub fn pulled(pulled: &Pulled, passed: Duration) -> Value {
    let generation = &pulled.generation;
    let leaving = pulled
        .leaving
        .iter()
        .map(|link| json!({ "path": path(&link.path), "why": link.way.to_string() }));
    let mut value = json!({
        "generation": generation.number.0,
        "new": pulled.is_new,
        "tree": generation.tree.to_string(),
        "files": generation.totals.files,
        "bytes": generation.totals.bytes,
        "received_bytes": pulled.received.bytes,
        "elapsed_ms": milliseconds(passed),
        "links_that_leave": leaving.collect::<Value>(),
    });
    let more = match &pulled.workspace {
        Workspace::Left => json!({ "workspace": "left" }),
        Workspace::Edited(paths) => json!({
            "workspace": "edited",
            "edited": paths.iter().map(path).collect::<Value>(),
        }),
        Workspace::Brought {
            summary,
            held_back,
            kept,
        } => json!({
            "workspace": "brought",
            "created": summary.created.entries,
            "changed": summary.changed.entries,
            "moved": summary.moved.entries,
            "copied": summary.copied.entries,
            "deleted": summary.deleted.entries,
            "held_back": self::held_back(held_back),
            "kept": kept
                .iter()
                .map(|(path, why)| json!({ "path": self::path(path), "why": why }))
                .collect::<Value>(),
        }),
    };
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}
