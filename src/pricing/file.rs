//! Reads and writes the price file, strictly: every problem is reported at once, with its line, and
//! one problem anywhere means that no row is used.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use jiff::civil::Date;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::book::{Band, PriceRow, Rates};
use crate::money::{PICO_PER_USD, PicoUsd, Rate};

/// The form that this program reads.
const SCHEMA: &str = "1";
/// A cheaper price per million tokens is taken for a slip of the unit: the cheapest published one
/// is 0.01 dollars (1,000 pico-dollars per token are 0.001 dollars per million).
const CHEAPEST: Rate = Rate::from_pico_per_token(1_000);
/// A dearer price per million tokens is taken for a slip of the unit: the dearest ever published
/// is 150 dollars (this is 1,000).
const DEAREST: Rate = Rate::from_pico_per_token(1_000_000_000);
/// Bounds of a believable fee for one search, in pico-dollars: a hundredth of a cent to a dollar.
const SEARCH_FEES: Range<u64> = PICO_PER_USD / 10_000..PICO_PER_USD + 1;
/// Bounds of a believable context window, in tokens.
const WINDOWS: Range<u64> = 1_000..100_000_001;
/// No published model id comes near this length.
const ID_BYTES: usize = 128;
/// Keys of the five prices, in the order of the file.
const PRICE_KEYS: [&str; 5] = [
    "input",
    "output",
    "cache_write_5m",
    "cache_write_1h",
    "cache_read",
];

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

/// Reads every row of `text`; one entry of `ids` becomes one row.
pub(super) fn read_rows(name: &str, text: &str) -> Result<Vec<PriceRow>, Vec<PricingProblem>> {
    let mut check = Check {
        name,
        text,
        problems: Vec::new(),
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().unwrap_or(0..0);
        check.problem(&at, format!("not valid TOML: {}", error.message()));
    }
    let rows = if check.problems.is_empty() {
        check.document(&document)
    } else {
        Vec::new()
    };
    if check.problems.is_empty() {
        Ok(rows)
    } else {
        check.problems.sort_by_key(|problem| problem.line);
        Err(check.problems)
    }
}

/// A row with the place of the entry of `ids` that it came from.
struct Placed {
    row: PriceRow,
    at: Range<usize>,
}

/// Collects problems while a document is read.
struct Check<'a> {
    name: &'a str,
    text: &'a str,
    problems: Vec<PricingProblem>,
}

impl Check<'_> {
    fn line_of(&self, at: &Range<usize>) -> usize {
        let before = self.text.bytes().take(at.start);
        before
            .filter(|byte| *byte == b'\n')
            .count()
            .saturating_add(1)
    }

    fn problem(&mut self, at: &Range<usize>, what: impl Into<String>) {
        let line = self.line_of(at);
        self.problems.push(PricingProblem {
            file: self.name.to_owned(),
            line,
            what: what.into(),
        });
    }

    fn document(&mut self, document: &Spanned<DeTable<'_>>) -> Vec<PriceRow> {
        let top = document.get_ref();
        self.only_keys(top, &["schema", "row"], "at the top of the file");
        match top
            .get("schema")
            .map(|value| (value.span(), value.get_ref()))
        {
            Some((_, DeValue::Integer(number))) if number.to_string() == SCHEMA => {}
            Some((at, _)) => self.problem(&at, "schema must be 1"),
            None => self.problem(&(0..0), "'schema = 1' is missing"),
        }
        let mut placed = Vec::new();
        match top.get("row").map(|value| (value.span(), value.get_ref())) {
            Some((_, DeValue::Array(tables))) => {
                for table in tables {
                    match table.get_ref() {
                        DeValue::Table(row) => placed.extend(self.row(&table.span(), row)),
                        _ => self.problem(&table.span(), "a row is written as [[row]]"),
                    }
                }
            }
            Some((at, _)) => self.problem(&at, "rows are written as [[row]]"),
            None => self.problem(&(0..0), "there is no [[row]]"),
        }
        self.no_overlaps(&placed);
        placed.into_iter().map(|placed| placed.row).collect()
    }

    fn no_overlaps(&mut self, placed: &[Placed]) {
        let mut of_id: HashMap<&str, Vec<&Placed>> = HashMap::new();
        for this in placed {
            let earlier = of_id.entry(&this.row.model).or_default();
            let clash = earlier.iter().find(|other| {
                let begins_before = |a: &PriceRow, b: &PriceRow| b.until.is_none_or(|u| a.from < u);
                begins_before(&this.row, &other.row) && begins_before(&other.row, &this.row)
            });
            if let Some(other) = clash {
                let line = self.line_of(&other.at);
                self.problem(
                    &this.at,
                    format!(
                        "'{}' has a second price for the same days; the other is in line {line}; \
                         give one of them an 'until'",
                        this.row.model
                    ),
                );
            }
            earlier.push(this);
        }
    }

    fn row(&mut self, at: &Range<usize>, table: &DeTable<'_>) -> Vec<Placed> {
        let before = self.problems.len();
        let known = [
            "ids",
            "from",
            "until",
            "us_geo",
            "web_search",
            "context_window",
            "max_output",
            "retired",
            "source",
            "checked_on",
            "long",
            "fast",
        ];
        let known: Vec<&str> = known.into_iter().chain(PRICE_KEYS).collect();
        self.only_keys(table, &known, "in a row");
        let ids = self.ids(at, table);
        let base = self.rates(at, table);
        let band = self.band(table, base);
        let fast = self.fast(table, base);
        let from = self.date(at, table, "from");
        let until = self.optional_date(table, "until");
        let retired = self.optional_date(table, "retired");
        let us_geo = self.flag(at, table, "us_geo");
        let web_search = self.search_fee(at, table);
        let context_window = self.count(at, table, "context_window", &WINDOWS);
        let output_limit = 1..context_window.unwrap_or(WINDOWS.end).saturating_add(1);
        let max_output = self.count(at, table, "max_output", &output_limit);
        let source = self.text_value(at, table, "source");
        let checked_on = self.date(at, table, "checked_on");
        if let (Some(from), Some(until)) = (from, until)
            && until <= from
        {
            self.problem(
                &place(table, "until", at),
                "'until' must be later than 'from'",
            );
        }
        if us_geo == Some(true) {
            self.geo_is_exact(at, table);
        }
        let row = (|| {
            Some(PriceRow {
                model: String::new(),
                from: from?,
                until,
                base: base?,
                band,
                fast,
                us_geo: us_geo?,
                web_search: web_search?,
                context_window: context_window?,
                max_output: max_output?,
                retired,
                source: source?,
                checked_on: checked_on?,
            })
        })();
        match row {
            Some(row) if self.problems.len() == before => ids
                .into_iter()
                .map(|(at, model)| Placed {
                    row: PriceRow {
                        model,
                        ..row.clone()
                    },
                    at,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    fn only_keys(&mut self, table: &DeTable<'_>, known: &[&str], place: &str) {
        for key in table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                let what = format!("unknown key '{}' {place}", key.get_ref());
                self.problem(&key.span(), what);
            }
        }
    }

    fn ids(&mut self, at: &Range<usize>, table: &DeTable<'_>) -> Vec<(Range<usize>, String)> {
        let Some(DeValue::Array(values)) = table.get("ids").map(Spanned::get_ref) else {
            self.problem(
                &place(table, "ids", at),
                "'ids' must list at least one model id",
            );
            return Vec::new();
        };
        if values.is_empty() {
            self.problem(
                &place(table, "ids", at),
                "'ids' must list at least one model id",
            );
        }
        let mut ids: Vec<(Range<usize>, String)> = Vec::new();
        for value in values {
            let id = value.get_ref().as_str().unwrap_or("");
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/@".contains(&byte);
            if id.is_empty() || id.len() > ID_BYTES || !id.bytes().all(plain) {
                self.problem(
                    &value.span(),
                    "a model id is a string of letters, digits and -._:/@, matched exactly",
                );
            } else if ids.iter().any(|(_, other)| other == id) {
                self.problem(&value.span(), format!("'{id}' is listed twice"));
            } else {
                ids.push((value.span(), id.to_owned()));
            }
        }
        ids
    }

    /// The five prices of `table`, checked one by one and against each other.
    fn rates(&mut self, at: &Range<usize>, table: &DeTable<'_>) -> Option<Rates> {
        let [input, output, five_minutes, one_hour, read] =
            PRICE_KEYS.map(|key| self.rate(at, table, key));
        let rates = Rates {
            input: input?,
            output: output?,
            write_5m: five_minutes?,
            write_1h: one_hour?,
            read: read?,
        };
        let orders = [
            (
                rates.output >= rates.input,
                "output",
                "'output' is cheaper than 'input'",
            ),
            (
                rates.read <= rates.input,
                "cache_read",
                "'cache_read' is dearer than 'input'",
            ),
            (
                rates.write_5m >= rates.input,
                "cache_write_5m",
                "'cache_write_5m' is cheaper than 'input'",
            ),
            (
                rates.write_1h >= rates.write_5m,
                "cache_write_1h",
                "'cache_write_1h' is cheaper than 'cache_write_5m'",
            ),
        ];
        for (holds, key, what) in orders {
            if !holds {
                let what = format!("{what}: check the columns");
                self.problem(&place(table, key, at), what);
            }
        }
        Some(rates)
    }

    fn rate(&mut self, at: &Range<usize>, table: &DeTable<'_>, key: &str) -> Option<Rate> {
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

    fn band(&mut self, table: &DeTable<'_>, base: Option<Rates>) -> Option<Band> {
        let (at, long) = self.subtable(table, "long")?;
        let known: Vec<&str> = std::iter::once("above").chain(PRICE_KEYS).collect();
        self.only_keys(long, &known, "in [row.long]");
        let above = self.count(&at, long, "above", &WINDOWS);
        let rates = self.rates(&at, long);
        self.not_cheaper(&at, long, rates, base);
        Some(Band {
            above_prompt_tokens: above?,
            rates: rates?,
        })
    }

    fn fast(&mut self, table: &DeTable<'_>, base: Option<Rates>) -> Option<Rates> {
        let (at, fast) = self.subtable(table, "fast")?;
        self.only_keys(fast, &PRICE_KEYS, "in [row.fast]");
        let rates = self.rates(&at, fast);
        self.not_cheaper(&at, fast, rates, base);
        rates
    }

    fn subtable<'t, 'i>(
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

    fn not_cheaper(
        &mut self,
        at: &Range<usize>,
        table: &DeTable<'_>,
        rates: Option<Rates>,
        base: Option<Rates>,
    ) {
        let (Some(rates), Some(base)) = (rates, base) else {
            return;
        };
        for (key, rate, standard) in PRICE_KEYS
            .iter()
            .zip(columns(rates))
            .zip(columns(base))
            .map(|((key, rate), standard)| (key, rate, standard))
        {
            if rate < standard {
                let what = format!("{key} is cheaper here than the standard price");
                self.problem(&place(table, key, at), what);
            }
        }
    }

    fn geo_is_exact(&mut self, at: &Range<usize>, table: &DeTable<'_>) {
        let subtables = ["long", "fast"].map(|key| table.get(key).map(Spanned::get_ref));
        let inner = subtables
            .into_iter()
            .flatten()
            .filter_map(|value| match value {
                DeValue::Table(table) => Some(table),
                _ => None,
            });
        for table in std::iter::once(table).chain(inner) {
            for key in PRICE_KEYS {
                let text = table.get(key).and_then(|value| value.get_ref().as_str());
                let rate = text.and_then(|text| Rate::from_usd_per_million(text).ok());
                if rate.is_some_and(|rate| rate.pico_per_token() % 10 != 0) {
                    let what = format!("{key}: with us_geo a price has at most five decimals");
                    self.problem(&place(table, key, at), what);
                }
            }
        }
    }

    fn search_fee(&mut self, at: &Range<usize>, table: &DeTable<'_>) -> Option<PicoUsd> {
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

    fn count(
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

    fn flag(&mut self, at: &Range<usize>, table: &DeTable<'_>, key: &str) -> Option<bool> {
        if let Some(DeValue::Boolean(flag)) = table.get(key).map(Spanned::get_ref) {
            return Some(*flag);
        }
        let what = format!("'{key}' must be true or false");
        self.problem(&place(table, key, at), what);
        None
    }

    fn text_value(&mut self, at: &Range<usize>, table: &DeTable<'_>, key: &str) -> Option<String> {
        match table.get(key).map(Spanned::get_ref) {
            Some(DeValue::String(text)) if !text.trim().is_empty() => Some(text.to_string()),
            _ => {
                let what = format!("'{key}' is missing: where the prices were read");
                self.problem(&place(table, key, at), what);
                None
            }
        }
    }

    fn date(&mut self, at: &Range<usize>, table: &DeTable<'_>, key: &str) -> Option<Date> {
        if table.get(key).is_none() {
            self.problem(at, format!("'{key}' is missing: a date such as 2026-11-29"));
        }
        self.optional_date(table, key)
    }

    fn optional_date(&mut self, table: &DeTable<'_>, key: &str) -> Option<Date> {
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
fn place(table: &DeTable<'_>, key: &str, otherwise: &Range<usize>) -> Range<usize> {
    table
        .get(key)
        .map_or_else(|| otherwise.clone(), Spanned::span)
}

/// The five prices in the order of [`PRICE_KEYS`].
fn columns(rates: Rates) -> [Rate; 5] {
    [
        rates.input,
        rates.output,
        rates.write_5m,
        rates.write_1h,
        rates.read,
    ]
}

/// Writes rows as a price file that [`read_rows`] reads back to the same rows.
pub(super) fn write_rows(rows: &[PriceRow]) -> String {
    let mut text = format!("schema = {SCHEMA}\n");
    for row in rows {
        // Writing to a string cannot fail.
        let _ = write_row(&mut text, row);
    }
    text
}

fn write_row(text: &mut String, row: &PriceRow) -> std::fmt::Result {
    let quoted = |value: &str| toml::Value::String(value.to_owned()).to_string();
    writeln!(text, "\n[[row]]\nids = [{}]", quoted(&row.model))?;
    writeln!(text, "from = {}", row.from)?;
    if let Some(until) = row.until {
        writeln!(text, "until = {until}")?;
    }
    write_rates(text, row.base)?;
    writeln!(text, "us_geo = {}", row.us_geo)?;
    let fee = row.web_search.to_string();
    writeln!(text, "web_search = \"{}\"", fee.trim_start_matches('$'))?;
    writeln!(text, "context_window = {}", row.context_window)?;
    writeln!(text, "max_output = {}", row.max_output)?;
    if let Some(retired) = row.retired {
        writeln!(text, "retired = {retired}")?;
    }
    writeln!(text, "source = {}", quoted(&row.source))?;
    writeln!(text, "checked_on = {}", row.checked_on)?;
    if let Some(band) = &row.band {
        writeln!(text, "[row.long]\nabove = {}", band.above_prompt_tokens)?;
        write_rates(text, band.rates)?;
    }
    if let Some(fast) = row.fast {
        text.push_str("[row.fast]\n");
        write_rates(text, fast)?;
    }
    Ok(())
}

fn write_rates(text: &mut String, rates: Rates) -> std::fmt::Result {
    for (key, rate) in PRICE_KEYS.iter().zip(columns(rates)) {
        writeln!(text, "{key} = \"{}\"", per_million(rate))?;
    }
    Ok(())
}

/// A rate as dollars per million tokens with every digit that matters: `4`, `0.125`.
pub(crate) fn per_million(rate: Rate) -> String {
    let pico = rate.pico_per_token();
    let fraction = format!("{:06}", pico % 1_000_000);
    let whole = pico / 1_000_000;
    match fraction.trim_end_matches('0') {
        "" => whole.to_string(),
        digits => format!("{whole}.{digits}"),
    }
}
