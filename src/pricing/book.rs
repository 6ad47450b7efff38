//! The price book: `pricing.toml` as typed, dated rows.

use std::path::Path;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::file;
pub use super::file::PricingProblem;
use super::hold::HoldRates;
use super::render;
use crate::money::{PicoUsd, Rate};

/// The compiled-in price file.
const BUILTIN: &str = include_str!("../../pricing.toml");
/// Its name in messages.
const BUILTIN_NAME: &str = "built-in pricing.toml";

/// How far a clock may be off when a row is chosen: holds take the dearest row of this span either
/// way, so a price that changes at midnight is covered on both sides of it.
pub const PRICE_SKEW: SignedDuration = SignedDuration::from_hours(24);

/// Days after which a checked price is no longer believed without a flag: the provider changed
/// some price about every second month of 2026, so after half a year a row is probably wrong.
pub const STALE_AFTER_DAYS: i32 = 180;

/// Days by which the clock may lie before the day on which the prices were checked. A clock cannot
/// honestly stand there at all; a month leaves room for tests and slow machines, not for a
/// battery-less clock.
pub const CLOCK_BEHIND_DAYS: i32 = 30;

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

impl Rates {
    /// The same with `change` applied to every rate.
    pub(crate) fn map(self, change: impl Fn(Rate) -> Rate) -> Self {
        Self {
            input: change(self.input),
            output: change(self.output),
            write_5m: change(self.write_5m),
            write_1h: change(self.write_1h),
            read: change(self.read),
        }
    }

    /// The dearer of both, category by category.
    pub(crate) fn dearer(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            write_5m: self.write_5m.max(other.write_5m),
            write_1h: self.write_1h.max(other.write_1h),
            read: self.read.max(other.read),
        }
    }
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

impl PriceRow {
    /// Whether the row holds on `day`.
    pub fn holds_on(&self, day: Date) -> bool {
        self.from <= day && self.until.is_none_or(|until| day < until)
    }

    /// Whether the row holds on any day from `first` to `last`, both included.
    fn holds_within(&self, first: Date, last: Date) -> bool {
        self.from <= last && self.until.is_none_or(|until| first < until)
    }

    /// Whether the provider serves the model no longer on `day`.
    pub fn is_retired_on(&self, day: Date) -> bool {
        self.retired.is_some_and(|retired| retired <= day)
    }

    /// Standard rates for a prompt of `prompt_tokens`: the band's above its limit.
    pub fn rates_for(&self, prompt_tokens: u64) -> &Rates {
        match &self.band {
            Some(band) if prompt_tokens > band.above_prompt_tokens => &band.rates,
            _ => &self.base,
        }
    }
}

/// BLAKE3 digest of [`PriceBook::effective_toml`], as 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PricingDigest(pub String);

/// All rows of a price file, loaded whole or not at all.
#[derive(Debug)]
pub struct PriceBook {
    rows: Vec<PriceRow>,
    text: String,
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

/// Why prices should not be relied on today.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Staleness {
    /// Prices of these models were checked too long ago.
    #[error(
        "prices of {} were last checked on {oldest}, {age_days} days ago; {STALE_AFTER_DAYS} are allowed",
        models.join(", ")
    )]
    Stale {
        /// Models that are still served.
        models: Vec<String>,
        /// The oldest date among them.
        oldest: Date,
        /// How long ago that was.
        age_days: i32,
    },
    /// The clock stands before the day on which prices were checked, so it is wrong.
    #[error(
        "the clock says {today}, {behind_days} days before prices were checked on {checked_on}; set the clock"
    )]
    ClockBehind {
        /// The clock's day.
        today: Date,
        /// The latest check.
        checked_on: Date,
        /// By how much the clock is behind.
        behind_days: i32,
    },
}

impl PriceBook {
    /// The rows that are compiled in.
    ///
    /// # Errors
    /// All that is wrong in the compiled-in file; a test keeps that empty.
    pub fn builtin() -> Result<Self, Vec<PricingProblem>> {
        Self::from_text(BUILTIN_NAME, BUILTIN)
    }

    /// The compiled-in rows with those of `file` in place of the ones of the same id.
    ///
    /// # Errors
    /// All that is wrong in the file, each with its line.
    pub fn with_file(file: &Path) -> Result<Self, Vec<PricingProblem>> {
        let name = file.display().to_string();
        let text = std::fs::read(file).map_err(|error| {
            vec![PricingProblem {
                file: name.clone(),
                line: 1,
                what: format!("the price file cannot be read: {error}"),
            }]
        })?;
        let text = String::from_utf8(text).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let before = error.as_bytes().iter().take(valid);
            vec![PricingProblem {
                file: name.clone(),
                line: before
                    .filter(|byte| **byte == b'\n')
                    .count()
                    .saturating_add(1),
                what: "the price file is not UTF-8 text".to_owned(),
            }]
        })?;
        Self::builtin()?.overlaid_with(&name, &text)
    }

    /// The rows of `text` alone; `name` stands in messages.
    ///
    /// # Errors
    /// All that is wrong in the text, each with its line.
    pub fn from_text(name: &str, text: &str) -> Result<Self, Vec<PricingProblem>> {
        file::read_rows(name, text).map(Self::from_rows)
    }

    /// These rows with those of `text` in place of the ones of the same id.
    ///
    /// # Errors
    /// All that is wrong in the text, each with its line.
    pub fn overlaid_with(self, name: &str, text: &str) -> Result<Self, Vec<PricingProblem>> {
        let new = file::read_rows(name, text)?;
        let mut rows = self.rows;
        rows.retain(|row| !new.iter().any(|newer| newer.model == row.model));
        rows.extend(new);
        Ok(Self::from_rows(rows))
    }

    fn from_rows(rows: Vec<PriceRow>) -> Self {
        let text = render::write_rows(&rows);
        let digest = PricingDigest(blake3::hash(text.as_bytes()).to_hex().to_string());
        Self { rows, text, digest }
    }

    /// The row that prices `model` (exact id) at `at`.
    ///
    /// # Errors
    /// When there is none.
    pub fn row_at(&self, model: &str, at: Timestamp) -> Result<&PriceRow, Unpriced> {
        let day = utc_day(at);
        self.rows
            .iter()
            .find(|row| row.model == model && row.holds_on(day))
            .ok_or_else(|| self.unpriced(model, day))
    }

    /// The row that prices an answer of `model` served at `at`: the row of that day, or else the
    /// one that holds within [`PRICE_SKEW`] of it, as the request was admitted at that row.
    ///
    /// # Errors
    /// When there is none.
    pub fn billing_row(&self, model: &str, at: Timestamp) -> Result<&PriceRow, Unpriced> {
        self.row_at(model, at).or_else(|unpriced| {
            self.rows_near(model, at)
                .max_by_key(|row| row.base.output)
                .ok_or(unpriced)
        })
    }

    /// The rates to hold a request of `model` at when it is sent at `at`.
    ///
    /// # Errors
    /// When there is no row.
    pub fn hold_rates(&self, model: &str, at: Timestamp) -> Result<HoldRates, Unpriced> {
        HoldRates::over(self.rows_near(model, at)).ok_or_else(|| self.unpriced(model, utc_day(at)))
    }

    /// Rows of `model` that hold at some moment within [`PRICE_SKEW`] of `at`.
    fn rows_near<'a, 'm>(
        &'a self,
        model: &'m str,
        at: Timestamp,
    ) -> impl Iterator<Item = &'a PriceRow> + use<'a, 'm> {
        let first = utc_day(at.checked_sub(PRICE_SKEW).unwrap_or(at));
        let last = utc_day(at.checked_add(PRICE_SKEW).unwrap_or(at));
        self.rows
            .iter()
            .filter(move |row| row.model == model && row.holds_within(first, last))
    }

    fn unpriced(&self, model: &str, day: Date) -> Unpriced {
        if self.rows.iter().any(|row| row.model == model) {
            Unpriced::NoRowOn(model.to_owned(), day)
        } else {
            Unpriced::UnknownModel(model.to_owned())
        }
    }

    /// The dearest rate of every category among the rows of models that are served at `at`, bands
    /// included: for what is served by something that nobody knows.
    pub fn dearest_rates(&self, at: Timestamp) -> Option<Rates> {
        let day = utc_day(at);
        self.rows
            .iter()
            .filter(|row| row.holds_on(day) && !row.is_retired_on(day))
            .flat_map(|row| {
                let band = row.band.map(|band| band.rates);
                std::iter::once(row.base).chain(band)
            })
            .reduce(Rates::dearer)
    }

    /// Why the prices should not be relied on at `now`, where that is so. A session start refuses
    /// then, unless a flag says otherwise.
    ///
    /// Looks at the rows that hold now and whose models are still served.
    pub fn staleness(&self, now: Timestamp) -> Option<Staleness> {
        let today = utc_day(now);
        if let Some(checked_on) = self.rows.iter().map(|row| row.checked_on).max() {
            let behind_days = days_between(today, checked_on);
            if behind_days > CLOCK_BEHIND_DAYS {
                return Some(Staleness::ClockBehind {
                    today,
                    checked_on,
                    behind_days,
                });
            }
        }
        let stale = |row: &&PriceRow| {
            row.holds_on(today)
                && !row.is_retired_on(today)
                && days_between(row.checked_on, today) > STALE_AFTER_DAYS
        };
        let rows: Vec<&PriceRow> = self.rows.iter().filter(stale).collect();
        let oldest = rows.iter().map(|row| row.checked_on).min()?;
        Some(Staleness::Stale {
            models: rows.iter().map(|row| row.model.clone()).collect(),
            oldest,
            age_days: days_between(oldest, today),
        })
    }

    /// Every row, in the file's order.
    pub fn rows(&self) -> &[PriceRow] {
        &self.rows
    }

    /// Digest of the text the rows came from.
    pub fn digest(&self) -> &PricingDigest {
        &self.digest
    }

    /// The rows in force as a price file that loads again to the same rows; the digest is over
    /// exactly this text.
    pub fn effective_toml(&self) -> &str {
        &self.text
    }
}

/// The day of `at` in UTC, by which rows are dated.
pub(crate) fn utc_day(at: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(at).date()
}

/// Whole days from `earlier` to `later`; negative when it is the other way round.
fn days_between(earlier: Date, later: Date) -> i32 {
    earlier
        .until(later)
        .map_or(i32::MAX, |span| span.get_days())
}
