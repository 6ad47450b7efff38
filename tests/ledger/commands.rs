//! `labproxy ledger` as a user runs it.

use std::path::Path;
use std::process::Command;

use labproxy::ledger::{Entry, Ledger, LedgerOptions, Reader};
use labproxy::receipt::Receipt;
use serde_json::{Value, json};

use crate::bench::{NOON, clock, facts, fill, pico, request};

/// A user with a ledger of one session, which charged 77 pico-dollars and refused one request.
async fn user() -> (tempfile::TempDir, String) {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state/labproxy");
    let ledger = Ledger::open(LedgerOptions {
        path: state.join("ledger.sqlite3"),
        anchor: state.join("ledger.anchor"),
        daily_ceiling: None,
        clock: clock(NOON),
    })
    .unwrap();
    let session = fill(&ledger, 77).await;
    let refused = Entry::Refused {
        request: request(),
        facts: facts(),
        arrival: 1,
        status: 402,
        reason: "=a \u{1b}[31m, \"quoted\"".into(),
        needed: None,
    };
    ledger.append(&session, vec![refused]).await.unwrap();
    let session = session.to_string();
    (home, session)
}

fn run(home: &Path, line: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_labproxy"))
        .args(line.split(' '))
        .env_clear()
        .env("HOME", home)
        .env("XDG_STATE_HOME", home.join("state"))
        .current_dir(home)
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// The listing has each session's sums, in a table and as JSON.
#[tokio::test]
async fn list_shows_the_sums_of_each_session() {
    let (home, session) = user().await;
    let (code, table, _) = run(home.path(), "ledger list");
    assert_eq!(code, 0);
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        words,
        [
            &session,
            "2026-11-30T12:00:00Z",
            "-",
            "2",
            "$0.000000000077",
            "$0.00",
            "$0.000001"
        ]
    );
    let (_, text, _) = run(home.path(), "ledger list --json");
    let listed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(listed[0]["spent_pico_usd"], 77);
    assert_eq!(listed[0]["session"], session);
    assert_eq!(
        (&listed[0]["first_seq"], &listed[0]["last_seq"]),
        (&json!(1), &json!(4))
    );
}

/// A session is shown by the beginning of its name; foreign text cannot act on the terminal (T37).
#[tokio::test]
async fn t37_show_prints_entries_escaped() {
    let (home, session) = user().await;
    let (code, table, _) = run(home.path(), &format!("ledger show {}", &session[..10]));
    assert_eq!(code, 0);
    let kinds: Vec<&str> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(2).unwrap())
        .collect();
    assert_eq!(kinds, ["opened", "held", "settled", "refused"]);
    assert!(!table.contains('\u{1b}'), "{table:?}");
    let (_, text, _) = run(home.path(), &format!("ledger show {session} --json"));
    let entries: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(entries[2]["entry"], "settled");
    assert_eq!(entries[2]["charged"], 77);
    let (code, _, text) = run(home.path(), "ledger show ses_zzz");
    assert_eq!(code, 2);
    assert!(text.contains("no session 'ses_zzz'"), "{text}");
}

/// Every entry is exported: as JSON that says what the ledger holds, and as cells.
#[tokio::test]
async fn export_prints_every_entry() {
    let (home, session) = user().await;
    let (code, lines, _) = run(home.path(), "ledger export");
    assert_eq!(code, 0);
    let entries: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let reader = Reader::open(&home.path().join("state/labproxy/ledger.sqlite3")).unwrap();
    let recorded = reader.session(&session.parse().unwrap()).unwrap();
    assert_eq!(entries.len(), recorded.len());
    for (object, recorded) in entries.into_iter().zip(recorded) {
        assert_eq!(object["seq"], recorded.head.seq);
        assert_eq!(object["hash"], recorded.head.hash.to_string());
        assert_eq!(object["session"], session);
        let entry: Entry = serde_json::from_value(object).unwrap();
        assert_eq!(entry, recorded.entry);
    }
    let (_, csv, _) = run(home.path(), "ledger export --format csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 5);
    assert!(lines[3].contains(",settled,"), "{}", lines[3]);
    assert!(lines[3].contains(",,77,,"), "{}", lines[3]);
    assert!(lines[4].contains(r#","'=a "#), "{}", lines[4]);
    assert!(!csv.contains('\u{1b}'));
}

/// `verify` exits with 0 for a sound ledger and a true receipt, and with 1 otherwise.
#[tokio::test]
async fn t26_verify_tells_by_its_status() {
    let (home, session) = user().await;
    let (code, text, _) = run(home.path(), "ledger verify");
    assert_eq!(
        (code, text.as_str()),
        (
            0,
            "sound: 4 entries of 1 session, $0.000000000077 charged, $0.00 held\n"
        )
    );
    let path = home.path().join("state/labproxy/ledger.sqlite3");
    let session = session.parse().unwrap();
    let entries = Reader::open(&path).unwrap().session(&session).unwrap();
    let mut receipt = Receipt::fold(&session, &entries).unwrap();
    let file = home.path().join("receipt.json");
    std::fs::write(&file, serde_json::to_string(&receipt).unwrap()).unwrap();
    let (code, text, _) = run(home.path(), "ledger verify --receipt receipt.json");
    assert_eq!(code, 0, "{text}");
    receipt.cap_pico_usd = pico(5);
    std::fs::write(&file, serde_json::to_string(&receipt).unwrap()).unwrap();
    let (code, text, _) = run(home.path(), "ledger verify --receipt receipt.json");
    assert_eq!(code, 1);
    assert!(
        text.starts_with("receipt: the receipt says cap_pico_usd is 5, and the ledger says"),
        "{text}"
    );
    std::fs::remove_file(home.path().join("state/labproxy/ledger.anchor")).unwrap();
    let (code, text, _) = run(home.path(), "ledger verify --json");
    assert_eq!(code, 1);
    let verified: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(verified["sound"], false);
    assert!(
        verified["problems"][0]
            .as_str()
            .unwrap()
            .contains("is missing")
    );
    let (code, _, _) = run(home.path(), "ledger verify --accept-head");
    assert_eq!(code, 0);
    let (code, _, _) = run(home.path(), "ledger verify");
    assert_eq!(code, 0);
}

/// Without a ledger there is a clear text and no new file.
#[test]
fn a_missing_ledger_is_said() {
    let home = tempfile::tempdir().unwrap();
    for line in ["ledger list", "ledger verify", "ledger export"] {
        let (code, out, err) = run(home.path(), line);
        assert_eq!((code, out.as_str()), (1, ""), "{line}");
        assert!(err.contains("there is no ledger at"), "{err}");
    }
    assert!(!home.path().join("state").exists());
}
