//! Sessions as seen from outside: which there are, and what one has spent.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::books;
use super::control::{Call, ControlError, HostLink, Status, ask};
use super::inside::session_directories;
use super::owner::{Ownership, ownership};
use super::processes::ProcessStamp;
use super::remote::confirm;
use super::remote::record::{HostRecord, RecordFile, Remains};
use super::slot::sockets_of;
use super::workspace::record::{RecordFile as WorkspaceFile, Work};
use crate::config::Paths;
use crate::escape::escape;
use crate::id::SessionId;
use crate::ledger::{LedgerError, Reader, Recorded};
use crate::mirror::state::WrittenPath;
use crate::receipt::Receipt;
use crate::report::Failure;
use crate::table::{Column, Table};

/// One session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its name.
    pub session: String,
    /// `running`, `ended`, `interrupted`: without an owner and without an end, or `unconfirmed`: ended
    /// here, while its host has not said that nothing is left there.
    pub state: String,
    /// The cap.
    pub cap_pico_usd: u64,
    /// Charged.
    pub spent_pico_usd: u64,
    /// Held by requests in flight, or by ones whose owner died.
    pub held_pico_usd: u64,
    /// When it began.
    pub started_at: Timestamp,
    /// The agent's argv\[0\].
    pub agent: Option<String>,
    /// The host that it works on; `None`: this machine.
    pub host: Option<String>,
    /// How the link to the host is, as the owner says: `connecting`, `up` or `lost`; `None`: it has none,
    /// or nobody can be asked.
    pub link: Option<HostLink>,
    /// Its workspace, when one is mirrored.
    pub workspace: Option<ListedWorkspace>,
    /// The owner's pid, while it runs.
    pub pid: Option<i32>,
}

/// The workspace of a session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedWorkspace {
    /// The directory here.
    pub local: WrittenPath,
    /// `unchanged`: no agent ran there since both ends agreed; `in_use`: the session runs; `pulled`: the
    /// work is here; `unpulled`: work is on the host and not here.
    pub work: String,
    /// Why it is unpulled, where that is known.
    pub why: Option<String>,
    /// When something was pulled last.
    pub last_pull: Option<Timestamp>,
    /// The number of the generation that has it.
    pub generation: Option<u64>,
}

impl ListedWorkspace {
    fn of(directory: &Path, is_running: bool) -> Option<Self> {
        // A record that cannot be read is no reason to hide the session.
        let WorkspaceFile { record, .. } = WorkspaceFile::read(directory).ok()??;
        let (work, why) = match (&record.work, is_running) {
            (Work::Open, true) => ("in_use", None),
            (Work::Open, false) => ("unpulled", None),
            (Work::Unpulled { why }, _) => ("unpulled", Some(why.clone())),
            (Work::Pulled, _) => ("pulled", None),
            (Work::None, _) => ("unchanged", None),
        };
        Some(Self {
            local: record.local,
            work: work.to_owned(),
            why,
            last_pull: record.last_pull.as_ref().map(|pull| pull.at),
            generation: record.last_pull.map(|pull| pull.generation),
        })
    }
}

/// How the link of a running session is; `None` when its owner cannot be asked.
fn link_of(session: &SessionId, paths: &Paths) -> Option<HostLink> {
    let Ok(Ownership::Held(Some(owner))) = ownership(&paths.session(session)) else {
        return None;
    };
    // From inside a session it would be refused, and told as a try to control it.
    if ProcessStamp::current().ancestors().contains(&owner.process) {
        return None;
    }
    let status = ask_now(session, paths, &Call::Status).ok()?;
    serde_json::from_value::<Status>(status).ok()?.link
}

/// Every session that has a directory, oldest first.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list(paths: &Paths) -> Result<Vec<Listed>, Failure> {
    let mut listed = Vec::new();
    if !paths.ledger().exists() {
        return Ok(listed);
    }
    let Some(known) = Known::read(&paths.ledger())? else {
        return Ok(listed);
    };
    for directory in session_directories(paths) {
        let name = directory.file_name().and_then(|name| name.to_str());
        let Some(Ok(session)) = name.map(str::parse::<SessionId>) else {
            continue;
        };
        let pid = owner_pid(&directory);
        // Made, and not in the ledger: it is about to begin, or it never began.
        let Some(entries) = known.session(&session) else {
            continue;
        };
        let Some(receipt) = Receipt::fold(&session, &entries?) else {
            continue;
        };
        let record = host_of(&directory);
        let is_open = record
            .as_ref()
            .is_some_and(|record| record.remains == Remains::Unknown);
        let state = match (pid, &receipt.ended_at) {
            (Some(_), _) => "running",
            (None, Some(_)) if is_open => "unconfirmed",
            (None, Some(_)) => "ended",
            (None, None) => "interrupted",
        };
        listed.push(Listed {
            session: session.to_string(),
            state: state.to_owned(),
            cap_pico_usd: receipt.cap_pico_usd.pico(),
            spent_pico_usd: receipt.spent_pico_usd.pico(),
            held_pico_usd: receipt.held_pico_usd.pico(),
            started_at: receipt.started_at,
            agent: receipt.agent.argv0,
            link: pid
                .filter(|_| record.is_some())
                .and_then(|_| link_of(&session, paths)),
            workspace: ListedWorkspace::of(&directory, pid.is_some()),
            host: record.map(|record| record.name),
            pid,
        });
    }
    listed.sort_by(|one, other| {
        (&one.started_at, &one.session).cmp(&(&other.started_at, &other.session))
    });
    Ok(listed)
}

/// The sessions that the ledger knows.
struct Known {
    reader: Reader,
    names: BTreeSet<SessionId>,
}

impl Known {
    /// `None` while the ledger is empty.
    fn read(ledger: &Path) -> Result<Option<Self>, Failure> {
        let unreadable = |error: LedgerError| Failure::because("the ledger cannot be read", &error);
        let reader = match Reader::open(ledger) {
            Err(LedgerError::Empty { .. }) => return Ok(None),
            opened => opened.map_err(unreadable)?,
        };
        let rows = reader.sessions().map_err(unreadable)?;
        Ok(Some(Self {
            names: rows.into_iter().map(|row| row.session).collect(),
            reader,
        }))
    }

    /// The entries of a session, when it is known.
    fn session(&self, session: &SessionId) -> Option<Result<Vec<Recorded>, Failure>> {
        self.names.contains(session).then(|| {
            self.reader
                .session(session)
                .map_err(|error| Failure::because("the ledger cannot be read", &error))
        })
    }
}

/// The host of a session; a record that cannot be read is no reason to hide the session.
fn host_of(directory: &Path) -> Option<HostRecord> {
    let file = RecordFile::read(directory).ok()??;
    Some(file.record)
}

fn owner_pid(directory: &Path) -> Option<i32> {
    match ownership(directory) {
        Ok(Ownership::Held(Some(record))) => Some(record.process.pid),
        Ok(Ownership::Held(None)) => Some(0),
        Ok(Ownership::Free(_)) | Err(_) => None,
    }
}

/// The list as a table.
pub fn table(listed: &[Listed]) -> Table {
    let usd = |pico| crate::money::PicoUsd::from_pico(pico).to_string();
    let mut table = Table::new([
        Column::text("SESSION"),
        Column::text("STATE"),
        Column::number("CAP"),
        Column::number("SPENT"),
        Column::number("HELD"),
        Column::text("STARTED"),
        Column::text("AGENT"),
        Column::text("HOST"),
        Column::text("LINK"),
        Column::text("WORKSPACE"),
        Column::text("PULLED"),
    ]);
    for one in listed {
        table.row([
            one.session.clone(),
            one.state.clone(),
            usd(one.cap_pico_usd),
            usd(one.spent_pico_usd),
            usd(one.held_pico_usd),
            format!("{:.0}", one.started_at),
            one.agent.clone().unwrap_or_default(),
            one.host.clone().unwrap_or_default(),
            one.link
                .map(|link| link.word().to_owned())
                .unwrap_or_default(),
            one.workspace
                .as_ref()
                .map(|workspace| workspace.work.clone())
                .unwrap_or_default(),
            one.workspace
                .as_ref()
                .and_then(|workspace| workspace.last_pull)
                .map(|at| format!("{at:.0}"))
                .unwrap_or_default(),
        ]);
    }
    table
}

/// Where a session's agent works and what may be left there, for people; `None`: on this machine.
///
/// # Errors
/// When the record of its host cannot be read.
pub fn host_line(session: &SessionId, paths: &Paths) -> Result<Option<String>, Failure> {
    let file = RecordFile::read(&paths.session(session))?;
    Ok(file.map(|file| {
        let record = file.record;
        let place = format!("{}/sessions/{session}", record.host.workdir.as_str());
        match record.remains {
            Remains::Unknown => format!("on {}, in {place}", record.name),
            remains => format!(
                "on {}, in {place}; {}",
                record.name,
                confirm::line(&record.name, &remains)
            ),
        }
    }))
}

/// Which directory here is a session's workspace and what became of the work there, for people; `None`:
/// it has none.
pub fn workspace_line(session: &SessionId, paths: &Paths) -> Option<String> {
    let directory = paths.session(session);
    let workspace = ListedWorkspace::of(&directory, owner_pid(&directory).is_some())?;
    let local = workspace.local.into_os_string();
    let why = match &workspace.why {
        Some(why) => format!(" ({})", escape(why)),
        None => String::new(),
    };
    let last = match (workspace.last_pull, workspace.generation) {
        (Some(at), Some(generation)) => format!("last pull {at:.0}, generation {generation}"),
        (_, _) => "nothing was pulled yet".to_owned(),
    };
    Some(format!(
        "workspace {}: {}{why}; {last}",
        escape(local.as_encoded_bytes()),
        workspace.work.replace('_', " ")
    ))
}

/// A session's receipt: from its owner while it runs, else from the ledger.
///
/// # Errors
/// When neither can be read.
pub fn show(session: &SessionId, paths: &Paths) -> Result<Receipt, Failure> {
    let directory = paths.session(session);
    if let Ok(Ownership::Held(_)) = ownership(&directory) {
        match ask_now(session, paths, &Call::Session) {
            Ok(value) => {
                return serde_json::from_value(value)
                    .map_err(|error| Failure::because("the receipt cannot be read", &error));
            }
            // It is starting or ending; the ledger knows as much.
            Err(ControlError::Unreachable(_)) => {}
            Err(error) => return Err(Failure::because("the session does not answer", &error)),
        }
    }
    books::receipt(&paths.ledger(), session)
}

/// Asks a running session, from outside any runtime.
pub(super) fn ask_now(
    session: &SessionId,
    paths: &Paths,
    call: &Call,
) -> Result<Value, ControlError> {
    let socket = sockets_of(session, paths).join("control.sock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ControlError::Unreachable)?;
    runtime.block_on(ask(&socket, call))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Style;

    /// Nobody reads nanoseconds in a table; the JSON keeps them, as the receipt does.
    #[test]
    fn the_table_tells_whole_seconds() {
        let one = Listed {
            session: "ses_a".to_owned(),
            state: "ended".to_owned(),
            cap_pico_usd: 0,
            spent_pico_usd: 0,
            held_pico_usd: 0,
            started_at: "2026-11-30T00:03:18.025177469Z".parse().unwrap(),
            agent: None,
            host: None,
            link: None,
            workspace: None,
            pid: None,
        };
        let json = serde_json::to_value(&one).unwrap();
        assert_eq!(json["started_at"], "2026-11-30T00:03:18.025177469Z");
        let text = table(&[one]).render(Style::Plain);
        assert!(text.contains("  2026-11-30T00:03:18Z\n"), "{text}");
    }
}
