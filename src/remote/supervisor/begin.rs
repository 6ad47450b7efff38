//! The supervisor's start: what the guard hands over.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::Signal;

use crate::remote::clock::Moment;
use crate::remote::forward::{Forwarder, Listeners, OWN_PROGRAM};
use crate::remote::guard::{Given, adopt};
use crate::remote::launches::Launches;
use crate::remote::private::Private;
use crate::remote::{handover, own};

use super::Supervisor;
use super::forwarding::Forwarding;
use super::guarding::Guarding;
use super::looking::FirstLook;
use super::memory::MemoryWatch;

/// Signals that ask us to end everything.
const ASKING: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// Takes the handover.
pub(super) fn begin() -> io::Result<Supervisor> {
    let line = rustix::stdio::stdin().try_clone_to_owned()?;
    let [memory, lock, session, listener, agent, tcp] = handover::receive(&line)?;
    let given: Given = own::from_memory(memory)?;
    adopt().map_err(|refusal| io::Error::other(format!("{refusal:?}")))?;
    let asked_to_end = Arc::new(AtomicBool::new(false));
    let signals = signals(&asked_to_end)?;
    let listener = UnixListener::from(listener);
    listener.set_nonblocking(true)?;
    let opening = given.handover.opening;
    let private = Private::open(&session)?;
    // Launches are counted from the beginning again.
    private.clear()?;
    let lease = Duration::from_millis(opening.lease_ms);
    let listeners = Listeners::from_descriptors(tcp, agent)?;
    let port = listeners.port();
    let forwarder = Forwarder::start(Path::new(OWN_PROGRAM), listeners, lease)?;
    Ok(Supervisor {
        session_directory: given.session_directory.to_path_buf(),
        session,
        private,
        place: given.place,
        contained: given.group.is_some(),
        memory: MemoryWatch::new(given.group.as_ref()),
        group: given.group,
        first_look: FirstLook::start(&given.handover.login),
        last_look: None,
        login: given.handover.login,
        port,
        forwarding: Some(Forwarding::new(forwarder)),
        _lock: lock,
        line,
        guarding: Guarding::new(given.guard),
        signals,
        listener,
        others: Vec::new(),
        link: None,
        newest: 0,
        lease,
        alone: Some(Moment::now()),
        launches: Launches::default(),
        execs: BTreeMap::new(),
        ending: None,
        asked_to_end,
        guard_is_gone: false,
        over: false,
    })
}

fn signals(asked_to_end: &Arc<AtomicBool>) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    for signal in ASKING {
        // Before the byte that wakes us.
        signal_hook::flag::register(signal.as_raw(), Arc::clone(asked_to_end))?;
    }
    for signal in ASKING.into_iter().chain([Signal::CHILD]) {
        signal_hook::low_level::pipe::register(signal.as_raw(), theirs.try_clone()?)?;
    }
    Ok(ours)
}
