//! Prices as text: a price file that loads again, and single prices for people.

use std::fmt::Write as _;

use super::book::{PriceRow, Rates};
use super::file::{PRICE_KEYS, SCHEMA, columns};
use crate::money::Rate;

/// Writes rows as a price file that `read_rows` reads back to the same rows.
pub(crate) fn write_rows(rows: &[PriceRow]) -> String {
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
