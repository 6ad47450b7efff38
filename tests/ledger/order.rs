//! Order and sharing: entries stand in the order they were handed in, whoever writes.

use futures_util::future::join_all;
use labproxy::ledger::{Entry, Reader};
use labproxy::money::PicoUsd;

use crate::bench::{
    clock, fill, held, open, open_at, opened, paths, pico, problems, read, request, session,
    settled, verify,
};
use crate::child::{Work, command, told};

/// The clock goes back by a year between two entries: their order and the chain stay.
#[tokio::test]
async fn a_clock_that_goes_back_does_not_disturb_the_order() {
    let directory = tempfile::tempdir().unwrap();
    let clock = clock("2026-11-30T12:00:00Z");
    let ledger = open_at(directory.path(), clock.clone(), None).unwrap();
    let (session, request) = (session(), request());
    let first = vec![opened(100), held(&request, 10)];
    ledger.append(&session, first.clone()).await.unwrap();
    clock.set("2025-11-30T12:00:00Z".parse().unwrap());
    let second = settled(&request, 10);
    ledger.append(&session, vec![second.clone()]).await.unwrap();
    let recorded = read(directory.path(), &session);
    let entries: Vec<Entry> = recorded
        .iter()
        .map(|recorded| recorded.entry.clone())
        .collect();
    assert_eq!(entries, [first, vec![second]].concat());
    assert_eq!(
        recorded
            .iter()
            .map(|recorded| recorded.head.seq)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(recorded[2].at < recorded[1].at);
    assert_eq!(problems(directory.path()), Vec::<String>::new());
}

/// Entries of many tasks at once are all there, each batch whole and in the order of its own task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_share_commits_and_none_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path()).unwrap();
    let tasks = (0..16).map(|_| {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            let session = session();
            ledger
                .append(&session, vec![opened(1_000_000)])
                .await
                .unwrap();
            for charged in 1..=20 {
                let request = request();
                ledger
                    .append(&session, vec![held(&request, charged)])
                    .await
                    .unwrap();
                ledger.append_later(&session, vec![settled(&request, charged)]);
            }
            session
        })
    });
    let sessions: Vec<_> = join_all(tasks)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    ledger.flush().await.unwrap();
    let verified = verify(directory.path());
    assert_eq!(verified.problems, []);
    assert_eq!((verified.head.seq, verified.sessions), (16 * 41, 16));
    assert_eq!(
        (verified.charged, verified.held),
        (pico(16 * 210), PicoUsd::ZERO)
    );
    for session in &sessions {
        let charges: Vec<u64> = read(directory.path(), session)
            .iter()
            .filter_map(|recorded| match &recorded.entry {
                Entry::Settled { charged, .. } => Some(charged.pico()),
                _ => None,
            })
            .collect();
        assert_eq!(charges, (1..=20).collect::<Vec<_>>());
    }
}

/// L03: two processes share one ledger at the same time; neither loses an entry and the chain holds.
#[test]
fn l03_two_processes_share_one_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let children: Vec<_> = (1..=2)
        .map(|seed| {
            command(directory.path(), Work::Requests(100), seed)
                .spawn()
                .unwrap()
        })
        .collect();
    let mut served = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = told(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(lines.last().unwrap().join(" "), "poisoned false");
        served += lines.iter().filter(|line| line[0] == "served").count();
    }
    assert_eq!(served, 200);
    let verified = verify(directory.path());
    assert_eq!(verified.problems, []);
    // For each session: opened, and for each request held and settled or kept.
    assert_eq!((verified.sessions, verified.head.seq), (2, 2 * 201));
}

/// A price file is stored once, whatever is handed in under its digest later.
#[tokio::test]
async fn a_price_file_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path()).unwrap();
    ledger.store_price_file("d1", "first").await.unwrap();
    ledger.store_price_file("d1", "second").await.unwrap();
    let reader = Reader::open(&paths(directory.path()).0).unwrap();
    assert_eq!(reader.price_file("d1").unwrap().as_deref(), Some("first"));
    assert_eq!(reader.price_file("d2").unwrap(), None);
}

/// Open holds of a dead session are kept whole, once; an operator may correct one, and only that.
#[tokio::test]
async fn open_holds_are_kept_once_and_may_be_corrected() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path()).unwrap();
    let other = fill(&ledger, 3).await;
    let (dead, first, second) = (session(), request(), request());
    let begin = vec![
        opened(100),
        held(&first, 10),
        held(&second, 20),
        settled(&second, 4),
    ];
    ledger.append(&dead, begin).await.unwrap();
    drop(ledger);
    let ledger = open(directory.path()).unwrap();
    let reader = Reader::open(&paths(directory.path()).0).unwrap();
    assert_eq!(
        reader.sessions_with_open_holds().unwrap(),
        std::slice::from_ref(&dead)
    );
    assert_eq!(
        ledger.keep_open_holds(&dead, "died").await.unwrap(),
        pico(10)
    );
    assert_eq!(
        ledger.keep_open_holds(&dead, "died").await.unwrap(),
        PicoUsd::ZERO
    );
    assert_eq!(
        ledger.keep_open_holds(&other, "died").await.unwrap(),
        PicoUsd::ZERO
    );
    assert_eq!(verify(directory.path()).charged, pico(3 + 4 + 10));
    let correct = |request: &_| ledger.correct(&dead, Clone::clone(request), pico(1), "seen");
    correct(&first).await.unwrap();
    let error = correct(&second).await.unwrap_err();
    assert!(
        error.to_string().contains("whose whole hold was kept"),
        "{error}"
    );
    let verified = verify(directory.path());
    assert_eq!(verified.problems, []);
    assert_eq!(verified.charged, pico(3 + 4 + 1));
}

/// Files are readable by their owner only.
#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("made");
    let ledger = open(&below).unwrap();
    fill(&ledger, 1).await;
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&below), 0o700);
    for file in std::fs::read_dir(&below).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}
