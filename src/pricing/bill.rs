//! The bill of one response: usage × prices, to the pico-dollar.

use jiff::Timestamp;
use serde::Serialize;

use super::book::PriceBook;
use crate::money::{PicoUsd, Rate};
use crate::usage::Usage;

/// What the bill must know beside the usage.
#[derive(Clone, Debug)]
pub struct ChargeTerms<'a> {
    /// The model that was asked for; prices entries that name none.
    pub requested_model: &'a str,
    /// The model that the response names.
    pub served_model: Option<&'a str>,
    /// When it was served, by the upstream's `Date` within a bounded skew.
    pub at: Timestamp,
    /// A one-hour marker or a cache beta was sent: unsplit writes are charged at the one-hour rate.
    pub one_hour_asked: bool,
    /// Counters an operator declared harmless (`gate.known_usage`).
    pub known_usage: &'a [String],
}

/// One line of a bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BillLine {
    /// Served model.
    pub model: String,
    /// What was counted: `input`, `output`, `cache_write_5m`, `cache_write_1h`, `cache_read`,
    /// `web_search`.
    pub item: &'static str,
    /// How many.
    pub count: u64,
    /// Pico-dollars for one, multipliers included.
    pub pico_per_unit: u64,
    /// Pico-dollars in all.
    pub pico_usd: PicoUsd,
}

/// Something about a response that closes the session or must be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Flag {
    /// The served model has no price: the whole hold is charged and the session closes.
    UnpricedServedModel(String),
    /// A positive counter that nobody knows: max(known, hold) is charged and the session closes.
    UnknownCounter(String),
    /// The response was served fast although fast mode is refused: charged ×2, session closes.
    ServedFast,
    /// The counters fell or repeated oddly; each settles at its largest value.
    UsageFell,
    /// An entry of `iterations` has an unknown type: charged at the dearest known rate.
    UnknownIteration(String),
    /// The sum does not fit.
    Overflow,
}

/// What a response costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bill {
    /// The lines that add up to the total.
    pub lines: Vec<BillLine>,
    /// The total.
    pub total: PicoUsd,
    /// What was odd.
    pub flags: Vec<Flag>,
}

/// Prices one usage record.
pub fn bill(book: &PriceBook, usage: &Usage, terms: &ChargeTerms<'_>) -> Bill {
    let _ = (book, usage, terms, Rate::from_pico_per_token(0));
    todo!()
}
