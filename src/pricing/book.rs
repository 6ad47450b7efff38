//! The price book: `pricing.toml` as typed, dated rows.

use std::path::Path;

use jiff::Timestamp;
use jiff::civil::Date;

use crate::money::{PicoUsd, Rate};

/// Prices per token of one model in one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Uncached input.
    pub input: Rate,
    /// Output, thinking included.
    pub output: Rate,
    /// Cache write that lives five minutes.
    pub write_5m: Rate,
    /// Cache write that lives one hour.
    pub write_1h: Rate,
    /// Cache read.
    pub read: Rate,
}

/// A dearer band for long prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// The band holds when the prompt has strictly more tokens than this.
    pub above_prompt_tokens: u64,
    /// Its rates, for every token of the request, output included.
    pub rates: Rates,
}

/// One model's prices over one range of dates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceRow {
    /// The exact id, as sent or served.
    pub model: String,
    /// First day (UTC) on which the row holds.
    pub from: Date,
    /// First day on which it no longer holds.
    pub until: Option<Date>,
    /// Standard rates.
    pub base: Rates,
    /// Rates of long prompts, where they differ.
    pub band: Option<Band>,
    /// Rates of fast mode, where the model has it.
    pub fast: Option<Rates>,
    /// Whether US-only inference (×1.1 on tokens) exists for the model.
    pub us_geo: bool,
    /// Fee of one web search.
    pub web_search: PicoUsd,
    /// Largest prompt plus output, in tokens.
    pub context_window: u64,
    /// Largest `max_tokens`.
    pub max_output: u64,
    /// Day on which the provider stopped serving it.
    pub retired: Option<Date>,
    /// Where the prices were read.
    pub source: String,
    /// When they were read.
    pub checked_on: Date,
}

/// BLAKE3 digest of the price file's text, as 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PricingDigest(pub String);

/// All rows of a price file, loaded whole or not at all.
#[derive(Debug)]
pub struct PriceBook {
    rows: Vec<PriceRow>,
    digest: PricingDigest,
}

/// Why a request cannot be priced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpriced {
    /// The book has no row of that id.
    #[error("model '{0}' has no price")]
    UnknownModel(String),
    /// The book has rows of that id, but none for the day.
    #[error("model '{0}' has no price on {1}")]
    NoRowOn(String, Date),
}

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
/// within 24 hours either way, ×1.1 where US-only inference exists.
#[derive(Clone, Debug)]
pub struct HoldRates {
    rows: Vec<PriceRow>,
}

impl HoldRates {
    /// Dearest price of one prompt token for a prompt of at most `prompt_bound` tokens.
    pub fn input(&self, prompt_bound: u64, writes: WriteBound) -> Rate {
        let _ = (&self.rows, prompt_bound, writes);
        todo!()
    }

    /// Dearest price of one output token for a prompt of at most `prompt_bound` tokens.
    pub fn output(&self, prompt_bound: u64) -> Rate {
        let _ = prompt_bound;
        todo!()
    }

    /// Dearest fee of one web search.
    pub fn web_search(&self) -> PicoUsd {
        todo!()
    }

    /// Largest context window, in tokens.
    pub fn context_window(&self) -> u64 {
        todo!()
    }

    /// Largest `max_tokens` the model takes.
    pub fn max_output(&self) -> u64 {
        todo!()
    }
}

/// One thing that is wrong in a price file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct PricingProblem {
    /// The file as the user named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong and how to mend it.
    pub what: String,
}

impl PriceBook {
    /// The rows that are compiled in.
    ///
    /// # Errors
    /// All that is wrong in the compiled-in file; a test keeps that empty.
    pub fn builtin() -> Result<Self, Vec<PricingProblem>> {
        todo!()
    }

    /// The compiled-in rows with those of `file` in place of the ones of the same id.
    ///
    /// # Errors
    /// All that is wrong in the file, each with its line.
    pub fn with_file(file: &Path) -> Result<Self, Vec<PricingProblem>> {
        let _ = file;
        todo!()
    }

    /// The row that prices `model` (exact id) at `at`.
    ///
    /// # Errors
    /// When there is none.
    pub fn row_at(&self, model: &str, at: Timestamp) -> Result<&PriceRow, Unpriced> {
        let _ = (model, at);
        todo!()
    }

    /// The rates to hold a request of `model` at when it is sent at `at`.
    ///
    /// # Errors
    /// When there is no row.
    pub fn hold_rates(&self, model: &str, at: Timestamp) -> Result<HoldRates, Unpriced> {
        let _ = (model, at);
        todo!()
    }

    /// Every row, in the file's order.
    pub fn rows(&self) -> &[PriceRow] {
        &self.rows
    }

    /// Digest of the text the rows came from.
    pub fn digest(&self) -> &PricingDigest {
        &self.digest
    }
}
