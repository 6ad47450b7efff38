//! What dead sessions left is swept by the next one; what may live, or is not known, is not.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use labproxy::processes::ProcessStamp;
use labproxy::remote::login::Login;
use labproxy::remote::place::{Place, SUPERVISOR_SOCKET};
use labproxy::remote::record::{Owner, PidSpace, Record};

use crate::client::Client;
use crate::rig::{Host, exists};

/// A process that was and is no more.
fn dead() -> ProcessStamp {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let stamp = ProcessStamp::of(child.id() as i32).unwrap();
    child.wait().unwrap();
    stamp
}

/// A session's directory with a record and sockets, as a killed supervisor leaves them.
fn leftover(host: &Host, name: &str) -> (PathBuf, Record) {
    let directory = host.home.join(".labproxy/sessions").join(name);
    fs::create_dir_all(directory.join("workspace")).unwrap();
    for path in [
        host.home.join(".labproxy"),
        host.home.join(".labproxy/sessions"),
        directory.clone(),
    ] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
    let mut place = Place::make(&Login::take()).unwrap();
    drop(UnixListener::bind(place.supervisor_socket()).unwrap());
    place.made(SUPERVISOR_SOCKET).unwrap();
    drop(UnixListener::bind(place.link_directory(1).unwrap().join("proxy.sock")).unwrap());
    let record = Record {
        uid: rustix::process::geteuid().as_raw(),
        space: PidSpace::current(),
        guard: dead(),
        supervisor: dead(),
        place,
        group: None,
    };
    (directory, record)
}

fn write(directory: &PathBuf, record: &Record) {
    record
        .write(&OwnedFd::from(fs::File::open(directory).unwrap()))
        .unwrap();
}

/// Only proven death is death: another user, machine or pid namespace, or a living pid, is not.
#[test]
fn t35_only_what_is_proven_gone_is_swept() {
    let host = Host::new();
    let (gone, mut record) = leftover(&host, "gone");
    write(&gone, &record);
    let gone_place = record.place.path();
    let text = |change: &dyn Fn(&mut Record), name: &str| {
        let (directory, mut record) = leftover(&host, name);
        change(&mut record);
        write(&directory, &record);
        (directory, record)
    };
    let alive = ProcessStamp::current();
    let lives = text(&|record| record.guard = alive, "lives");
    let foreign = text(&|record| record.uid += 1, "foreign");
    assert_eq!(lives.1.owner(), Owner::Lives);
    assert_eq!(foreign.1.owner(), Owner::Unknown);
    record.supervisor.started += 1;
    assert_eq!(record.owner(), Owner::Gone);
    let mut client = Client::new(&host);
    assert!(!exists(&gone_place) && !exists(&gone.join("supervisor")));
    assert!(gone.join("workspace").is_dir());
    for (directory, record) in [lives, foreign] {
        assert!(
            exists(&record.place.supervisor_socket()),
            "{}",
            directory.display()
        );
        assert!(exists(&directory.join("supervisor")));
        record.place.remove().unwrap();
    }
    client.end(0);
}

/// A clean-up removes the very sockets that were made, and nothing that took their names.
#[test]
fn tb22_only_the_very_sockets_are_removed() {
    let host = Host::new();
    let (directory, record) = leftover(&host, "replaced");
    write(&directory, &record);
    let socket = record.place.supervisor_socket();
    // Whoever comes later has the name; an inode that is kept cannot be given again.
    let kept = record.place.path().join("kept");
    fs::rename(&socket, &kept).unwrap();
    let successor = UnixListener::bind(&socket).unwrap();
    fs::write(record.place.path().join("file"), "").unwrap();
    let mut client = Client::new(&host);
    assert!(exists(&socket) && exists(&record.place.path().join("file")));
    drop(successor);
    client.end(0);
    fs::remove_dir_all(record.place.path()).unwrap();
}

/// A stale socket of an earlier session is no hindrance.
#[test]
fn tu01_a_stale_socket_hinders_nobody() {
    let host = Host::new();
    let (directory, record) = leftover(&host, &host.session);
    write(&directory, &record);
    let mut client = Client::new(&host);
    assert_ne!(host.record().unwrap().place, record.place);
    assert!(!exists(&record.place.path()));
    client.end(0);
}
