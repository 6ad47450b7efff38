//! `labproxy pricing quote`: prices a response with the reader, the bill and the verdict of the
//! proxy.

use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::configured_book;
use crate::cli::Context;
use crate::escape::escape;
use crate::money::{PicoUsd, Rate};
use crate::pricing::{Bill, PriceBook, PriceRow, per_million, utc_day};
use crate::report::{Exit, Failure, Output};
use crate::table::{Column, Table};
use crate::usage::{
    Admission, BodyEnd, BodyKind, Observed, Settlement, UsageReader, Verdict, decide,
};

/// Largest response that is read into memory. A transcript of the longest answer has a few tens of
/// megabytes.
const RESPONSE_BYTES: u64 = 256 << 20;

/// Options of `pricing quote`.
#[derive(Debug, Args)]
pub struct QuoteArgs {
    /// A usage object, a JSON response or a transcript of events; stdin without it or with `-`
    file: Option<PathBuf>,
    /// Model that was asked for; needed where the response names none
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// Prices of this day (UTC) instead of today's
    #[arg(long, value_name = "DATE")]
    at: Option<Date>,
    /// A one-hour cache marker was sent: writes without a split are priced at one hour
    #[arg(long)]
    one_hour: bool,
    /// `max_tokens` of the request; needed for a stream that broke off
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// `thinking.budget_tokens` of the request; with adaptive thinking its `max_tokens`
    #[arg(long, value_name = "N")]
    thinking_budget: Option<u64>,
    /// Print JSON; amounts are `pico_usd`
    #[arg(long)]
    json: bool,
}

/// Prices a response.
pub(super) fn run(args: &QuoteArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let config = ctx.config()?;
    let book = configured_book(ctx)?;
    let at = match args.at {
        Some(day) => TimeZone::UTC
            .to_timestamp(day.at(12, 0, 0, 0))
            .map_err(|error| Failure::because(format!("{day} cannot be used"), &error))?,
        None => ctx.clock().now(),
    };
    let observed = observe(&read_input(args)?);
    let model = args.model.as_ref().or(observed.served_model.as_ref());
    let Some(model) = model.cloned().or_else(|| {
        // An error costs nothing, whoever was asked.
        observed.provider_error.then(String::new)
    }) else {
        return Err(Failure::usage("the response names no model")
            .hint("name the one that was asked for with --model ID"));
    };
    let whole = observed.finished && observed.output_is_final;
    if observed.started && !whole && args.max_tokens.is_none() {
        return Err(
            Failure::usage("the stream ends before it says how much output there was").hint(
                "give the request's --max-tokens N, and --thinking-budget N where it had one",
            ),
        );
    }
    let admission = Admission {
        requested_model: model,
        max_tokens: args.max_tokens.unwrap_or(u64::MAX),
        thinking_budget: args.thinking_budget,
        // Nothing is held here: only what a response costs by itself is asked.
        hold: PicoUsd::MAX,
        one_hour_asked: args.one_hour,
        known_usage: config.gate.known_usage.value.clone(),
        prompt_bound: None,
        resampled: false,
        soft: false,
    };
    let status = if observed.provider_error { 400 } else { 200 };
    let verdict = decide(
        &book,
        &admission,
        Some(status),
        BodyEnd::Complete,
        &observed,
        at,
    );
    let quote = Quote {
        book: &book,
        admission: &admission,
        observed: &observed,
        verdict: &verdict,
        at,
    };
    if args.json {
        out.json(&quote.json())?;
    } else {
        quote.print(out)?;
    }
    Ok(match verdict.settlement {
        Settlement::Charge(_) | Settlement::Free => Exit::SUCCESS,
        Settlement::Keep(_) => Exit::FAILED,
    })
}

fn read_input(args: &QuoteArgs) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let (name, read) = match &args.file {
        Some(file) if file.as_os_str() != "-" => (
            file.display().to_string(),
            std::fs::File::open(file)
                .and_then(|open| open.take(RESPONSE_BYTES).read_to_end(&mut bytes)),
        ),
        _ => (
            "standard input".to_owned(),
            std::io::stdin()
                .take(RESPONSE_BYTES)
                .read_to_end(&mut bytes),
        ),
    };
    read.map_err(|error| Failure::usage(format!("{name} cannot be read")).caused_by(&error))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::usage(format!("{name} is empty")));
    }
    Ok(bytes)
}

/// Reads the response in the form it has: a bare usage object stands for a whole message with it.
fn observe(bytes: &[u8]) -> Observed {
    let bytes = bytes.trim_ascii_start();
    if !bytes.starts_with(b"{") {
        return read(BodyKind::EventStream, &[bytes]);
    }
    let keys: serde_json::Map<String, Value> = serde_json::from_slice(bytes).unwrap_or_default();
    let is_usage = ["input_tokens", "output_tokens"]
        .iter()
        .any(|key| keys.contains_key(*key));
    if is_usage && !keys.contains_key("usage") {
        read(
            BodyKind::Json,
            &[b"{\"type\":\"message\",\"usage\":", bytes, b"}"],
        )
    } else {
        read(BodyKind::Json, &[bytes])
    }
}

fn read(kind: BodyKind, parts: &[&[u8]]) -> Observed {
    let mut reader = UsageReader::new(kind);
    for part in parts {
        reader.push(part);
    }
    reader.finish()
}

/// A priced response.
struct Quote<'a> {
    book: &'a PriceBook,
    admission: &'a Admission,
    observed: &'a Observed,
    verdict: &'a Verdict,
    at: Timestamp,
}

impl Quote<'_> {
    fn row(&self) -> Option<&PriceRow> {
        let served = self.observed.served_model.as_deref();
        let model = served.unwrap_or(&self.admission.requested_model);
        self.book.billing_row(model, self.at).ok()
    }

    fn json(&self) -> Value {
        let (outcome, bill, reason) = match &self.verdict.settlement {
            Settlement::Charge(bill) => ("charged", Some(bill), None),
            Settlement::Free => ("free", None, self.observed.error_type.clone()),
            Settlement::Keep(why) => ("kept", None, Some(why.clone())),
        };
        let total = match &self.verdict.settlement {
            Settlement::Charge(bill) => Some(bill.total),
            Settlement::Free => Some(PicoUsd::ZERO),
            Settlement::Keep(_) => None,
        };
        json!({
            "model": self.admission.requested_model,
            "served_model": self.observed.served_model,
            "at": utc_day(self.at),
            "outcome": outcome,
            "reason": reason,
            "pico_usd": total,
            "lines": bill.map_or(&[][..], |bill| &bill.lines),
            "note": self.verdict.note,
            "closes_session": self.verdict.close,
            "usage": self.observed.usage.as_ref().map(|usage| &usage.raw),
            "stop_reason": self.observed.stop_reason,
            "pricing_digest": self.book.digest().0,
        })
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        match &self.verdict.settlement {
            Settlement::Charge(bill) => self.print_bill(bill, out)?,
            Settlement::Free => {
                let kind = self.observed.error_type.as_deref().unwrap_or("error");
                out.line(&format!("free: the provider refused ({})", escape(kind)))?;
            }
            Settlement::Keep(why) => {
                out.line(&format!("no price: {}", escape(why)))?;
                out.line("the proxy would charge the whole hold of the request")?;
            }
        }
        if let (Some(note), Settlement::Charge(_)) = (&self.verdict.note, &self.verdict.settlement)
        {
            out.line(&format!("note: {}", escape(note)))?;
        }
        if self.verdict.close.is_some() {
            out.line("note: the session would take no more requests")?;
        }
        Ok(())
    }

    fn print_bill(&self, bill: &Bill, out: &mut Output) -> Result<(), Failure> {
        let mut table = Table::new([
            Column::text("MODEL"),
            Column::text("ITEM"),
            Column::number("COUNT"),
            Column::number("PRICE"),
            Column::text("PER"),
            Column::number("COST"),
        ]);
        for line in &bill.lines {
            let (price, per) = if line.item == "web_search" {
                (PicoUsd::from_pico(line.pico_per_unit).to_string(), "search")
            } else {
                let rate = Rate::from_pico_per_token(line.pico_per_unit);
                (format!("${}", per_million(rate)), "million")
            };
            table.row([
                line.model.as_str(),
                line.item,
                &line.count.to_string(),
                &price,
                per,
                &line.pico_usd.to_string(),
            ]);
        }
        if !table.is_empty() {
            out.table(&table)?;
        }
        out.line(&format!(
            "total {} ({} pico-dollars)",
            bill.total,
            bill.total.pico()
        ))?;
        for reason in self.reasons() {
            out.line(&format!("  {}", escape(reason)))?;
        }
        Ok(())
    }

    /// What chose the prices, where it was not the standard.
    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let Some(usage) = &self.observed.usage else {
            return reasons;
        };
        if let Some(row) = self.row() {
            reasons.push(format!(
                "prices of {} from {}, checked on {}",
                row.model, row.from, row.checked_on
            ));
            if let Some(band) = &row.band {
                let (prompt, above) = (usage.top.prompt(), band.above_prompt_tokens);
                let side = if prompt > above { "above" } else { "not above" };
                reasons.push(format!(
                    "the prompt of {prompt} tokens is {side} {above}, where long prompts begin"
                ));
            }
        }
        if usage.geo.as_deref() == Some("us") {
            reasons.push("US-only inference: every token price × 1.1, fees not".to_owned());
        }
        if usage.service_tier.as_deref() == Some("batch") {
            reasons.push("batch: every token price × ½, fees not".to_owned());
        }
        if usage.speed.as_deref() == Some("fast") {
            reasons.push("served in fast mode".to_owned());
        }
        if !usage.iterations.is_empty() {
            reasons.push(format!(
                "{} iterations, each priced at the model that ran it",
                usage.iterations.len()
            ));
        }
        if self.observed.stop_reason.as_deref() == Some("refusal") {
            reasons.push("a refusal: attempts without output are free".to_owned());
        }
        reasons
    }
}
