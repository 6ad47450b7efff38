//! What a host says is left of a session, and what that means.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::record::{RecordFile, Remains};
use crate::clock::SystemClock;
use crate::config::{Environment, Paths};
use crate::escape::escape;
use crate::id::SessionId;
use crate::report::Failure;
use crate::tunnel::carrier;
use crate::tunnel::end::end_there;
use crate::tunnel::error::TunnelError;
use crate::wire::bytes::ByteString;
use crate::wire::link::{EndReport, Opening};

/// Between TERM and KILL of what a dead owner left: nobody waits for its work any more.
const GRACE: Duration = Duration::from_secs(2);

/// What came of an end, as it is written down.
///
/// # Errors
/// When the host could not say.
pub(super) fn ended(
    host: &str,
    end: Result<Option<EndReport>, Arc<TunnelError>>,
) -> Result<Remains, Failure> {
    match end {
        Ok(None) => Ok(Remains::NotBegun),
        Ok(Some(report)) => Ok(remains(&report)),
        Err(error) if error.is_over_there() => Ok(Remains::Nothing),
        Err(error) => Err(cannot_confirm(host, &error.failure(host))),
    }
}

/// A host that could not be reached, and that nobody wants to wait for.
pub(super) fn not_asked(host: &str) -> Failure {
    cannot_confirm(host, &Failure::failed(format!("{host} cannot be reached")))
}

fn cannot_confirm(host: &str, why: &Failure) -> Failure {
    let failure = Failure::failed(format!(
        "cannot confirm that nothing of the session is left on {host}: {}",
        why.message()
    ))
    .hint("what runs there ends by itself when the lease is over; 'labproxy session stop ID' asks again");
    let failure = why
        .problems()
        .iter()
        .fold(failure, |failure, problem| failure.problem(problem.clone()));
    why.causes()
        .iter()
        .fold(failure, |failure, cause| failure.problem(cause.clone()))
}

fn remains(report: &EndReport) -> Remains {
    let mut left = Vec::new();
    for process in &report.left {
        left.push(format!(
            "process {} ({}, state {}) could not be ended",
            process.pid,
            escape(process.name.as_bytes()),
            process.state
        ));
    }
    for escape_route in &report.escapes {
        left.push(format!("made during the session: {}", escape(escape_route)));
    }
    let unseen: Vec<String> = report.unseen.iter().map(escape).collect();
    for what in &unseen {
        tracing::info!(%what, "the host could not look");
    }
    if left.is_empty() && unseen.is_empty() {
        Remains::Nothing
    } else {
        Remains::These { left, unseen }
    }
}

/// A person's line of what is left; what could not be looked at is named without its reasons.
pub fn line(host: &str, remains: &Remains) -> String {
    let nothing = format!("nothing of the session is left on {host}, as it reports");
    match remains {
        Remains::NotBegun => format!("nothing was begun on {host}"),
        Remains::Nothing => nothing,
        Remains::These { left, unseen } => {
            let mut line = if left.is_empty() {
                nothing
            } else {
                format!("left on {host}, as it reports: {}", left.join("; "))
            };
            if !unseen.is_empty() {
                let kinds: Vec<&str> = unseen
                    .iter()
                    .map(|what| what.split(": ").next().unwrap_or(what))
                    .collect();
                line.push_str("; it could not look at: ");
                line.push_str(&kinds.join(", "));
            }
            line
        }
        Remains::Unknown => format!("what is left on {host} is not known"),
    }
}

/// A person's line of what may be left of a session that is forgotten although its host could not be
/// asked.
pub fn left_there(session: &SessionId, directory: &Path, why: &Failure) -> String {
    let (place, until) = match RecordFile::read(directory) {
        Ok(Some(RecordFile { record, .. })) => (
            format!(
                "{}/sessions/{session} on {}",
                record.host.workdir.as_str(),
                record.name
            ),
            format!(" of {} s", record.lease_ms / 1_000),
        ),
        Ok(None) | Err(_) => ("its directory on its host".to_owned(), String::new()),
    };
    format!(
        "{}; {place} may be left, and what runs there ends by itself when the lease{until} is over",
        why.message()
    )
}

/// Asks the host of a session that nobody owns to end what is left of it there; from outside any
/// runtime. `None`: the session has no host.
///
/// # Errors
/// When the host cannot be asked.
pub fn end_remains(
    session: &SessionId,
    paths: &Paths,
    environment: &Environment,
) -> Result<Option<String>, Failure> {
    let Some(mut file) = RecordFile::read(&paths.session(session))? else {
        return Ok(None);
    };
    let name = file.record.name.clone();
    if file.record.remains == Remains::Unknown {
        let transport =
            carrier::over_ssh(&name, &file.record.host, environment.all(), paths.runtime())?;
        let opening = Opening {
            session: session.to_string(),
            workdir: ByteString::from(file.record.host.workdir.as_str()),
            lease_ms: file.record.lease_ms,
            link: file.next_link()?,
            must_live: true,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::because("the runtime cannot be started", &error))?;
        let clock = Arc::new(SystemClock);
        let end = runtime.block_on(end_there(&*transport, &opening, GRACE, clock));
        let remains = ended(&name, end.map(Some).map_err(Arc::new))?;
        file.remains(remains)?;
    }
    Ok(Some(line(&name, &file.record.remains)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the host could not look at is told, and never taken for nothing.
    #[test]
    fn t16_what_was_not_looked_at_is_told() {
        let mut report = EndReport::default();
        let told = |report: &EndReport| line("h", &remains(report));
        let nothing = "nothing of the session is left on h, as it reports";
        assert_eq!(told(&report), nothing);
        report.unseen.push("container: no answer\x1b[2J".to_owned());
        let text = told(&report);
        let rest = text.strip_prefix(nothing).unwrap();
        assert_eq!(rest, "; it could not look at: container");
        assert!(!text.contains('\x1b'), "{text:?}");
        report.escapes.push("at job: 7".to_owned());
        let text = told(&report);
        assert!(text.starts_with("left on h, as it reports: made during the session: at job: 7; "));
        assert!(text.contains("could not look at: container"), "{text}");
        let Remains::These { unseen, .. } = remains(&report) else {
            panic!("{text}");
        };
        assert!(unseen[0].starts_with("container: no answer"), "{unseen:?}");
    }
}
