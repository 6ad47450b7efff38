//! The two guards of a hold: before and after the first byte leaves.

use std::sync::Arc;

use super::account::Account;
use crate::id::RequestId;
use crate::ledger::{ChargedLine, Entry, RequestEnd};
use crate::money::PicoUsd;
use crate::usage::{CloseReason, Settlement, Verdict};

/// `stop_reason` of an answer that reached its `max_tokens`.
const STOPPED_AT_MAX_TOKENS: &str = "max_tokens";

#[derive(Debug)]
struct Hold {
    account: Arc<Account>,
    request: RequestId,
    amount: PicoUsd,
    /// `max_tokens` as sent, when that is less than was asked.
    clamped_to: Option<u64>,
}

/// A hold of a request that has not been sent. Dropping it gives the hold back: nothing left this
/// machine.
#[derive(Debug)]
pub struct Reserved {
    hold: Option<Hold>,
}

impl Reserved {
    pub(super) fn new(
        account: Arc<Account>,
        request: RequestId,
        amount: PicoUsd,
        clamped_to: Option<u64>,
    ) -> Self {
        Self {
            hold: Some(Hold {
                account,
                request,
                amount,
                clamped_to,
            }),
        }
    }

    /// The first byte is about to leave: from here on only an answer lowers the charge.
    pub fn sent(mut self) -> InFlight {
        InFlight {
            hold: self.hold.take(),
        }
    }

    /// Gives the hold back and records why, and what the client got instead of an answer.
    pub fn release(mut self, reason: &str, end: Option<RequestEnd>) {
        if let Some(hold) = self.hold.take() {
            hold.give_back(reason, end);
        }
    }

    /// The ledger did not take the hold: only the room in memory is given back.
    pub(super) fn never_held(mut self) {
        if let Some(hold) = self.hold.take() {
            hold.account
                .resolve(hold.amount, PicoUsd::ZERO, Vec::new(), |_| {});
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.give_back("the request was given up before it was sent", None);
        }
    }
}

impl Hold {
    fn give_back(self, reason: &str, end: Option<RequestEnd>) {
        let entry = Entry::Released {
            request: self.request,
            reason: reason.to_owned(),
            end,
        };
        self.account
            .resolve(self.amount, PicoUsd::ZERO, vec![entry], |_| {});
    }
}

/// A hold of a request that was sent. Dropping it keeps the whole hold as spent: nobody knows what
/// the provider did.
#[derive(Debug)]
pub struct InFlight {
    hold: Option<Hold>,
}

impl InFlight {
    /// Settles by a verdict; the entry is queued for the ledger and need not be waited for.
    pub fn settle(mut self, verdict: Verdict, end: RequestEnd) {
        if let Some(hold) = self.hold.take() {
            hold.settle(verdict, end);
        }
    }

    /// Gives the hold back after all: it is proven that not a byte of the request left.
    pub fn never_sent(mut self, reason: &str, end: RequestEnd) {
        if let Some(hold) = self.hold.take() {
            hold.give_back(reason, Some(end));
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            let entry = Entry::Kept {
                request: hold.request,
                charged: hold.amount,
                reason: "the request was sent and its answer was given up".to_owned(),
                end: None,
            };
            hold.account
                .resolve(hold.amount, hold.amount, vec![entry], |_| {});
        }
    }
}

impl Hold {
    fn settle(self, verdict: Verdict, end: RequestEnd) {
        let Self {
            account,
            request,
            amount,
            clamped_to,
        } = self;
        let at_max_tokens = end.stop_reason.as_deref() == Some(STOPPED_AT_MAX_TOKENS);
        let is_answer = matches!(verdict.settlement, Settlement::Charge(_));
        let mut close = verdict.close;
        let (charged, entry) = entry_of(&request, amount, verdict.settlement, end, verdict.note);
        let mut entries = vec![entry];
        if let Some(by) = charged.checked_sub(amount)
            && by != PicoUsd::ZERO
            && account.is_hard()
        {
            close.get_or_insert_with(|| {
                CloseReason::Overrun(format!(
                    "{request} cost {charged}, {amount} was held for it"
                ))
            });
            entries.push(Entry::Overrun { request, by });
        }
        account.resolve(amount, charged, entries, |purse| {
            if is_answer {
                purse.answered(clamped_to, at_max_tokens);
            }
        });
        if let Some(reason) = close {
            account.close(reason);
        }
    }
}

fn entry_of(
    request: &RequestId,
    held: PicoUsd,
    settlement: Settlement,
    end: RequestEnd,
    note: Option<String>,
) -> (PicoUsd, Entry) {
    let request = request.clone();
    match settlement {
        Settlement::Charge(bill) => {
            let lines = bill.lines.into_iter().map(ChargedLine::from).collect();
            let charged = bill.total;
            let free = false;
            (
                charged,
                Entry::Settled {
                    request,
                    charged,
                    free,
                    lines,
                    end,
                    note,
                },
            )
        }
        Settlement::Free => (
            PicoUsd::ZERO,
            Entry::Settled {
                request,
                charged: PicoUsd::ZERO,
                free: true,
                lines: Vec::new(),
                end,
                note,
            },
        ),
        Settlement::Keep(reason) => (
            held,
            Entry::Kept {
                request,
                charged: held,
                reason: match note {
                    Some(note) if note != reason => format!("{reason} ({note})"),
                    _ => reason,
                },
                end: Some(end),
            },
        ),
    }
}
