//! Reads the price file, strictly: every problem is reported at once, with its line, and one problem
//! anywhere means that no row is used.

use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::book::{Band, PriceRow, Rates};
use super::fields::{Check, place};
use crate::money::Rate;

/// The form that this program reads.
pub(super) const SCHEMA: &str = "1";
/// Bounds of a believable context window, in tokens.
const WINDOWS: Range<u64> = 1_000..100_000_001;
/// No published model id comes near this length.
const ID_BYTES: usize = 128;
/// Keys of the five prices, in the order of the file.
pub(super) const PRICE_KEYS: [&str; 5] = [
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
    let mut check = Check::new(name, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().unwrap_or(0..0);
        check.problem(&at, format!("not valid TOML: {}", error.message()));
    }
    let rows = if check.count_problems() == 0 {
        check.document(&document)
    } else {
        Vec::new()
    };
    match check.into_problems() {
        problems if problems.is_empty() => Ok(rows),
        problems => Err(problems),
    }
}

/// A row with the place of the entry of `ids` that it came from.
struct Placed {
    row: PriceRow,
    at: Range<usize>,
}

impl Check<'_> {
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
        let before = self.count_problems();
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
            Some(row) if self.count_problems() == before => ids
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
}

/// The five prices in the order of [`PRICE_KEYS`].
pub(super) fn columns(rates: Rates) -> [Rate; 5] {
    [
        rates.input,
        rates.output,
        rates.write_5m,
        rates.write_1h,
        rates.read,
    ]
}
