//! `labproxy pricing show` and `check`.

use std::path::PathBuf;

use clap::Args;
use jiff::civil::Date;
use serde_json::{Value, json};

use super::{configured_book, unusable};
use crate::cli::Context;
use crate::pricing::{PriceBook, PriceRow, Rates, per_million, utc_day};
use crate::report::{self, Exit, Failure, Output};
use crate::table::{Column, Table};

/// Options of `pricing show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Exact model id; without it, every model that is served
    model: Option<String>,
    /// Prices of this day (UTC) instead of today's
    #[arg(long, value_name = "DATE")]
    at: Option<Date>,
    /// Retired models and rows of other days too
    #[arg(long)]
    all: bool,
    /// Print JSON; prices are pico-dollars per token
    #[arg(long)]
    json: bool,
}

/// Options of `pricing check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Price file; without it, the one in the configuration, or the built-in one
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows prices.
pub(super) fn show(args: &ShowArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let book = configured_book(ctx)?;
    let day = args.at.unwrap_or_else(|| utc_day(ctx.clock().now()));
    let is_shown = |row: &&PriceRow| match &args.model {
        Some(model) => row.model == *model && (args.at.is_none() || row.holds_on(day)),
        None => args.all || (row.holds_on(day) && !row.is_retired_on(day)),
    };
    let rows: Vec<&PriceRow> = book.rows().iter().filter(is_shown).collect();
    if let (true, Some(model)) = (rows.is_empty(), &args.model) {
        return Err(Failure::failed(format!("model '{model}' has no price"))
            .hint("ids match exactly; `labproxy pricing show --all` lists every one")
            .hint("a price file given by [pricing] file adds models"));
    }
    if args.json {
        let rows: Vec<Value> = rows.iter().map(|row| row_json(row)).collect();
        out.json(&rows)?;
        return Ok(Exit::SUCCESS);
    }
    let mut table = Table::new([
        Column::text("MODEL"),
        Column::text("WHEN"),
        Column::number("INPUT"),
        Column::number("OUTPUT"),
        Column::number("WRITE 5M"),
        Column::number("WRITE 1H"),
        Column::number("READ"),
        Column::text("FROM"),
        Column::text("UNTIL"),
    ]);
    for row in rows {
        add_rows(&mut table, row, day);
    }
    out.table(&table)?;
    out.line("Dollars per million tokens. US-only inference costs 1.1 times as much where a model has it.")?;
    Ok(Exit::SUCCESS)
}

fn add_rows(table: &mut Table, row: &PriceRow, day: Date) {
    let from = row.from.to_string();
    let until = row.until.map_or_else(String::new, |date| date.to_string());
    let mut add = |when: &str, rates: &Rates| {
        table.row([
            row.model.clone(),
            when.to_owned(),
            per_million(rates.input),
            per_million(rates.output),
            per_million(rates.write_5m),
            per_million(rates.write_1h),
            per_million(rates.read),
            from.clone(),
            until.clone(),
        ]);
    };
    let standard = if row.is_retired_on(day) {
        "retired"
    } else {
        ""
    };
    add(standard, &row.base);
    if let Some(band) = &row.band {
        let when = format!("prompt > {}", band.above_prompt_tokens);
        add(&when, &band.rates);
    }
    if let Some(fast) = &row.fast {
        add("fast", fast);
    }
}

fn row_json(row: &PriceRow) -> Value {
    json!({
        "model": row.model,
        "from": row.from,
        "until": row.until,
        "pico_usd_per_token": rates_json(&row.base),
        "long_prompts": row.band.map(|band| json!({
            "above_prompt_tokens": band.above_prompt_tokens,
            "pico_usd_per_token": rates_json(&band.rates),
        })),
        "fast_pico_usd_per_token": row.fast.as_ref().map(rates_json),
        "us_geo": row.us_geo,
        "web_search_pico_usd": row.web_search,
        "context_window": row.context_window,
        "max_output": row.max_output,
        "retired": row.retired,
        "source": row.source,
        "checked_on": row.checked_on,
    })
}

fn rates_json(rates: &Rates) -> Value {
    json!({
        "input": rates.input,
        "output": rates.output,
        "cache_write_5m": rates.write_5m,
        "cache_write_1h": rates.write_1h,
        "cache_read": rates.read,
    })
}

/// Checks a price file.
pub(super) fn check(args: &CheckArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let book = match &args.file {
        Some(file) => PriceBook::with_file(file).map_err(|problems| unusable(&problems))?,
        None => configured_book(ctx)?,
    };
    let stale = book.staleness(ctx.clock().now());
    let mut models: Vec<&str> = book.rows().iter().map(|row| row.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    let (rows, models) = (book.rows().len(), models.len());
    if args.json {
        out.json(&json!({
            "rows": rows,
            "models": models,
            "pricing_digest": book.digest().0,
            "stale": stale.as_ref().map(ToString::to_string),
        }))?;
    } else {
        let digest = &book.digest().0;
        out.line(&format!("{rows} rows for {models} models, digest {digest}"))?;
    }
    match stale {
        None => Ok(Exit::SUCCESS),
        Some(stale) => {
            let failure = Failure::failed(stale.to_string());
            report::tell(&failure.render(ctx.stderr_style()));
            Ok(Exit::FAILED)
        }
    }
}
