//! Reads the price map of LiteLLM: one JSON object, a key for each model, prices in dollars per
//! token as JSON numbers such as `5e-06`.
//!
//! The digits of each number are taken as text, so that `1.25e-07` is exactly 125,000 pico-dollars
//! and no floating-point number is made on the way. A model that cannot be priced completely and
//! exactly is skipped with the reason.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::book::{Band, PriceRow, Rates};
use crate::money::{PicoUsd, Rate};

/// Decimals of a pico-dollar in a dollar.
const PICO_DECIMALS: i32 = 12;
/// A number with more digits or a larger exponent is no price.
const DIGITS: usize = 40;

/// What the map does not say about a row.
#[derive(Clone, Debug)]
pub struct Import {
    /// Day from which the rows hold.
    pub from: Date,
    /// Day on which they were read.
    pub checked_on: Date,
    /// Where they were read, when the entry names no source itself.
    pub source: String,
    /// Fee of a search, when the entry names none.
    pub web_search: PicoUsd,
}

/// A model of the map that cannot become a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its id.
    pub model: String,
    /// What is missing or cannot be expressed.
    pub why: String,
}

/// The rows of a map.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Models that are priced completely, in the map's order.
    pub rows: Vec<PriceRow>,
    /// Those that are not.
    pub skipped: Vec<Skipped>,
}

/// Why a text is not a price map.
#[derive(Debug, thiserror::Error)]
pub enum PriceMapError {
    /// It is not a JSON object of objects.
    #[error("it is not a JSON object with an object for each model")]
    NotAMap(#[source] serde_json::Error),
    /// It has no model of this provider.
    #[error("it has no chat model whose litellm_provider is \"anthropic\"")]
    NoModels,
}

/// One model as the map has it: every value as the text that stands there.
type Entry<'a> = BTreeMap<String, &'a RawValue>;

/// Reads the Anthropic chat models of a map.
///
/// # Errors
/// When the text is not a price map, or has no such model.
pub fn read_price_map(text: &str, import: &Import) -> Result<Imported, PriceMapError> {
    let map: Models<'_> = serde_json::from_str(text).map_err(PriceMapError::NotAMap)?;
    let mut imported = Imported::default();
    for (model, entry) in map.0 {
        let Ok(entry) = serde_json::from_str::<Entry<'_>>(entry.get()) else {
            continue;
        };
        let is = |key: &str, wanted: &str| text_of(&entry, key).as_deref() == Some(wanted);
        if !is("litellm_provider", "anthropic") || !is("mode", "chat") {
            continue;
        }
        match row(&model, &entry, import) {
            Ok(row) => imported.rows.push(row),
            Err(why) => imported.skipped.push(Skipped { model, why }),
        }
    }
    if imported.rows.is_empty() && imported.skipped.is_empty() {
        return Err(PriceMapError::NoModels);
    }
    Ok(imported)
}

/// The models in the map's order.
struct Models<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Models<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> serde::de::Visitor<'de> for InOrder {
            type Value = Models<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Models<'de>, A::Error> {
                let mut models = Vec::new();
                while let Some(model) = map.next_entry()? {
                    models.push(model);
                }
                Ok(Models(models))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

fn row(model: &str, entry: &Entry<'_>, import: &Import) -> Result<PriceRow, String> {
    let base = rates(entry, "")?;
    let multipliers: Entry<'_> = match entry.get("provider_specific_entry") {
        Some(raw) if raw.get() != "null" => serde_json::from_str(raw.get())
            .map_err(|_| "provider_specific_entry is not an object".to_owned())?,
        _ => Entry::new(),
    };
    let us_geo = match multipliers.get("us") {
        None => false,
        Some(raw) if scaled(raw.get(), 1) == Some(11) => true,
        Some(raw) => return Err(format!("US-only inference costs × {raw}, not × 1.1")),
    };
    let fast = match multipliers.get("fast") {
        None => None,
        Some(raw) => Some(times(base, raw.get())?),
    };
    let source = text_of(entry, "source").unwrap_or_else(|| import.source.clone());
    let retired = text_of(entry, "deprecation_date").map(|text| text.parse::<Date>());
    Ok(PriceRow {
        model: model.to_owned(),
        from: import.from,
        until: None,
        base,
        band: band(entry)?,
        fast,
        us_geo,
        web_search: search_fee(entry)?.unwrap_or(import.web_search),
        context_window: tokens(entry, "max_input_tokens")?,
        max_output: tokens(entry, "max_output_tokens")?,
        retired: retired
            .transpose()
            .map_err(|_| "deprecation_date is not a date".to_owned())?,
        source,
        checked_on: import.checked_on,
    })
}

/// The five prices whose keys end in `suffix`.
fn rates(entry: &Entry<'_>, suffix: &str) -> Result<Rates, String> {
    let rate = |key: &str| {
        let key = format!("{key}{suffix}");
        let raw = entry.get(&key).ok_or_else(|| format!("{key} is missing"))?;
        scaled(raw.get(), PICO_DECIMALS)
            .map(Rate::from_pico_per_token)
            .ok_or_else(|| format!("{key} = {raw} is not a whole number of pico-dollars"))
    };
    Ok(Rates {
        input: rate("input_cost_per_token")?,
        output: rate("output_cost_per_token")?,
        write_5m: rate("cache_creation_input_token_cost")?,
        write_1h: rate("cache_creation_input_token_cost_above_1hr")?,
        read: rate("cache_read_input_token_cost")?,
    })
}

fn band(entry: &Entry<'_>) -> Result<Option<Band>, String> {
    let prefix = "input_cost_per_token_above_";
    let mut limits = entry.keys().filter_map(|key| {
        let limit = key.strip_prefix(prefix)?.strip_suffix("k_tokens")?;
        limit.parse::<u64>().ok()
    });
    let Some(thousands) = limits.next() else {
        return Ok(None);
    };
    if limits.next().is_some() {
        return Err("it has more than one band of long prompts".to_owned());
    }
    Ok(Some(Band {
        above_prompt_tokens: thousands.saturating_mul(1_000),
        rates: rates(entry, &format!("_above_{thousands}k_tokens"))?,
    }))
}

fn times(rates: Rates, factor: &str) -> Result<Rates, String> {
    let tenths = scaled(factor, 1).ok_or_else(|| format!("fast mode costs × {factor}"))?;
    Ok(rates.map(|rate| {
        let tenfold = u128::from(rate.pico_per_token()).saturating_mul(u128::from(tenths));
        Rate::from_pico_per_token(u64::try_from(tenfold.div_ceil(10)).unwrap_or(u64::MAX))
    }))
}

/// The dearest fee over the sizes of search context.
fn search_fee(entry: &Entry<'_>) -> Result<Option<PicoUsd>, String> {
    let Some(raw) = entry.get("search_context_cost_per_query") else {
        return Ok(None);
    };
    let wrong = || "search_context_cost_per_query is not an object of dollars".to_owned();
    let sizes: Entry<'_> = serde_json::from_str(raw.get()).map_err(|_| wrong())?;
    let fees = sizes
        .values()
        .map(|raw| scaled(raw.get(), PICO_DECIMALS).ok_or_else(wrong));
    let fees: Vec<u64> = fees.collect::<Result<_, _>>()?;
    Ok(fees.into_iter().max().map(PicoUsd::from_pico))
}

fn tokens(entry: &Entry<'_>, key: &str) -> Result<u64, String> {
    let raw = entry.get(key).ok_or_else(|| format!("{key} is missing"))?;
    scaled(raw.get(), 0).ok_or_else(|| format!("{key} = {raw} is not a number of tokens"))
}

fn text_of(entry: &Entry<'_>, key: &str) -> Option<String> {
    serde_json::from_str(entry.get(key)?.get()).ok()
}

/// A JSON number times 10^`decimals`, where that is a whole number: `1.25e-07` with 12 is 125,000.
fn scaled(text: &str, decimals: i32) -> Option<u64> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !plain || digits.len() > DIGITS {
        return None;
    }
    let places = i32::try_from(fraction.len()).ok()?;
    let shift = exponent.checked_add(decimals)?.checked_sub(places)?;
    let value: u128 = digits.parse().ok()?;
    let power = |by: u32| 10_u128.checked_pow(by);
    let value = if shift >= 0 {
        value.checked_mul(power(shift.unsigned_abs())?)?
    } else {
        match power(shift.unsigned_abs()) {
            Some(divisor) if value.is_multiple_of(divisor) => value / divisor,
            None if value == 0 => 0,
            _ => return None,
        }
    };
    u64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every spelling of a JSON number is read exactly or not at all.
    #[test]
    fn numbers_are_exact() {
        for (text, pico) in [
            ("5e-06", Some(5_000_000)),
            ("1.25e-07", Some(125_000)),
            ("0.000003", Some(3_000_000)),
            ("3E-6", Some(3_000_000)),
            ("0.00000000001e+4", Some(100_000)),
            ("0", Some(0)),
            ("0e-99", Some(0)),
            ("2.9999999e-06", None),
            ("2.9999999999999997e-06", None),
            ("-1e-06", None),
            ("1e30", None),
            ("1e999999999999", None),
            ("\"5e-06\"", None),
            ("null", None),
        ] {
            assert_eq!(scaled(text, 12), pico, "{text}");
        }
        assert_eq!(scaled("1.1", 1), Some(11));
        assert_eq!(scaled("2.0", 1), Some(20));
        assert_eq!(scaled("1000000", 0), Some(1_000_000));
    }
}
