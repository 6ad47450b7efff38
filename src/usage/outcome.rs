//! What a request is charged for the way it ended.

use std::borrow::Cow;

use jiff::Timestamp;

use super::{Observed, Usage};
use crate::money::PicoUsd;
use crate::pricing::{Bill, ChargeTerms, Flag, PriceBook, bill};

/// What was admitted: the terms the response is judged by.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The model that was asked for.
    pub requested_model: String,
    /// `max_tokens` as sent upstream.
    pub max_tokens: u64,
    /// `thinking.budget_tokens`, where one was given; with adaptive thinking `max_tokens`.
    pub thinking_budget: Option<u64>,
    /// What is held.
    pub hold: PicoUsd,
    /// A one-hour marker or a cache beta was sent.
    pub one_hour_asked: bool,
    /// Counters an operator declared harmless.
    pub known_usage: Vec<String>,
    /// Most prompt tokens that the hold covers, where it does not cover the window.
    pub prompt_bound: Option<u64>,
    /// The provider may sample more than once for it (server tools, compaction), so what an answer
    /// shows of itself does not bound what it costs.
    pub resampled: bool,
    /// `on_cap = "soft"`: the hold is an expected cost, so a charge above it is no failure.
    pub soft: bool,
}

/// How the response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// The body is whole, by length or by its own framing.
    Complete,
    /// The connection closed in order and nothing had told where the body ends: whole only if the
    /// document says so itself.
    Closed,
    /// The connection broke, or the framing was not finished.
    Cut,
    /// Nothing came for too long, or the drain after a client's departure ran out of time.
    TimedOut,
    /// No response head came at all.
    NoResponse,
}

/// Why a session takes no more requests.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", tag = "why", content = "what")]
pub enum CloseReason {
    /// A charge was above its hold, or a prompt above its bound.
    Overrun(String),
    /// The response was served by a model without a price.
    UnpricedServedModel(String),
    /// The response counted something unknown; the text names the setting.
    UnknownCounter(String),
    /// The response was served fast.
    ServedFast,
    /// The ledger cannot be written.
    LedgerFailed(String),
    /// The session is ending.
    Ending,
}

/// What is noted for a 401 of the provider: the client never has the credential that was refused.
pub const CREDENTIAL_REFUSED: &str = "the provider refused the real credential";

/// What becomes of the hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// This much is charged, by this bill.
    Charge(Bill),
    /// Nothing is charged: the provider refused with a complete error.
    Free,
    /// The whole hold is charged, for this reason.
    Keep(String),
}

/// The judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of the hold.
    pub settlement: Settlement,
    /// Whether the session closes.
    pub close: Option<CloseReason>,
    /// What a person should be told, where anything was odd.
    pub note: Option<String>,
}

/// Judges one response, by `design.md` 6 and `facts/anthropic.md` 3.2.
///
/// `status` is the response's, `None` when none came; `at` is when it was served.
pub fn decide(
    book: &PriceBook,
    admission: &Admission,
    status: Option<u16>,
    end: BodyEnd,
    observed: &Observed,
    at: Timestamp,
) -> Verdict {
    let keep = |why: String| Verdict {
        settlement: Settlement::Keep(why.clone()),
        close: None,
        note: Some(why),
    };
    let Some(status) = status.filter(|_| end != BodyEnd::NoResponse) else {
        return keep("no response came".to_owned());
    };
    if status >= 400 {
        let whole = matches!(end, BodyEnd::Complete | BodyEnd::Closed);
        let complete = whole && observed.provider_error;
        if complete && observed.usage.is_none() {
            return Verdict {
                settlement: Settlement::Free,
                close: None,
                note: (status == 401).then(|| CREDENTIAL_REFUSED.to_owned()),
            };
        }
        return keep(format!(
            "status {status} without a complete error of the provider"
        ));
    }
    if !(200..300).contains(&status) {
        return keep(format!("status {status} is no answer"));
    }
    match reported(admission, end, observed) {
        Ok((usage, estimated)) => {
            let terms = ChargeTerms {
                requested_model: &admission.requested_model,
                served_model: observed.served_model.as_deref(),
                at,
                one_hour_asked: admission.one_hour_asked,
                refused: observed.stop_reason.as_deref() == Some("refusal"),
                known_usage: &admission.known_usage,
            };
            settle(admission, &usage, bill(book, &usage, &terms), estimated)
        }
        Err(why) => keep(why),
    }
}

/// The usage that a response is charged by, and why it is an estimate where it is one.
///
/// # Errors
/// Why it cannot be known, so that the hold is kept.
fn reported<'a>(
    admission: &Admission,
    end: BodyEnd,
    observed: &'a Observed,
) -> Result<(Cow<'a, Usage>, Option<String>), String> {
    let usage = match &observed.usage {
        Some(usage) if usage.has_prompt() => usage,
        Some(_) | None if observed.error_type.is_some() => {
            return Err("an error came before any usage".to_owned());
        }
        Some(_) | None => return Err("the response has no usage".to_owned()),
    };
    let read_from_its_start = observed.started || !observed.damaged;
    if observed.finished && observed.output_is_final && read_from_its_start {
        return Ok((Cow::Borrowed(usage), None));
    }
    if !observed.is_stream || !observed.started {
        return Err("the response is not whole".to_owned());
    }
    let why = match (&observed.error_type, observed.finished, end) {
        (Some(kind), _, _) => format!("the stream ended with an error ({kind})"),
        (None, true, _) => "the stream never said how much output there was".to_owned(),
        (None, false, BodyEnd::Complete) => "the stream ended without its last event".to_owned(),
        (None, false, BodyEnd::Closed) => {
            return Err("the connection closed before the end of the stream".to_owned());
        }
        (None, false, BodyEnd::TimedOut) => return Err("the stream fell silent".to_owned()),
        (None, false, BodyEnd::Cut | BodyEnd::NoResponse) => {
            return Err("the connection broke before the end of the stream".to_owned());
        }
    };
    // An estimate rests on one sampling.
    if admission.resampled {
        return Err(format!(
            "{why}, and the model may have been sampled more than once"
        ));
    }
    let mut usage = usage.clone();
    usage.top.output = interrupted_output(admission, observed, usage.top.output);
    Ok((Cow::Owned(usage), Some(why)))
}

/// Output of a stream that did not say how much there was: what was received (at most one token for
/// each byte) and what thinking may have gone unseen, up to `max_tokens`; never less than reported.
/// Where a part of the copy could not be read, all of `max_tokens`.
fn interrupted_output(admission: &Admission, observed: &Observed, reported: u64) -> u64 {
    if observed.damaged {
        // What could not be read was not counted either.
        return reported.max(admission.max_tokens);
    }
    let allowance = match admission.thinking_budget {
        Some(budget) => budget,
        // Thinking that nobody asked for has no bound of its own.
        None if observed.hidden_thinking => admission.max_tokens,
        None => 0,
    };
    let unused = allowance.saturating_sub(observed.thinking_bytes);
    let received = observed.content_bytes.saturating_add(unused);
    reported.max(received.min(admission.max_tokens))
}

/// Weighs a bill against its hold and against what should never happen.
fn settle(admission: &Admission, usage: &Usage, bill: Bill, estimated: Option<String>) -> Verdict {
    let mut notes: Vec<String> = estimated.into_iter().collect();
    let mut close: Option<CloseReason> = None;
    let mut at_least_hold = false;
    for flag in &bill.flags {
        let (note, reason) = judged(flag);
        notes.push(note);
        let Some((reason, unknown)) = reason else {
            continue;
        };
        at_least_hold |= unknown;
        close = Some(match close.take() {
            Some(earlier) if rank(&earlier) >= rank(&reason) => earlier,
            _ => reason,
        });
    }
    let above = (bill.total > admission.hold).then(|| {
        format!(
            "the charge {} is above the hold {}",
            bill.total, admission.hold
        )
    });
    let prompt = usage.top.prompt();
    let long = admission
        .prompt_bound
        .filter(|bound| prompt > *bound)
        .map(|bound| format!("the prompt of {prompt} tokens is above its bound of {bound}"));
    for what in above.into_iter().chain(long) {
        if close.is_none() && !admission.soft {
            close = Some(CloseReason::Overrun(what.clone()));
        }
        notes.push(what);
    }
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    let overflow = bill.flags.contains(&Flag::Overflow);
    let keep = overflow || (at_least_hold && bill.total <= admission.hold);
    let settlement = if keep {
        Settlement::Keep(note.clone().unwrap_or_default())
    } else {
        Settlement::Charge(bill)
    };
    Verdict {
        settlement,
        close,
        note,
    }
}

/// What a flag means: a note, and where it closes the session, why, and whether the bill leaves
/// something out so that the hold is the least that is charged.
fn judged(flag: &Flag) -> (String, Option<(CloseReason, bool)>) {
    match flag {
        Flag::UnpricedServedModel(model) => (
            format!("served by '{model}', which has no price"),
            Some((CloseReason::UnpricedServedModel(model.clone()), true)),
        ),
        Flag::UnknownCounter(path) => {
            let text = format!(
                "the response counts '{path}', which has no known price; \
                 gate.known_usage = [\"{path}\"] declares it harmless"
            );
            (
                text.clone(),
                Some((CloseReason::UnknownCounter(text), true)),
            )
        }
        Flag::UnreadableCounter(path) => {
            let text = format!("'{path}' in the usage is not a count");
            (
                text.clone(),
                Some((CloseReason::UnknownCounter(text), true)),
            )
        }
        Flag::ServedFast => (
            "served in fast mode, which was refused".to_owned(),
            Some((CloseReason::ServedFast, false)),
        ),
        Flag::Overflow => {
            let text = "the usage adds up to more than can be counted".to_owned();
            (text.clone(), Some((CloseReason::Overrun(text), true)))
        }
        Flag::UsageFell => ("a counter fell; the largest value counts".to_owned(), None),
        Flag::UnknownIteration(kind) => (
            format!("an iteration of unknown type '{kind}' is charged at the dearest rate"),
            None,
        ),
        Flag::UnknownGeography(geo) => (
            format!("geography '{geo}' is charged as US-only inference"),
            None,
        ),
    }
}

/// Which of two reasons to close is named: the one that says more.
fn rank(reason: &CloseReason) -> u8 {
    match reason {
        CloseReason::UnpricedServedModel(_) => 4,
        CloseReason::UnknownCounter(_) => 3,
        CloseReason::ServedFast => 2,
        CloseReason::Overrun(_) => 1,
        CloseReason::LedgerFailed(_) | CloseReason::Ending => 0,
    }
}
