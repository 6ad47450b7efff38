//! `labproxy pricing import` and `diff`: the price map of LiteLLM beside ours.

use std::path::PathBuf;

use clap::Args;
use jiff::civil::Date;
use serde::Serialize;

use super::{configured_book, read_text};
use crate::cli::Context;
use crate::escape::escape_line;
use crate::money::PicoUsd;
use crate::pricing::litellm::{Import, Imported, read_price_map};
use crate::pricing::{PriceBook, PriceRow, Rates, per_million, utc_day, write_rows};
use crate::report::{self, Exit, Failure, Output};
use crate::table::{Column, Table};

/// Options of `pricing import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// LiteLLM's `model_prices_and_context_window.json`
    file: PathBuf,
    /// First day (UTC) on which the rows hold; today unless given
    #[arg(long, value_name = "DATE")]
    from: Option<Date>,
}

/// Options of `pricing diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// LiteLLM's `model_prices_and_context_window.json`
    file: PathBuf,
    /// Print JSON; prices are pico-dollars
    #[arg(long)]
    json: bool,
}

/// One thing that is not the same on both sides.
#[derive(Debug, Serialize)]
struct Difference {
    model: String,
    item: String,
    ours: Option<String>,
    theirs: Option<String>,
}

/// Prints the map's models as a price file.
pub(super) fn import(args: &ImportArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let today = utc_day(ctx.clock().now());
    let book = configured_book(ctx)?;
    let imported = read(&args.file, args.from.unwrap_or(today), today, &book)?;
    let text = write_rows(&imported.rows);
    // What is printed must load, or the next command would fail instead of this one.
    if let Err(problems) = PriceBook::from_text(&args.file.display().to_string(), &text) {
        let failure = Failure::failed("the map's prices are not believable");
        return Err(problems.iter().fold(failure, |failure, problem| {
            failure.problem(problem.what.clone())
        }));
    }
    out.raw(text.as_bytes())?;
    tell_skipped(&imported);
    Ok(Exit::SUCCESS)
}

fn read(
    file: &std::path::Path,
    from: Date,
    today: Date,
    book: &PriceBook,
) -> Result<Imported, Failure> {
    let fees = book.rows().iter().map(|row| row.web_search);
    let import = Import {
        from,
        checked_on: today,
        source: format!("LiteLLM price map {}", file.display()),
        web_search: fees.max().unwrap_or(PicoUsd::ZERO),
    };
    read_price_map(&read_text(file)?, &import).map_err(|error| {
        Failure::usage(format!("{} is not a LiteLLM price map", file.display())).caused_by(&error)
    })
}

fn tell_skipped(imported: &Imported) {
    for skipped in &imported.skipped {
        let line = format!("'{}' is left out: {}", skipped.model, skipped.why);
        report::tell(&format!("note: {}\n", escape_line(line)));
    }
}

/// Compares the rows in force today with the map; 1 when anything differs.
pub(super) fn diff(args: &DiffArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let now = ctx.clock().now();
    let today = utc_day(now);
    let book = configured_book(ctx)?;
    let imported = read(&args.file, today, today, &book)?;
    let mut differences = Vec::new();
    for theirs in &imported.rows {
        match book.row_at(&theirs.model, now) {
            Ok(ours) => compare(ours, theirs, &mut differences),
            Err(_) => differences.push(one_sided(&theirs.model, None, Some("priced"))),
        }
    }
    let in_map = |model: &str| {
        imported.rows.iter().any(|row| row.model == model)
            || imported
                .skipped
                .iter()
                .any(|skipped| skipped.model == model)
    };
    for ours in book.rows() {
        if ours.holds_on(today) && !ours.is_retired_on(today) && !in_map(&ours.model) {
            differences.push(one_sided(&ours.model, Some("priced"), None));
        }
    }
    tell_skipped(&imported);
    if args.json {
        out.json(&differences)?;
    } else if differences.is_empty() {
        out.line("no differences")?;
    } else {
        let mut table = Table::new([
            Column::text("MODEL"),
            Column::text("ITEM"),
            Column::number("OURS"),
            Column::number("THEIRS"),
        ]);
        for difference in &differences {
            table.row([
                difference.model.as_str(),
                difference.item.as_str(),
                difference.ours.as_deref().unwrap_or("-"),
                difference.theirs.as_deref().unwrap_or("-"),
            ]);
        }
        out.table(&table)?;
    }
    Ok(if differences.is_empty() {
        Exit::SUCCESS
    } else {
        Exit::FAILED
    })
}

fn one_sided(model: &str, ours: Option<&str>, theirs: Option<&str>) -> Difference {
    Difference {
        model: model.to_owned(),
        item: "model".to_owned(),
        ours: ours.map(str::to_owned),
        theirs: theirs.map(str::to_owned),
    }
}

fn compare(ours: &PriceRow, theirs: &PriceRow, differences: &mut Vec<Difference>) {
    let bands = |row: &PriceRow| row.band.map(|band| band.rates);
    let limit = |row: &PriceRow| row.band.map(|band| band.above_prompt_tokens.to_string());
    let mut items = prices("", Some(&ours.base), Some(&theirs.base));
    items.extend(prices(
        "long ",
        bands(ours).as_ref(),
        bands(theirs).as_ref(),
    ));
    items.extend(prices("fast ", ours.fast.as_ref(), theirs.fast.as_ref()));
    let mut item = |name: &str, ours: Option<String>, theirs: Option<String>| {
        items.push((name.to_owned(), ours, theirs));
    };
    item("long above", limit(ours), limit(theirs));
    let values = |row: &PriceRow| {
        [
            ("us_geo", row.us_geo.to_string()),
            ("web_search", row.web_search.to_string()),
            ("context_window", row.context_window.to_string()),
            ("max_output", row.max_output.to_string()),
        ]
    };
    for ((name, mine), (_, other)) in values(ours).into_iter().zip(values(theirs)) {
        item(name, Some(mine), Some(other));
    }
    let unequal = items.into_iter().filter(|(_, ours, theirs)| ours != theirs);
    differences.extend(unequal.map(|(item, mine, other)| Difference {
        model: ours.model.clone(),
        item,
        ours: mine,
        theirs: other,
    }));
}

type Item = (String, Option<String>, Option<String>);

fn prices(prefix: &str, ours: Option<&Rates>, theirs: Option<&Rates>) -> Vec<Item> {
    let columns = |rates: &Rates| {
        [
            ("input", rates.input),
            ("output", rates.output),
            ("cache_write_5m", rates.write_5m),
            ("cache_write_1h", rates.write_1h),
            ("cache_read", rates.read),
        ]
    };
    let (ours, theirs) = (ours.map(columns), theirs.map(columns));
    let Some(names) = ours.or(theirs) else {
        return Vec::new();
    };
    let price = |side: &Option<[(&str, crate::money::Rate); 5]>, wanted: &str| {
        let found = side.iter().flatten().find(|(name, _)| *name == wanted);
        found.map(|(_, rate)| per_million(*rate))
    };
    let line = |(name, _)| {
        (
            format!("{prefix}{name}"),
            price(&ours, name),
            price(&theirs, name),
        )
    };
    names.map(line).into()
}
