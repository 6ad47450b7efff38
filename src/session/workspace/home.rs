//! Bringing here what a session that nobody owns left in its workspace on the host.

use super::mirror::SessionMirror;
use super::record::Work;
use super::told;
use super::work::{self, After, Tools};
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::mirror::ends::Around;
use crate::mirror::stop::Stop;
use crate::report::{self, Failure};
use crate::session::changes;
use crate::session::remote::confirm;

/// Ends what is left of a session, here and on its host, and pulls its work. Gives a line for the user.
///
/// # Errors
/// When somebody owns the session, its host cannot be asked, or the work does not come: it stays there.
pub fn bring(session: &SessionId, around: &Around, ledger: &Ledger) -> Result<String, Failure> {
    let paths = &around.paths;
    let lock = changes::take_lock(session, paths)?;
    changes::settle_remains(session, paths, ledger, &lock)?;
    let left = confirm::end_remains(session, paths, &around.environment)?;
    let left = left.map(|left| format!("; {left}")).unwrap_or_default();
    let mut mirror = SessionMirror::of(session, paths)?;
    let host = mirror.file().record.host.clone();
    if !mirror.file().record.is_unpulled() {
        return Ok(format!(
            "{session} has no work on {host} that is not here{left}"
        ));
    }
    let tools = Tools {
        around: around.clone(),
        credential: None,
        secrets: std::collections::BTreeSet::new(),
        stop: Stop::default(),
    };
    let why = match work::after(&mut mirror, &tools) {
        Ok(After::Home(pulled)) => {
            report::tell(&told::pulled(&pulled, session));
            mirror
                .file_mut()
                .change(|record| record.work = Work::Pulled)?;
            return Ok(format!("{session} has its work here{left}"));
        }
        Ok(After::Kept(pulled, why)) => {
            report::tell(&told::saved(&pulled, session));
            why.within("the directory here was not brought to what the agent left")
        }
        Err(why) => why.within(format!("the agent's work on {host} was not pulled")),
    };
    let unpulled = told::unpulled_as(&why);
    mirror.file_mut().change(|record| record.work = unpulled)?;
    Err(why.problem(told::place(&mirror.file().record)))
}
