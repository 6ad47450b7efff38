//! Hold, then send: shown by a trace of the system calls of one request.

use std::process::Command;

use crate::rig::{CANARY, Rig, answer, ask};
use crate::upstream::{Step, Upstream, json};

/// Set in the process that is traced.
const TRACED: &str = "LABPROXY_TEST_TRACED";

/// One request through a proxy; the whole of the traced process.
#[tokio::test]
async fn traced_request() {
    if std::env::var_os(TRACED).is_none() {
        return;
    }
    let upstream = Upstream::start(|_, _| vec![Step::Bytes(json("200 OK", answer(10, 20)))]).await;
    let rig = Rig::new(&upstream.url()).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 200);
}

/// Between the client's request and the first byte to the upstream, the write-ahead log is written
/// and synchronised to disk.
#[test]
fn the_hold_is_on_disk_before_the_first_byte_is_sent() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("trace");
    let calls = "trace=fdatasync,fsync,pwrite64,write,writev,sendto,sendmsg";
    let status = Command::new("strace")
        .args(["-f", "-y", "-s", "2048", "-e", calls, "-o"])
        .arg(&log)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "order::traced_request"])
        .env(TRACED, "1")
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
    let trace = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    let position = |from: usize, what: &dyn Fn(&str) -> bool| {
        lines[from..]
            .iter()
            .position(|line| what(line))
            .map(|at| at + from)
    };
    let asked = position(0, &|line| {
        line.contains("POST /v1/messages") && line.contains("x-api-key: lp-")
    });
    let asked = asked.expect("the client's request is in the trace");
    let sent = position(asked, &|line| {
        line.contains(&format!("x-api-key: {CANARY}"))
    });
    let sent = sent.expect("the proxy's request is in the trace");
    let written = position(asked, &|line| {
        line.contains("pwrite64(") && line.contains("ledger.sqlite-wal")
    });
    let written = written.expect("the log is written");
    let synced = position(written, &|line| {
        line.contains("sync(") && line.contains("ledger.sqlite-wal")
    });
    let synced = synced.expect("the log is synchronised");
    let done = if lines[synced].ends_with("= 0") {
        synced
    } else {
        let resumed = |line: &str| line.contains("sync resumed>") && line.ends_with("= 0");
        position(synced, &resumed).expect("the synchronisation ends")
    };
    assert!(
        asked < written && written < synced && done < sent,
        "asked {asked}, written {written}, synced {synced}..{done}, sent {sent}"
    );
}
