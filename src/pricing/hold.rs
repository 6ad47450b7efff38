//! What a request may cost per token before it is sent: the dearest rate that could apply.

use super::book::{Band, PriceRow, Rates};
use crate::money::{PicoUsd, Rate};

/// Which cache writes a request may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteBound {
    /// None: it is proven that nothing is written to the cache.
    None,
    /// Five-minute writes at most.
    FiveMinutes,
    /// One-hour writes are possible.
    OneHour,
}

/// The dearest of every rate that could apply to a request sent now: over all rows that hold
/// within 24 hours either way, ×1.1 for US-only inference: a workspace may default to it without a
/// word in the request, and a response that says so is charged so, whatever the model's row says.
///
/// Fast mode is no part of it: requests that ask for it are refused.
#[derive(Clone, Debug)]
pub struct HoldRates {
    rows: Vec<HeldRow>,
}

/// What a hold needs of a [`PriceRow`]; made for every request, so without its texts.
#[derive(Clone, Copy, Debug)]
struct HeldRow {
    base: Rates,
    band: Option<Band>,
    web_search: PicoUsd,
    context_window: u64,
    max_output: u64,
}

impl From<&PriceRow> for HeldRow {
    fn from(row: &PriceRow) -> Self {
        Self {
            base: row.base,
            band: row.band,
            web_search: row.web_search,
            context_window: row.context_window,
            max_output: row.max_output,
        }
    }
}

impl HoldRates {
    /// Rates over `rows`, all of one model; `None` when there is none.
    pub(super) fn over<'a>(rows: impl Iterator<Item = &'a PriceRow>) -> Option<Self> {
        let rows: Vec<HeldRow> = rows.map(HeldRow::from).collect();
        (!rows.is_empty()).then_some(Self { rows })
    }

    /// Dearest price of one prompt token for a prompt of at most `prompt_bound` tokens.
    pub fn input(&self, prompt_bound: u64, writes: WriteBound) -> Rate {
        self.dearest(prompt_bound, |rates| {
            let uncached = rates.input.max(rates.read);
            match writes {
                WriteBound::None => uncached,
                WriteBound::FiveMinutes => uncached.max(rates.write_5m),
                WriteBound::OneHour => uncached.max(rates.write_5m).max(rates.write_1h),
            }
        })
    }

    /// Dearest price of one output token for a prompt of at most `prompt_bound` tokens.
    pub fn output(&self, prompt_bound: u64) -> Rate {
        self.dearest(prompt_bound, |rates| rates.output)
    }

    /// Dearest fee of one web search.
    pub fn web_search(&self) -> PicoUsd {
        let fees = self.rows.iter().map(|row| row.web_search);
        fees.max().unwrap_or(PicoUsd::MAX)
    }

    /// Largest context window, in tokens.
    pub fn context_window(&self) -> u64 {
        let windows = self.rows.iter().map(|row| row.context_window);
        windows.max().unwrap_or(u64::MAX)
    }

    /// Largest `max_tokens` the model takes.
    pub fn max_output(&self) -> u64 {
        let limits = self.rows.iter().map(|row| row.max_output);
        limits.max().unwrap_or(u64::MAX)
    }

    /// The dearest of `pick` over every row, and over its band when a prompt of `prompt_bound`
    /// tokens could reach it. Without rows, which `hold_rates` rules out, nothing is affordable.
    fn dearest(&self, prompt_bound: u64, pick: impl Fn(&Rates) -> Rate) -> Rate {
        let of_row = |row: &HeldRow| {
            let base = pick(&row.base);
            let dearest = match &row.band {
                Some(band) if prompt_bound > band.above_prompt_tokens => {
                    base.max(pick(&band.rates))
                }
                _ => base,
            };
            us_only(dearest)
        };
        let unaffordable = Rate::from_pico_per_token(u64::MAX);
        self.rows.iter().map(of_row).max().unwrap_or(unaffordable)
    }
}

/// A rate for US-only inference: 11/10, rounded up. The price file takes only rates for which that
/// is exact.
pub(crate) fn us_only(rate: Rate) -> Rate {
    let eleven = u128::from(rate.pico_per_token()).saturating_mul(11);
    Rate::from_pico_per_token(u64::try_from(eleven.div_ceil(10)).unwrap_or(u64::MAX))
}
