//! The sessions that are or were on this machine, by what their directories say.

use crate::remote::directory::{self, SessionDirectory};
use crate::remote::entry;
use crate::remote::login::Login;
use crate::remote::record::{Owner, Record};
use crate::wire::bytes::ByteString;
use crate::wire::service::SessionHere;

/// Most sessions that are listed: an answer is one frame, and one has 100 bytes.
const SESSIONS_MAX: usize = 4096;

/// Lists them, by name.
///
/// # Errors
/// When the directory of sessions cannot be read.
pub(super) fn list(workdir: &ByteString, login: &Login) -> Result<Vec<SessionHere>, String> {
    let found = each(workdir, login)?;
    Ok(found.iter().map(Found::describe).collect())
}

struct Found {
    name: String,
    directory: SessionDirectory,
}

fn each(workdir: &ByteString, login: &Login) -> Result<Vec<Found>, String> {
    let sessions = directory::expand(workdir, login)?.join("sessions");
    let entries = match std::fs::read_dir(&sessions) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{} cannot be read: {error}", sessions.display())),
    };
    let mut found = Vec::new();
    for entry in entries.flatten().take(SESSIONS_MAX) {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // What has no session's name, or is open to others, is no session of ours.
        if let Ok(directory) = SessionDirectory::find(workdir, &name, login) {
            found.push(Found { name, directory });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

impl Found {
    fn describe(&self) -> SessionHere {
        let record = Record::read(self.directory.opened());
        let running = match record.as_ref().map(Record::owner) {
            Some(Owner::Lives) => Some(true),
            Some(Owner::Gone) => Some(false),
            Some(Owner::Unknown) => None,
            // Without a record it ended in order, unless it is just beginning.
            None => match entry::lock(&self.directory) {
                Ok(Some(_)) => Some(false),
                Ok(None) => Some(true),
                Err(_) => None,
            },
        };
        SessionHere {
            session: self.name.clone(),
            running,
            pid: record.and_then(|record| u32::try_from(record.supervisor.pid).ok()),
            workspace: self.directory.path().join("workspace").is_dir(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::remote::sweep;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use crate::processes::ProcessStamp;
    use crate::remote::place::{Place, SUPERVISOR_SOCKET};
    use crate::remote::record::PidSpace;
    use crate::wire::link::Opening;

    use super::*;

    /// A work directory of its own, and sessions in it.
    struct Host {
        root: tempfile::TempDir,
        login: Login,
    }

    impl Host {
        fn new() -> Self {
            Self {
                root: tempfile::tempdir().unwrap(),
                login: Login::take(),
            }
        }

        fn workdir(&self) -> ByteString {
            ByteString::from(self.root.path())
        }

        /// A session with a file in its workspace, a place with a socket, and a record of these.
        fn session(&self, name: &str, owner: ProcessStamp, space: PidSpace) -> (PathBuf, PathBuf) {
            let opening = Opening {
                session: name.to_owned(),
                workdir: self.workdir(),
                lease_ms: 0,
                link: 1,
                must_live: false,
            };
            let directory = SessionDirectory::make(&opening, &self.login).unwrap();
            let work = directory.path().join("workspace/work");
            std::fs::write(&work, "of the agent").unwrap();
            let mut place = Place::make(&self.login).unwrap();
            drop(UnixListener::bind(place.supervisor_socket()).unwrap());
            place.made(SUPERVISOR_SOCKET).unwrap();
            let record = Record {
                uid: rustix::process::geteuid().as_raw(),
                space,
                guard: owner,
                supervisor: owner,
                place: place.clone(),
                group: None,
            };
            record.write(directory.opened()).unwrap();
            (place.path(), work)
        }
    }

    fn dead() -> ProcessStamp {
        let mut child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let stamp = ProcessStamp::of(i32::try_from(child.id()).unwrap()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        stamp
    }

    /// Where pids mean something else: another machine, boot or namespace.
    fn space(change: impl FnOnce(&mut [String; 3])) -> PidSpace {
        let bytes = postcard::to_allocvec(&PidSpace::current()).unwrap();
        let mut parts: [String; 3] = postcard::from_bytes(&bytes).unwrap();
        change(&mut parts);
        postcard::from_bytes(&postcard::to_allocvec(&parts).unwrap()).unwrap()
    }

    /// Whether each runs is told where it can be known; the dead are swept, never their workspaces.
    #[test]
    fn what_can_be_told_of_each_session_is() {
        let host = Host::new();
        let here = PidSpace::current;
        let (gone, work) = host.session("a-dead", dead(), here());
        let (alive, _) = host.session("b-alive", ProcessStamp::current(), here());
        let (away, _) = host.session("c-away", dead(), space(|parts| parts[2].push('x')));
        std::fs::create_dir(host.root.path().join("sessions/.hidden")).unwrap();
        let told = |list: Result<Vec<SessionHere>, String>| -> Vec<_> {
            let seen = |one: SessionHere| (one.session, one.running, one.pid.is_some());
            list.unwrap().into_iter().map(seen).collect()
        };
        let rest = [
            ("b-alive".to_owned(), Some(true), true),
            ("c-away".to_owned(), None, true),
        ];
        let before = told(list(&host.workdir(), &host.login));
        assert_eq!(before[0], ("a-dead".to_owned(), Some(false), true));
        assert_eq!(before[1..], rest);
        for session in each(&host.workdir(), &host.login).unwrap() {
            sweep::one(&session.directory);
        }
        let after = told(list(&host.workdir(), &host.login));
        assert_eq!(after[0], ("a-dead".to_owned(), Some(false), false));
        assert_eq!(after[1..], rest);
        assert!(!gone.exists() && work.exists());
        for kept in [alive, away] {
            std::fs::remove_dir_all(kept).unwrap();
        }
    }

    /// No sessions are no error, and neither is a missing work directory.
    #[test]
    fn nothing_is_an_empty_list() {
        let host = Host::new();
        assert_eq!(list(&host.workdir(), &host.login).unwrap(), []);
        let absent = ByteString::from("/absent/workdir");
        assert_eq!(list(&absent, &host.login).unwrap(), []);
        assert!(list(&ByteString::from("relative"), &host.login).is_err());
    }
}
