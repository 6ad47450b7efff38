//! Values of a price file, read one by one: each problem is noted with its line and reading goes on.

use std::ops::Range;

use jiff::civil::Date;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::PricingProblem;
use crate::money::{PICO_PER_USD, PicoUsd, Rate};

/// A cheaper price per million tokens is taken for a slip of the unit: the cheapest published one
/// is 0.01 dollars (1,000 pico-dollars per token are 0.001 dollars per million).
const CHEAPEST: Rate = Rate::from_pico_per_token(1_000);
/// A dearer price per million tokens is taken for a slip of the unit: the dearest ever published
/// is 150 dollars (this is 1,000).
const DEAREST: Rate = Rate::from_pico_per_token(1_000_000_000);
/// Bounds of a believable fee for one search, in pico-dollars: a hundredth of a cent to a dollar.
const SEARCH_FEES: Range<u64> = PICO_PER_USD / 10_000..PICO_PER_USD + 1;

/// Collects problems while a document is read.
pub(super) struct Check<'a> {
    name: &'a str,
    text: &'a str,
    problems: Vec<PricingProblem>,
}

impl<'a> Check<'a> {
    /// Nothing is wrong yet.
    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        Self {
            name,
            text,
            problems: Vec::new(),
        }
    }

    /// How many problems there are so far.
    pub(super) fn count_problems(&self) -> usize {
        self.problems.len()
    }

    /// All problems, by line.
    pub(super) fn into_problems(mut self) -> Vec<PricingProblem> {
        self.problems.sort_by_key(|problem| problem.line);
        self.problems
    }

    /// The line on which `at` begins, from 1.
    pub(super) fn line_of(&self, at: &Range<usize>) -> usize {
        let before = self.text.bytes().take(at.start);
        before
            .filter(|byte| *byte == b'\n')
            .count()
            .saturating_add(1)
    }

    /// Notes that something is wrong at `at`.
    pub(super) fn problem(&mut self, at: &Range<usize>, what: impl Into<String>) {
        let line = self.line_of(at);
        self.problems.push(PricingProblem {
            file: self.name.to_owned(),
            line,
            what: what.into(),
        });
    }

    /// Notes every key of `table` that is not among `known`.
    pub(super) fn only_keys(&mut self, table: &DeTable<'_>, known: &[&str], place: &str) {
        for key in table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                let what = format!("unknown key '{}' {place}", key.get_ref());
                self.problem(&key.span(), what);
            }
        }
    }

    /// A price in dollars per million tokens that can be believed.
    pub(super) fn rate(
        &mut self,
        at: &Range<usize>,
        table: &DeTable<'_>,
        key: &str,
    ) -> Option<Rate> {
        let text = self.decimal(at, table, key, "dollars per million tokens")?;
        let at = place(table, key, at);
        match Rate::from_usd_per_million(&text) {
            Ok(rate) if rate < CHEAPEST || rate > DEAREST => {
                let what = format!(
                    "{key} = \"{text}\" is not a believable price in dollars per million tokens \
                     (0.001 to 1000); check the unit"
                );
                self.problem(&at, what);
                None
            }
            Ok(rate) => Some(rate),
            Err(error) => {
                self.problem(&at, format!("{key}: {error}"));
                None
            }
        }
    }

    /// The text of a decimal, which must be a string.
    fn decimal(
        &mut self,
        at: &Range<usize>,
        table: &DeTable<'_>,
        key: &str,
        unit: &str,
    ) -> Option<String> {
        let at = place(table, key, at);
        match table.get(key).map(Spanned::get_ref) {
            Some(DeValue::String(text)) => Some(text.to_string()),
            Some(DeValue::Float(number)) => {
                let what = format!("{key} must be a string: write \"{number}\" in quotes");
                self.problem(&at, what);
                None
            }
            Some(DeValue::Integer(number)) => {
                let what = format!("{key} must be a string: write \"{number}\" in quotes");
                self.problem(&at, what);
                None
            }
            Some(_) => {
                self.problem(&at, format!("{key} must be a string with {unit}"));
                None
            }
            None => {
                self.problem(&at, format!("'{key}' is missing: {unit}, as a string"));
                None
            }
        }
    }

    /// The table under `key`, where there is one.
    pub(super) fn subtable<'t, 'i>(
        &mut self,
        table: &'t DeTable<'i>,
        key: &str,
    ) -> Option<(Range<usize>, &'t DeTable<'i>)> {
        let value = table.get(key)?;
        if let DeValue::Table(inner) = value.get_ref() {
            return Some((value.span(), inner));
        }
        self.problem(&value.span(), format!("'{key}' is written as [row.{key}]"));
        None
    }

    /// The fee of one search.
    pub(super) fn search_fee(&mut self, at: &Range<usize>, table: &DeTable<'_>) -> Option<PicoUsd> {
        let text = self.decimal(at, table, "web_search", "dollars for one search")?;
        let at = place(table, "web_search", at);
        match text.parse::<PicoUsd>() {
            Ok(fee) if SEARCH_FEES.contains(&fee.pico()) => Some(fee),
            Ok(_) => {
                let what = format!(
                    "web_search = \"{text}\" is not a believable fee for one search \
                     (0.0001 to 1 dollar); check the unit"
                );
                self.problem(&at, what);
                None
            }
            Err(error) => {
                self.problem(&at, format!("web_search: {error}"));
                None
            }
        }
    }

    /// A number of tokens within `believable`.
    pub(super) fn count(
        &mut self,
        at: &Range<usize>,
        table: &DeTable<'_>,
        key: &str,
        believable: &Range<u64>,
    ) -> Option<u64> {
        let at = place(table, key, at);
        let number = match table.get(key).map(Spanned::get_ref) {
            Some(DeValue::Integer(number)) => {
                u64::from_str_radix(number.as_str(), number.radix()).ok()
            }
            Some(_) => None,
            None => {
                self.problem(&at, format!("'{key}' is missing: a number of tokens"));
                return None;
            }
        };
        if number.is_none_or(|number| !believable.contains(&number)) {
            let last = believable.end.saturating_sub(1);
            let what = format!(
                "{key} must be a number of tokens, {} to {last}",
                believable.start
            );
            self.problem(&at, what);
            return None;
        }
        number
    }

    /// A value that is true or false.
    pub(super) fn flag(
        &mut self,
        at: &Range<usize>,
        table: &DeTable<'_>,
        key: &str,
    ) -> Option<bool> {
        if let Some(DeValue::Boolean(flag)) = table.get(key).map(Spanned::get_ref) {
            return Some(*flag);
        }
        let what = format!("'{key}' must be true or false");
        self.problem(&place(table, key, at), what);
        None
    }

    /// A text that says something.
    pub(super) fn text_value(
        &mut self,
        at: &Range<usize>,
        table: &DeTable<'_>,
        key: &str,
    ) -> Option<String> {
        match table.get(key).map(Spanned::get_ref) {
            Some(DeValue::String(text)) if !text.trim().is_empty() => Some(text.to_string()),
            _ => {
                let what = format!("'{key}' is missing: where the prices were read");
                self.problem(&place(table, key, at), what);
                None
            }
        }
    }

    /// A day that must be there.
    pub(super) fn date(
        &mut self,
        at: &Range<usize>,
        table: &DeTable<'_>,
        key: &str,
    ) -> Option<Date> {
        if table.get(key).is_none() {
            self.problem(at, format!("'{key}' is missing: a date such as 2026-11-29"));
        }
        self.optional_date(table, key)
    }

    /// A day that may be there.
    pub(super) fn optional_date(&mut self, table: &DeTable<'_>, key: &str) -> Option<Date> {
        let value = table.get(key)?;
        let date = match value.get_ref() {
            DeValue::Datetime(moment) if moment.time.is_none() && moment.offset.is_none() => {
                moment.to_string().parse().ok()
            }
            _ => None,
        };
        if date.is_none() {
            let what = format!("{key} must be a date without quotes, such as 2026-11-29");
            self.problem(&value.span(), what);
        }
        date
    }
}

/// Where the value of `key` stands, or `otherwise` when it is missing.
pub(super) fn place(table: &DeTable<'_>, key: &str, otherwise: &Range<usize>) -> Range<usize> {
    table
        .get(key)
        .map_or_else(|| otherwise.clone(), Spanned::span)
}
