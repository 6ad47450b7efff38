//! What the policy finds in a tree, by its manifest alone.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use labproxy::audit::record::exit_status;
use labproxy::audit::view::text;
use labproxy::ledger::Verdict;

use crate::rig::{Done, Rig};

fn found(done: &Done) -> Vec<String> {
    assert!(
        matches!(done.verdict(), Verdict::Findings { .. }),
        "{done:?}"
    );
    let line = |finding: &labproxy::audit::policy::Finding| {
        format!("{}: {}", text(&finding.path), finding.what)
    };
    done.findings.iter().map(line).collect()
}

/// Everything that is refused is listed, and the tool does not run.
#[test]
fn t33_every_finding_is_listed() {
    let rig = Rig::new();
    rig.configure(
        "[audit]\ndeny = [\"*.pem\", \"secrets/\"]\nmax_file_bytes = 100\nmax_entries = 8\nmax_bytes = 150\n",
    );
    rig.far("fine", "x");
    rig.far("key.pem", "x");
    rig.far("secrets/a", "x");
    rig.far("secrets/b.pem", "x");
    rig.far("long", vec![b'x'; 200]);
    rig.far("root", "x");
    fs::set_permissions(rig.path("far/root"), fs::Permissions::from_mode(0o4755)).unwrap();
    symlink("/etc/passwd", rig.path("far/abs")).unwrap();
    symlink("fine", rig.path("far/inner")).unwrap();
    let _socket = UnixListener::bind(rig.path("far/socket")).unwrap();
    let done = rig.sh("touch ran");
    assert_eq!(
        found(&done),
        [
            ".: 10 entries, and 8 is the limit (audit.max_entries)",
            ".: 205 bytes in all, and 150 is the limit (audit.max_bytes)",
            "abs: a symlink to '/etc/passwd' (audit.symlinks)",
            "inner: a symlink to 'fine' (audit.symlinks)",
            "key.pem: a denied path (audit.deny)",
            "long: a file of 200 bytes, and 100 is the limit (audit.max_file_bytes)",
            "root: a setuid file (audit.setuid)",
            "secrets: a denied path (audit.deny)",
            "socket: a socket (audit.special)",
        ]
    );
    assert_eq!(exit_status(done.verdict()), 123);
    let Verdict::Findings { findings, count } = done.verdict() else {
        unreachable!("looked at above");
    };
    assert_eq!((findings.len(), *count), (9, 9));
}

/// Links that stay inside may be let in alone; those that leave, by any way, are named.
#[test]
fn t33_links_that_leave_are_refused_alone() {
    let rig = Rig::new();
    rig.configure("[audit]\nsymlinks = \"inside\"\n");
    rig.far("d/file", "x");
    symlink("d/file", rig.path("far/inner")).unwrap();
    let done = rig.sh("cat inner");
    assert_eq!(done.verdict(), &Verdict::Passed);
    symlink("../../etc/passwd", rig.path("far/d/up")).unwrap();
    symlink("/etc/passwd", rig.path("far/abs")).unwrap();
    symlink("d/up", rig.path("far/through")).unwrap();
    let lines = found(&rig.sh("true"));
    let names: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(names, ["abs", "d/up", "through"]);
}

/// What may be left out is left out: the tool never meets it.
#[test]
fn what_is_omitted_does_not_reach_the_tool() {
    let rig = Rig::new();
    rig.configure("[audit]\nspecial = \"omit\"\nsetuid = \"omit\"\n");
    rig.far("root", "x");
    fs::set_permissions(rig.path("far/root"), fs::Permissions::from_mode(0o6755)).unwrap();
    let _socket = UnixListener::bind(rig.path("far/socket")).unwrap();
    let done = rig.sh("test ! -e socket && test ! -u root && test ! -g root && test -x root");
    assert_eq!(done.verdict(), &Verdict::Passed);
}

/// A pattern that is none is an error that names its setting, never passed over.
#[test]
fn a_bad_pattern_is_refused_by_name() {
    let rig = Rig::new();
    rig.configure("[audit]\ndeny = [\"a[\"]\n");
    let failure = rig
        .try_audit(&["true"], crate::rig::How::default())
        .unwrap_err();
    assert!(failure.message().contains("audit.deny"), "{failure:?}");
    assert!(failure.message().contains("config.toml"), "{failure:?}");
}

/// Hostile names are shown escaped, in findings and in the ledger.
#[test]
fn t37_names_in_findings_are_escaped() {
    let rig = Rig::new();
    symlink("x\x1b[2J", rig.path("far/a\x1b]0;b\n")).unwrap();
    let done = rig.sh("true");
    let lines = found(&done).concat();
    assert!(!lines.contains(['\x1b', '\n']), "{lines:?}");
    let recorded = serde_json::to_string(done.verdict()).unwrap();
    assert!(!recorded.contains("\\u001b"), "{recorded}");
}
