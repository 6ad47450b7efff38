//! What outlives sessions is looked at twice: when this one begins, beside its start, and when
//! nothing of it runs any more.

use std::task::Poll;

use crate::remote::clock::Moment;
use crate::remote::escapes::{LOOK_LIMIT, Look, Snapshot, compare};
use crate::remote::login::Login;
use crate::remote::{kill, tell};
use crate::wire::link::EndReport;

/// The first look.
#[derive(Debug)]
pub(super) enum FirstLook {
    /// It is under way until then.
    Under(Look, Moment),
    /// It is over, and saw this.
    Over(Option<Snapshot>),
}

impl FirstLook {
    pub(super) fn start(login: &Login) -> Self {
        begin(login).map_or(Self::Over(None), |(look, until)| Self::Under(look, until))
    }

    /// The look that is under way.
    pub(super) fn look(&self) -> Option<&Look> {
        match self {
            Self::Under(look, _) => Some(look),
            Self::Over(_) => None,
        }
    }

    /// Takes in what it saw, if it has.
    pub(super) fn go_on(&mut self, now: Moment) {
        if let Self::Under(look, until) = self
            && let Poll::Ready(snapshot) = ended(look, *until, now)
        {
            *self = Self::Over(snapshot);
        }
    }
}

/// Starts a look; gives when it is given up.
pub(super) fn begin(login: &Login) -> Option<(Look, Moment)> {
    match Look::start(login) {
        Ok(look) => Some((look, Moment::now().after(LOOK_LIMIT))),
        Err(error) => {
            tell(&format!("what outlives the session is not seen: {error}"));
            None
        }
    }
}

/// What a look saw, once it is over; `None`: nothing, or it took too long.
pub(super) fn ended(look: &mut Look, until: Moment, now: Moment) -> Poll<Option<Snapshot>> {
    match look.outcome() {
        Some(Ok(snapshot)) => Poll::Ready(Some(snapshot)),
        Some(Err(error)) => {
            tell(&format!("what outlives the session is not seen: {error}"));
            Poll::Ready(None)
        }
        None if now < until => Poll::Pending,
        None => {
            let own = i32::try_from(look.pid()).ok();
            if let Some(process) = own.and_then(crate::processes::seen) {
                kill::kill(&[process]);
            }
            Poll::Ready(None)
        }
    }
}

/// Puts what the two looks tell into the report.
pub(super) fn put_in(report: &mut EndReport, first: &FirstLook, last: Option<&Snapshot>) {
    let before = match first {
        FirstLook::Over(snapshot) => snapshot.as_ref(),
        FirstLook::Under(..) => None,
    };
    let (escapes, unseen) = compare(before, last);
    report.escapes.extend(escapes);
    report.unseen.extend(unseen);
}
