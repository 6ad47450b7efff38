//! What a session left whose guard and supervisor are both proven gone: its sockets, its control
//! group, its private files and its record. Never its workspace, and never anything of an owner that may live.

use std::path::Path;

use crate::wire::bytes::ByteString;

use super::directory::SessionDirectory;
use super::entry::lock;
use super::login::Login;
use super::record::{Owner, Record};
use super::{kill, private, tell};

/// Sweeps every session below a work directory but `own`, which is just beginning.
pub fn others(workdir: &ByteString, sessions: &Path, own: &str, login: &Login) {
    let Ok(entries) = std::fs::read_dir(sessions) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(session) = entry.file_name().into_string() else {
            continue;
        };
        if session == own {
            continue;
        }
        // What is open to others, or no session, is nothing of ours.
        if let Ok(directory) = SessionDirectory::find(workdir, &session, login)
            && Record::read(directory.opened()).is_some()
        {
            one(&directory);
        }
    }
}

/// Sweeps one session, unless somebody holds its lock; who does is woken.
pub fn one(directory: &SessionDirectory) {
    // RACE: none with a supervisor that starts: it needs the lock that is held here.
    match lock(directory) {
        Ok(Some(_lock)) => locked(directory),
        Ok(None) => {
            if let Some(record) = Record::read(directory.opened()) {
                wake(&record);
            }
        }
        Err(_) => {}
    }
}

/// Lets guard and supervisor go on when both were stopped: each ends the session when the other stays
/// stopped, and of both nobody sees it but who comes by. Then they judge the lease themselves.
pub fn wake(record: &Record) {
    let both = [record.guard, record.supervisor];
    if record.owner() == Owner::Lives && both.iter().all(|process| kill::is_stopped(*process)) {
        tell("guard and supervisor were both stopped, and go on");
        for process in both {
            kill::wake(process);
        }
    }
}

/// Sweeps a session whose lock is held by us.
pub fn locked(directory: &SessionDirectory) {
    let Some(record) = Record::read(directory.opened()) else {
        return;
    };
    if record.owner() != Owner::Gone {
        return;
    }
    if let Some(group) = &record.group {
        group.kill();
        group.remove();
    }
    let removed = record
        .place
        .remove()
        .and_then(|()| private::clear(directory.opened()))
        .and_then(|()| Record::remove(directory.opened()));
    if let Err(error) = removed {
        let path = directory.path().display();
        tell(&format!("what {path} left stays: {error}"));
    }
}
