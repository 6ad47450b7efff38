//! Entries as lines: JSON for programs, comma-separated values for spreadsheets.

use serde_json::{Map, Value, json};

use super::{Format, kind};
use crate::escape::escape;
use crate::id::{RequestId, SessionId};
use crate::ledger::{Entry, Reader, Recorded};
use crate::money::PicoUsd;
use crate::report::{Exit, Failure, Output};

const CSV_TITLES: &str = "seq,at,session,entry,request,model,status,held_pico_usd,charged_pico_usd,cap_pico_usd,reason,hash";

/// Prints every entry.
pub(super) fn export(reader: &Reader, format: Format, out: &mut Output) -> Result<Exit, Failure> {
    if format == Format::Csv {
        out.line(CSV_TITLES)?;
    }
    let mut written = Ok(());
    reader
        .for_each(|session, recorded| {
            written = match format {
                Format::Jsonl => out.json_line(&object(session, recorded)),
                Format::Csv => out.line(&csv_line(session, recorded)),
            };
            written.is_ok() && !out.is_closed()
        })
        .map_err(|error| Failure::because("the ledger cannot be read", &error))?;
    written?;
    Ok(Exit::SUCCESS)
}

/// An entry as one JSON object.
pub(super) fn object(session: &SessionId, recorded: &Recorded) -> Value {
    let mut object = Map::new();
    object.insert("seq".into(), json!(recorded.head.seq));
    object.insert("at".into(), json!(recorded.at));
    object.insert("session".into(), json!(session));
    if let Ok(Value::Object(entry)) = serde_json::to_value(&recorded.entry) {
        for (name, value) in entry {
            object.insert(name, value);
        }
    }
    object.insert("hash".into(), json!(recorded.head.hash));
    Value::Object(object)
}

/// What a line of a table has of an entry.
pub(super) struct Cells {
    pub(super) entry: &'static str,
    pub(super) request: Option<String>,
    pub(super) model: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) held: Option<PicoUsd>,
    pub(super) charged: Option<PicoUsd>,
    pub(super) cap: Option<PicoUsd>,
    pub(super) reason: Option<String>,
}

impl Cells {
    /// The cells of one entry; what it does not have stays empty.
    pub(super) fn of(recorded: &Recorded) -> Self {
        let mut cells = Self {
            entry: kind(&recorded.entry),
            request: None,
            model: None,
            status: None,
            held: None,
            charged: None,
            cap: None,
            reason: None,
        };
        cells.fill(&recorded.entry);
        cells
    }

    fn fill(&mut self, entry: &Entry) {
        let mut about = |request: &RequestId, charged: Option<PicoUsd>, reason: Option<&String>| {
            self.request = Some(request.to_string());
            self.charged = charged;
            self.reason = reason.cloned();
        };
        match entry {
            Entry::Held {
                request,
                facts,
                amount,
                ..
            } => {
                about(request, None, None);
                self.model.clone_from(&facts.model);
                self.held = Some(*amount);
            }
            Entry::Settled {
                request,
                charged,
                end,
                note,
                ..
            } => {
                about(request, Some(*charged), note.as_ref());
                self.model.clone_from(&end.served_model);
                self.status = end.status;
            }
            Entry::Released {
                request,
                reason,
                end,
            } => {
                about(request, None, Some(reason));
                self.status = end.as_ref().and_then(|end| end.status);
            }
            Entry::Kept {
                request,
                charged,
                reason,
                end,
            } => {
                about(request, Some(*charged), Some(reason));
                self.status = end.as_ref().and_then(|end| end.status);
            }
            Entry::Corrected {
                request,
                charged,
                reason,
            } => about(request, Some(*charged), Some(reason)),
            Entry::Refused {
                request,
                facts,
                status,
                reason,
                ..
            } => {
                about(request, None, Some(reason));
                self.model.clone_from(&facts.model);
                self.status = Some(*status);
            }
            Entry::Overrun { request, by } => {
                about(request, None, Some(&format!("by {by}")));
            }
            Entry::Opened { cap, .. } | Entry::ToppedUp { cap, .. } => self.cap = Some(*cap),
            Entry::RefusedMore { count, .. } => self.reason = Some(format!("{count} more")),
            Entry::Closed { reason } => self.reason = Some(format!("{reason:?}")),
            Entry::Ended { end_reason, .. } => self.reason = Some(end_reason.clone()),
            Entry::Audited { audit } => self.reason = Some(audit.verdict.word().to_owned()),
        }
    }
}

fn csv_line(session: &SessionId, recorded: &Recorded) -> String {
    let cells = Cells::of(recorded);
    let pico = |amount: Option<PicoUsd>| amount.map(|amount| amount.pico().to_string());
    let cells = [
        Some(recorded.head.seq.to_string()),
        Some(recorded.at.to_string()),
        Some(session.to_string()),
        Some(cells.entry.to_owned()),
        cells.request,
        cells.model,
        cells.status.map(|status| status.to_string()),
        pico(cells.held),
        pico(cells.charged),
        pico(cells.cap),
        cells.reason,
        Some(recorded.head.hash.to_string()),
    ];
    let cells = cells.map(|cell| cell.map_or_else(String::new, |text| csv_cell(&text)));
    cells.join(",")
}

/// A cell by RFC 4180. Foreign text comes from providers and clients: it is escaped, and what a
/// spreadsheet would take for a formula is made text.
fn csv_cell(text: &str) -> String {
    let text = escape(text);
    let guard = if text.starts_with(['=', '+', '-', '@']) {
        "'"
    } else {
        ""
    };
    if guard.is_empty() && !text.contains([',', '"']) {
        return text;
    }
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commas and quotes stay inside their cell, and no cell is a formula or a control sequence.
    #[test]
    fn t37_cells_are_quoted_and_never_formulas() {
        assert_eq!(csv_cell("plain"), "plain");
        assert_eq!(csv_cell("a,b \"c\""), "\"a,b \"\"c\"\"\"");
        assert_eq!(csv_cell("=cmd()"), "\"'=cmd()\"");
        assert!(!csv_cell("\u{1b}[31m\n").contains(['\u{1b}', '\n']));
    }
}
