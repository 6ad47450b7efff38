//! `labproxy ledger`: what was held and charged, and whether the record of it is whole.

mod export;

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::Context;
use crate::escape::escape_line;
use crate::id::{RequestId, SessionId};
use crate::ledger::{self, Entry, LedgerError, Reader, Verified};
use crate::money::PicoUsd;
use crate::receipt::{self, Receipt};
use crate::report::{Exit, Failure, Output, counted};
use crate::session::{books, changes, inside, lookup};
use crate::table::{Column, Table};

const VERIFY_HELP: &str = "\
Recomputes the hash of every entry and every sum, and compares the end with the
high-water file. Exits with 1 when anything is wrong, and names it.

--accept-head is for an operator who put an older ledger back knowingly, or lost
the high-water file: when the ledger is sound in itself, it is gone on with.";

const CORRECT_HELP: &str = "\
When an answer was lost, the whole hold is charged, since nobody knows what the
provider did. If its console tells, this adds an entry that says so; none is ever
changed. The session must not be running. The day's sum never goes down.

Example:
  labproxy ledger correct ses_k3 req_abcdefghijklmnopqrstuvwxyz 0.0125 --reason \"console, 2 Dec\"";

/// What `labproxy ledger` can do.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// List every session that ever spent anything, with its sums
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a session's entries in order
    Show {
        /// The session, or the beginning of its name
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print every entry of every session
    Export {
        /// One JSON object in each line, or a table for spreadsheets
        #[arg(long, value_enum, default_value_t = Format::Jsonl)]
        format: Format,
    },
    /// Charge a request whose whole hold was kept with what it did cost
    #[command(after_help = CORRECT_HELP)]
    Correct {
        /// The session, or the beginning of its name
        id: String,
        /// The request, as in 'labproxy ledger show'
        request: RequestId,
        /// What it did cost, in dollars
        usd: PicoUsd,
        /// How that is known; it stands in the ledger and in the receipt
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Check that no entry is missing, changed or forged
    #[command(after_help = VERIFY_HELP)]
    Verify {
        /// A receipt to be checked against the ledger
        #[arg(long, value_name = "FILE")]
        receipt: Option<PathBuf>,
        /// Go on with this ledger although the high-water file says otherwise
        #[arg(long)]
        accept_head: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// How entries are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object in each line.
    Jsonl,
    /// Comma-separated values.
    Csv,
}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: LedgerCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let paths = ctx.paths()?;
    let path = paths.ledger();
    match command {
        LedgerCommand::List { json } => list(&path, json, out),
        LedgerCommand::Show { id, json } => show(&path, &id, json, out),
        LedgerCommand::Export { format } => export::export(&open(&path)?, format, out),
        LedgerCommand::Correct {
            id,
            request,
            usd,
            reason,
        } => {
            inside::refuse_from_inside(&paths)?;
            if reason.trim().is_empty() {
                return Err(Failure::usage("a correction needs a reason"));
            }
            let session = find(&open(&path)?, &id)?;
            let ledger = || books::open(&paths, &ctx.config()?, ctx.clock());
            let line = format!("{request} is charged {usd}");
            changes::correct(&session, (request, usd, &reason), &paths, &ledger)?;
            out.line(&line)?;
            Ok(Exit::SUCCESS)
        }
        LedgerCommand::Verify {
            receipt,
            accept_head,
            json,
        } => {
            let verified = if accept_head {
                inside::refuse_from_inside(&paths)?;
                ledger::accept_head(&path, &paths.anchor())
            } else {
                ledger::verify(&path, &paths.anchor())
            };
            let verified = verified.map_err(|error| unreadable(&path, &error))?;
            let receipt = receipt.map(|file| ctx.directory().join(file));
            verify(&open(&path)?, &verified, receipt.as_deref(), json, out)
        }
    }
}

fn open(path: &Path) -> Result<Reader, Failure> {
    Reader::open(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &LedgerError) -> Failure {
    // Where that cannot be told, the error says more.
    if path.try_exists().unwrap_or(true) {
        Failure::because("the ledger cannot be read", error)
    } else {
        let file = escape_line(path.as_os_str().as_encoded_bytes());
        Failure::failed(format!("there is no ledger at {file}"))
            .hint("the first 'labproxy session start' makes one")
    }
}

fn list(path: &Path, as_json: bool, out: &mut Output) -> Result<Exit, Failure> {
    let reader = open(path)?;
    let failed = |error: LedgerError| unreadable(path, &error);
    let mut rows = Vec::new();
    let mut table = Table::new([
        Column::text("SESSION"),
        Column::text("STARTED"),
        Column::text("END"),
        Column::number("REQUESTS"),
        Column::number("SPENT"),
        Column::number("HELD"),
        Column::number("CAP"),
    ]);
    for row in reader.sessions().map_err(failed)? {
        let entries = reader.session(&row.session).map_err(failed)?;
        let Some(receipt) = Receipt::fold(&row.session, &entries) else {
            continue;
        };
        let count = receipt.requests.len();
        let requests = u64::try_from(count)
            .unwrap_or(u64::MAX)
            .saturating_add(receipt.refusals_beyond_listed);
        table.row([
            row.session.as_str(),
            &format!("{:.0}", receipt.started_at),
            receipt.end_reason.as_deref().unwrap_or("-"),
            &requests.to_string(),
            &receipt.spent_pico_usd.to_string(),
            &receipt.held_pico_usd.to_string(),
            &receipt.cap_pico_usd.to_string(),
        ]);
        rows.push(json!({
            "session": row.session,
            "started_at": receipt.started_at,
            "ended_at": receipt.ended_at,
            "end_reason": receipt.end_reason,
            "requests": requests,
            "cap_pico_usd": receipt.cap_pico_usd,
            "spent_pico_usd": receipt.spent_pico_usd,
            "held_pico_usd": receipt.held_pico_usd,
            "first_seq": row.first_seq,
            "last_seq": row.last_seq,
        }));
    }
    if as_json {
        out.json(&rows)?;
    } else {
        out.table(&table)?;
    }
    Ok(Exit::SUCCESS)
}

fn show(path: &Path, id: &str, as_json: bool, out: &mut Output) -> Result<Exit, Failure> {
    let reader = open(path)?;
    let session = find(&reader, id)?;
    let entries = reader
        .session(&session)
        .map_err(|error| unreadable(path, &error))?;
    if as_json {
        let entries: Vec<Value> = entries
            .iter()
            .map(|recorded| export::object(&session, recorded))
            .collect();
        out.json(&entries)?;
        return Ok(Exit::SUCCESS);
    }
    let mut table = Table::new([
        Column::number("SEQ"),
        Column::text("TIME"),
        Column::text("ENTRY"),
        Column::text("REQUEST"),
        Column::number("HELD"),
        Column::number("CHARGED"),
        Column::text("NOTE"),
    ]);
    for recorded in &entries {
        let cells = export::Cells::of(recorded);
        let amount = |amount: Option<PicoUsd>| amount.map_or(String::new(), |it| it.to_string());
        table.row([
            &recorded.head.seq.to_string(),
            &format!("{:.3}", recorded.at),
            cells.entry,
            cells.request.as_deref().unwrap_or(""),
            &amount(cells.held),
            &amount(cells.charged),
            cells.reason.as_deref().unwrap_or(""),
        ]);
    }
    out.table(&table)?;
    Ok(Exit::SUCCESS)
}

/// The session of the ledger that `id` names, or begins.
fn find(reader: &Reader, id: &str) -> Result<SessionId, Failure> {
    let sessions = reader
        .sessions()
        .map_err(|error| unreadable(reader.path(), &error))?;
    let known = sessions.into_iter().map(|row| row.session).collect();
    lookup::choose(id, &known, "labproxy ledger list")
}

fn verify(
    reader: &Reader,
    verified: &Verified,
    receipt: Option<&Path>,
    as_json: bool,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut problems: Vec<String> = verified.problems.iter().map(ToString::to_string).collect();
    if let Some(file) = receipt {
        let wrong = receipt::check(reader, &read_receipt(file)?)
            .map_err(|error| unreadable(reader.path(), &error))?;
        problems.extend(wrong.iter().map(|problem| format!("receipt: {problem}")));
    }
    if as_json {
        out.json(&json!({
            "sound": problems.is_empty(),
            "entries": verified.head.seq,
            "head": verified.head.hash,
            "sessions": verified.sessions,
            "charged_pico_usd": verified.charged,
            "held_pico_usd": verified.held,
            "problems": problems,
            "problems_beyond_listed": verified.problems_beyond_listed,
        }))?;
    } else {
        for problem in &problems {
            out.line(&escape_line(problem))?;
        }
        if verified.problems_beyond_listed > 0 {
            out.line(&format!("and {} more", verified.problems_beyond_listed))?;
        }
        out.line(&format!(
            "{}: {} of {}, {} charged, {} held",
            if problems.is_empty() {
                "sound"
            } else {
                "NOT SOUND"
            },
            counted(verified.head.seq, "entry", "entries"),
            counted(verified.sessions, "session", "sessions"),
            verified.charged,
            verified.held,
        ))?;
    }
    Ok(if problems.is_empty() {
        Exit::SUCCESS
    } else {
        Exit::FAILED
    })
}

fn read_receipt(file: &Path) -> Result<Receipt, Failure> {
    let shown = escape_line(file.as_os_str().as_encoded_bytes());
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::because(format!("{shown} cannot be read"), &error))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::because(format!("{shown} is not a receipt"), &error))
}

/// What the entry says, for a person: its kind, as in the JSON.
const fn kind(entry: &Entry) -> &'static str {
    match entry {
        Entry::Opened { .. } => "opened",
        Entry::Held { .. } => "held",
        Entry::Settled { .. } => "settled",
        Entry::Released { .. } => "released",
        Entry::Kept { .. } => "kept",
        Entry::Refused { .. } => "refused",
        Entry::RefusedMore { .. } => "refused_more",
        Entry::Overrun { .. } => "overrun",
        Entry::ToppedUp { .. } => "topped_up",
        Entry::Closed { .. } => "closed",
        Entry::Ended { .. } => "ended",
        Entry::Audited { .. } => "audited",
        Entry::Corrected { .. } => "corrected",
    }
}
