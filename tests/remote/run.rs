//! A program runs as if it were started here.

use labproxy::wire::link::ExecEnd;

use crate::client::{Client, shell};
use crate::rig::{Host, exists, until};

/// Output, input and exit of a program, and the session's end: nothing is left but the workspace.
#[test]
fn a_program_runs_and_the_session_ends() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let done = client.run(1, &shell("cat; echo err >&2; pwd; exit 7"), b"hello\n");
    let directory = host.workspace();
    let expected = format!("hello\n{}\n", directory.display());
    assert_eq!(String::from_utf8_lossy(&done.stdout), expected);
    assert_eq!(done.stderr, b"err\n");
    assert_eq!(done.end(), ExecEnd::Exited(7));
    let record = host.record().unwrap();
    let report = client.end(1000);
    assert_eq!(report.left, []);
    until("the supervisor is gone", || !record.supervisor.is_alive());
    until("the guard is gone", || !record.guard.is_alive());
    assert!(!exists(&record.place.path()));
    assert!(host.record().is_none());
    assert!(directory.is_dir());
}
