//! What a user is told of a session's workspace.

use super::record::{Work, WorkspaceRecord};
use crate::escape::{escape, escape_line};
use crate::id::SessionId;
use crate::mirror::excludes::FILE;
use crate::mirror::line::size;
use crate::mirror::pull::{Pulled, Workspace};
use crate::mirror::push::Pushed;
use crate::report::Failure;

fn line(text: &str) -> String {
    format!("labproxy: {}\n", escape_line(text))
}

/// A pull begins that may take its time.
pub(super) fn pulling(host: &str) -> String {
    line(&format!(
        "pulling the workspace from {} (Ctrl-C leaves it there)",
        escape(host)
    ))
}

/// A push that ended well.
pub(super) fn pushed(pushed: &Pushed, host: &str) -> String {
    let mut text = String::new();
    for directory in &pushed.excludes_changed {
        let path = escape(directory.as_bytes());
        let slash = if path.is_empty() { "" } else { "/" };
        text += &line(&format!(
            "note: {path}{slash}{FILE} is not what it was when the session began; what it says now has \
             no effect"
        ));
    }
    text += &line(&format!(
        "workspace pushed to {}: {}; {} sent; tree {}",
        escape(host),
        pushed.plan.summary,
        size(pushed.sent),
        pushed.tree
    ));
    text
}

/// A pull that brought the directory here to what was there.
pub(super) fn pulled(pulled: &Pulled, session: &SessionId) -> String {
    let mut text = links(pulled);
    if let Workspace::Brought {
        summary: done,
        held_back,
        kept,
    } = &pulled.workspace
    {
        for (path, why) in kept {
            text += &line(&format!("kept {}: {why}", escape(path.as_bytes())));
        }
        for held in held_back {
            let path = escape(held.path.as_bytes());
            text += &line(&format!("held back {path}: {}", held.why));
        }
        if !held_back.is_empty() {
            text += &line(&format!(
                "'labproxy mirror accept --session {session} PATH…' lets in what is held back"
            ));
        }
        text += &line(&format!(
            "workspace pulled: {done} here; {}",
            generation(pulled)
        ));
    }
    text
}

/// A pull that made a generation, and left the directory here as it is.
pub(super) fn kept(pulled: &Pulled, why: &Failure, session: &SessionId) -> String {
    let mut text = links(pulled);
    text += &loud(&format!(
        "the directory here was NOT brought to what the agent left: {}",
        why.message()
    ));
    text += &details(why);
    text += &saved(pulled, session);
    text
}

/// A generation that has what the directory here was not brought to.
pub(super) fn saved(pulled: &Pulled, session: &SessionId) -> String {
    line(&format!(
        "nothing is lost: {}; 'labproxy mirror diff --session {session}' shows what differs",
        generation(pulled)
    ))
}

/// No pull.
pub(super) fn not_pulled(why: &Failure, host: &str) -> String {
    let mut text = loud(&format!(
        "the agent's work on {} was NOT pulled: {}",
        escape(host),
        why.message()
    ));
    text += &details(why);
    text
}

/// Where work is that is not here.
pub(super) fn stays(record: &WorkspaceRecord, session: &SessionId) -> String {
    line(&format!(
        "{}; 'labproxy session resume {session}' pulls it, 'labproxy session discard {session}' alone \
         gives it up",
        place(record)
    ))
}

/// Where it is.
pub(super) fn place(record: &WorkspaceRecord) -> String {
    let there = record.remote.clone().into_os_string();
    let there = escape(there.as_encoded_bytes());
    format!("it stays in {there} on {}", escape(&record.host))
}

/// The work, as it is written down.
pub(super) fn unpulled_as(why: &Failure) -> Work {
    Work::Unpulled {
        why: why.message().to_owned(),
    }
}

fn loud(text: &str) -> String {
    line(&format!("WARNING: {text}"))
}

fn details(why: &Failure) -> String {
    let parts = [why.problems(), why.causes(), why.hints()].concat();
    parts
        .iter()
        .map(|part| line(&format!("  {part}")))
        .collect()
}

fn generation(pulled: &Pulled) -> String {
    let generation = &pulled.generation;
    format!(
        "generation {}, {} received; tree {}",
        generation.number,
        size(pulled.received.bytes),
        generation.tree
    )
}

/// Links that lead out of the tree: nothing follows them here, and a user's own program might.
fn links(pulled: &Pulled) -> String {
    let lines = pulled.leaving.iter().map(|link| {
        line(&format!(
            "link {} leads out of the tree to {}: {}",
            escape(link.path.as_bytes()),
            escape(link.text.as_bytes()),
            link.way
        ))
    });
    lines.collect()
}
