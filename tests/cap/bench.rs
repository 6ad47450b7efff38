//! An account with a ledger in a temporary directory.

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use labproxy::cap::{Account, AccountSettings, Ask, Denied, Grant, HoldTerms, OnCap};
use labproxy::clock::ManualClock;
use labproxy::id::{RequestId, SessionId};
use labproxy::ledger::{
    Entry, Ledger, LedgerOptions, Reader, Recorded, RequestEnd, RequestFacts, Verified,
};
use labproxy::money::{PicoUsd, Rate};
use labproxy::pricing::Bill;
use labproxy::usage::{CloseReason, Settlement, Verdict};

/// One US cent.
pub(crate) const CENT: u64 = 10_000_000_000;

pub(crate) fn cents(count: u64) -> PicoUsd {
    PicoUsd::from_pico(count * CENT)
}

/// An account, and everything it stands on.
pub(crate) struct Bench {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) ledger: Ledger,
    pub(crate) session: SessionId,
    pub(crate) account: Arc<Account>,
}

impl Bench {
    pub(crate) async fn new(on_cap: OnCap, cap: PicoUsd) -> Self {
        Self::with_ceiling(on_cap, cap, None).await
    }

    pub(crate) async fn with_ceiling(
        on_cap: OnCap,
        cap: PicoUsd,
        ceiling: Option<PicoUsd>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap()));
        let ledger = Ledger::open(LedgerOptions {
            path: directory.path().join("ledger.sqlite"),
            anchor: directory.path().join("high-water"),
            daily_ceiling: ceiling,
            clock: clock.clone(),
        })
        .unwrap();
        let session = SessionId::random().unwrap();
        ledger
            .append(&session, vec![opened(on_cap, cap)])
            .await
            .unwrap();
        let account = Account::new(
            session.clone(),
            ledger.clone(),
            cap,
            PicoUsd::ZERO,
            AccountSettings {
                on_cap,
                wait: Duration::from_mins(2),
            },
            clock.clone(),
        );
        Self {
            directory,
            clock,
            ledger,
            session,
            account,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("ledger.sqlite")
    }

    /// Everything the ledger has of the session, once all that was queued is in it.
    pub(crate) async fn entries(&self) -> Vec<Recorded> {
        self.ledger.flush().await.unwrap();
        Reader::open(&self.path())
            .unwrap()
            .session(&self.session)
            .unwrap()
    }

    pub(crate) fn verify(&self) -> Verified {
        let anchor = self.directory.path().join("high-water");
        labproxy::ledger::verify(&self.path(), &anchor).unwrap()
    }

    /// Destroys the entries' table behind the writer's back.
    pub(crate) fn break_the_ledger(&self) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.execute_batch("DROP TABLE entry").unwrap();
    }

    /// Reserves without counting, for a client that stays.
    pub(crate) async fn reserve(&self, ask: Ask) -> Result<Grant, Denied> {
        reserve(&self.account, ask).await
    }
}

pub(crate) async fn reserve(account: &Arc<Account>, ask: Ask) -> Result<Grant, Denied> {
    account.reserve(ask, || async { None }, pending()).await
}

pub(crate) fn opened(on_cap: OnCap, cap: PicoUsd) -> Entry {
    Entry::Opened {
        cap,
        on_cap,
        pricing_digest: "digest".into(),
        argv0: Some("claude".into()),
        host: None,
        version: "0.1.0".into(),
        resumed: false,
    }
}

/// A request that costs at most `fixed` and `per_token` for each of `max_tokens`.
pub(crate) fn ask(fixed: PicoUsd, per_token: u64, max_tokens: u64) -> Ask {
    Ask {
        request: RequestId::random().unwrap(),
        facts: RequestFacts {
            at: "2026-11-30T12:00:00Z".parse().unwrap(),
            stream: Some(true),
            model: Some("claude-opus-5".into()),
            max_tokens_asked: Some(max_tokens),
        },
        terms: HoldTerms {
            fixed,
            per_output_token: Rate::from_pico_per_token(per_token),
        },
        max_tokens,
        thinking_budget: None,
    }
}

/// A request that costs `cents` whatever it answers.
pub(crate) fn flat(count: u64) -> Ask {
    ask(cents(count), 0, 100)
}

pub(crate) fn charge(total: PicoUsd) -> Verdict {
    Verdict {
        settlement: Settlement::Charge(Bill {
            lines: Vec::new(),
            total,
            flags: Vec::new(),
        }),
        close: None,
        note: None,
    }
}

pub(crate) fn verdict(settlement: Settlement, close: Option<CloseReason>) -> Verdict {
    Verdict {
        settlement,
        close,
        note: None,
    }
}

pub(crate) fn end(stop_reason: &str) -> RequestEnd {
    RequestEnd {
        status: Some(200),
        stop_reason: Some(stop_reason.into()),
        duration_ms: 5,
        ..RequestEnd::default()
    }
}
