//! A ledger in a directory, and entries to put into it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use labproxy::cap::{Account, AccountSettings, Ask, HoldTerms, OnCap};
use labproxy::clock::ManualClock;
use labproxy::id::{RequestId, SessionId};
use labproxy::ledger::{
    Entry, Ledger, LedgerError, LedgerOptions, Reader, Recorded, RequestEnd, RequestFacts, Verified,
};
use labproxy::money::{PicoUsd, Rate};
use labproxy::pricing::Bill;
use labproxy::usage::{Settlement, Verdict};

/// The day on which these tests happen.
pub(crate) const NOON: &str = "2026-11-30T12:00:00Z";

pub(crate) fn pico(amount: u64) -> PicoUsd {
    PicoUsd::from_pico(amount)
}

/// Where a ledger of these tests and its high-water file are.
pub(crate) fn paths(directory: &Path) -> (PathBuf, PathBuf) {
    (
        directory.join("ledger.sqlite"),
        directory.join("high-water"),
    )
}

pub(crate) fn clock(now: &str) -> Arc<ManualClock> {
    Arc::new(ManualClock::at(now.parse().unwrap()))
}

pub(crate) fn open_at(
    directory: &Path,
    clock: Arc<ManualClock>,
    daily_ceiling: Option<PicoUsd>,
) -> Result<Ledger, LedgerError> {
    let (path, anchor) = paths(directory);
    Ledger::open(LedgerOptions {
        path,
        anchor,
        daily_ceiling,
        clock,
    })
}

pub(crate) fn open(directory: &Path) -> Result<Ledger, LedgerError> {
    open_at(directory, clock(NOON), None)
}

pub(crate) fn verify(directory: &Path) -> Verified {
    let (path, anchor) = paths(directory);
    labproxy::ledger::verify(&path, &anchor).unwrap()
}

/// What is wrong with the ledger, as text.
pub(crate) fn problems(directory: &Path) -> Vec<String> {
    let problems = verify(directory).problems;
    problems.iter().map(ToString::to_string).collect()
}

pub(crate) fn session() -> SessionId {
    SessionId::random().unwrap()
}

pub(crate) fn request() -> RequestId {
    RequestId::random().unwrap()
}

pub(crate) fn read(directory: &Path, session: &SessionId) -> Vec<Recorded> {
    Reader::open(&paths(directory).0)
        .unwrap()
        .session(session)
        .unwrap()
}

pub(crate) fn opened(cap: u64) -> Entry {
    Entry::Opened {
        cap: pico(cap),
        on_cap: OnCap::Refuse,
        pricing_digest: "0123".into(),
        argv0: Some("claude".into()),
        host: None,
        version: "0.1.0".into(),
        resumed: false,
    }
}

pub(crate) fn facts() -> RequestFacts {
    RequestFacts {
        at: NOON.parse().unwrap(),
        stream: Some(true),
        model: Some("claude-opus-5".into()),
        max_tokens_asked: Some(1_000),
    }
}

pub(crate) fn held(request: &RequestId, amount: u64) -> Entry {
    Entry::Held {
        request: request.clone(),
        facts: facts(),
        arrival: 0,
        max_tokens_sent: 1_000,
        amount: pico(amount),
    }
}

pub(crate) fn settled(request: &RequestId, charged: u64) -> Entry {
    Entry::Settled {
        request: request.clone(),
        charged: pico(charged),
        free: false,
        lines: Vec::new(),
        end: RequestEnd::default(),
        note: None,
    }
}

/// Opens a session and settles a request of `charged` in it.
pub(crate) async fn fill(ledger: &Ledger, charged: u64) -> SessionId {
    let (session, request) = (session(), request());
    ledger
        .append(&session, vec![opened(1_000_000), held(&request, charged)])
        .await
        .unwrap();
    ledger
        .append(&session, vec![settled(&request, charged)])
        .await
        .unwrap();
    session
}

/// An account over a new session of `ledger`.
pub(crate) async fn account(ledger: &Ledger, cap: PicoUsd) -> (SessionId, Arc<Account>) {
    let session = session();
    ledger
        .append(&session, vec![opened(cap.pico())])
        .await
        .unwrap();
    let settings = AccountSettings {
        on_cap: OnCap::Refuse,
        wait: Duration::from_secs(1),
    };
    let account = Account::new(
        session.clone(),
        ledger.clone(),
        cap,
        PicoUsd::ZERO,
        settings,
        clock(NOON),
    );
    (session, account)
}

/// A request whose hold is `amount`.
pub(crate) fn ask(amount: u64) -> Ask {
    Ask {
        request: request(),
        facts: facts(),
        terms: HoldTerms {
            fixed: pico(amount),
            per_output_token: Rate::from_pico_per_token(0),
        },
        max_tokens: 1_000,
        thinking_budget: None,
    }
}

pub(crate) fn charge(total: u64) -> Verdict {
    Verdict {
        settlement: Settlement::Charge(Bill {
            lines: Vec::new(),
            total: pico(total),
            flags: Vec::new(),
        }),
        close: None,
        note: None,
    }
}

/// Looks until `done`, for at most half a minute.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

/// A seeded source of numbers: the same seed gives the same run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64, by its published constants.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
