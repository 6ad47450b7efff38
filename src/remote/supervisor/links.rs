//! Links come, take each other's place, fall silent and end.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::remote::clock::Moment;
use crate::remote::link::{Came, Link};
use crate::remote::tell;
use crate::wire::frame;
use crate::wire::link::{FromHost, Opening, Refusal};

use super::{Supervisor, ending::Cause};

/// Links that have not opened or say their last. Each is a process of this user; more are closed.
const OTHERS_MAX: usize = 16;

impl Supervisor {
    /// Whether a controller is there.
    pub(super) fn is_attached(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.attached)
    }

    /// Takes in the links that come.
    pub(super) fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            if !is_ours(&socket) || self.others.len() >= OTHERS_MAX {
                continue;
            }
            match Link::new(socket) {
                Ok(link) => self.others.push(link),
                Err(error) => tell(&format!("a link cannot be used: {error}")),
            }
        }
    }

    /// Reads one of the other links: it may open.
    pub(super) fn serve_other(&mut self, at: usize) {
        let Some(link) = self.others.get_mut(at) else {
            return;
        };
        if link.write().is_err() || link.read() == Came::End {
            link.finish();
            return;
        }
        if link.is_closing() {
            return;
        }
        let inbox = link.take_inbox();
        let opened = match frame::split(&inbox) {
            Ok(None) => Ok((None, 0)),
            Ok(Some((message, rest))) => frame::decode::<Opening>(message)
                .map(|opening| (Some(opening), inbox.len() - rest.len())),
            Err(error) => Err(error),
        };
        match opened {
            Ok((None, _)) => link.put_back(inbox, 0),
            Ok((Some(opening), done)) => {
                link.put_back(inbox, done);
                link.opening = Some(opening.clone());
                match self.admit(&opening) {
                    Ok(()) => self.replace_link(at, opening.lease_ms),
                    Err(refusal) => self.refuse_other(at, refusal),
                }
            }
            Err(error) => {
                let what = error.to_string();
                self.refuse_other(at, Refusal::Protocol { what });
            }
        }
    }

    fn refuse_other(&mut self, at: usize, refusal: Refusal) {
        if let Some(link) = self.others.get_mut(at) {
            link.say_last(&FromHost::Refused(refusal));
        }
    }

    /// Whether a link may take the place of the present one.
    fn admit(&self, opening: &Opening) -> Result<(), Refusal> {
        if let Some(ending) = &self.ending {
            match ending.cause {
                // The last word says what was killed and what is left; it has not come yet.
                Cause::Asked | Cause::Guard | Cause::Signal => {}
                Cause::Lease => return Err(Refusal::LeaseOver),
            }
        }
        if opening.link > self.newest {
            return Ok(());
        }
        if opening.must_live {
            return Err(Refusal::Replaced);
        }
        // Its first link, and a later one is there: somebody else's session of this name.
        Err(Refusal::Busy {
            pid: rustix::process::getpid()
                .as_raw_nonzero()
                .get()
                .unsigned_abs(),
        })
    }

    fn replace_link(&mut self, at: usize, lease_ms: u64) {
        let link = self.others.remove(at);
        self.newest = link.number();
        self.lease = Duration::from_millis(lease_ms);
        self.drop_link(Some(Refusal::Replaced));
        self.alone = None;
        self.link = Some(link);
        self.serve_link();
    }

    /// The link is no more; with a reason, it is told.
    pub(super) fn drop_link(&mut self, why: Option<Refusal>) {
        let Some(mut link) = self.link.take() else {
            return;
        };
        self.alone = Some(Moment::now());
        self.forward_nothing();
        self.place.remove_link_directory(link.number());
        if let Some(why) = why {
            link.say_last(&FromHost::Refused(why));
            self.others.push(link);
        }
    }

    /// Links that are done are closed; the link that was silent for too long is given up.
    pub(super) fn judge_links(&mut self, now: Moment) {
        self.others
            .retain(|link| !link.is_done(now) && !link.is_silent(now));
        let Some(link) = &mut self.link else { return };
        if link.is_silent(now) {
            tell("the link is silent");
            self.drop_link(None);
        } else {
            link.beat(now);
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) {
        for link in &mut self.others {
            if link.write().is_err() {
                link.finish();
            }
        }
        if self.link.as_mut().is_some_and(|link| link.write().is_err()) {
            self.drop_link(None);
        }
    }

    /// Tells the controller, when there is one.
    pub(super) fn say(&mut self, message: &FromHost<'_>) {
        let Some(link) = self.link.as_mut().filter(|link| link.attached) else {
            return;
        };
        if link.send(message).is_err() {
            tell("the controller does not read");
            self.drop_link(None);
        }
    }
}

fn is_ours(socket: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(socket);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}
