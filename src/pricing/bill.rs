//! The bill of one response: usage × prices, to the pico-dollar.

use jiff::Timestamp;
use serde::Serialize;

use super::book::{PriceBook, PriceRow, Rates};
use super::hold::us_only;
use super::records::{Payer, Record, paid_records};
use crate::money::{PicoUsd, Rate};
use crate::usage::Usage;

/// The largest sum that a bill can state. The ledger's integers are signed.
const LARGEST: u128 = (1 << 63) - 1;

/// What the bill must know beside the usage.
#[derive(Clone, Debug)]
pub struct ChargeTerms<'a> {
    /// The model that was asked for; prices entries that name none.
    pub requested_model: &'a str,
    /// The model that the response names.
    pub served_model: Option<&'a str>,
    /// When it was served, by the upstream's `Date` within a bounded skew.
    pub at: Timestamp,
    /// A one-hour marker or a cache beta was sent: unsplit writes are charged at the one-hour rate.
    pub one_hour_asked: bool,
    /// `stop_reason` is `refusal`: attempts without output are free.
    pub refused: bool,
    /// Counters an operator declared harmless (`gate.known_usage`).
    pub known_usage: &'a [String],
}

/// One line of a bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BillLine {
    /// Served model.
    pub model: String,
    /// What was counted: `input`, `output`, `cache_write_5m`, `cache_write_1h`, `cache_read`,
    /// `web_search`.
    pub item: &'static str,
    /// How many.
    pub count: u64,
    /// Pico-dollars for one, multipliers included.
    pub pico_per_unit: u64,
    /// Pico-dollars in all.
    pub pico_usd: PicoUsd,
}

/// Something about a response that closes the session or must be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// The served model has no price: the whole hold is charged and the session closes.
    UnpricedServedModel(String),
    /// A positive counter that nobody knows: max(known, hold) is charged and the session closes.
    UnknownCounter(String),
    /// A known counter holds something that is not a count: max(known, hold) is charged and the
    /// session closes.
    UnreadableCounter(String),
    /// The response was served fast although fast mode is refused: charged ×2, session closes.
    ServedFast,
    /// The counters fell or repeated oddly; each settles at its largest value.
    UsageFell,
    /// An entry of `iterations` has an unknown type: charged at the dearest known rate.
    UnknownIteration(String),
    /// The geography is not one that is priced: charged as US-only inference, the dearest.
    UnknownGeography(String),
    /// The sum does not fit: no real response costs nine million dollars, so it is not believed.
    Overflow,
}

/// What a response costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bill {
    /// The lines that add up to the total.
    pub lines: Vec<BillLine>,
    /// The total.
    pub total: PicoUsd,
    /// What was odd.
    pub flags: Vec<Flag>,
}

/// What multiplies the token prices of a whole response.
#[derive(Clone, Copy, Debug)]
struct Multipliers {
    fast: bool,
    us_only: bool,
    batch: bool,
}

impl Multipliers {
    fn of(usage: &Usage, flags: &mut Vec<Flag>) -> Self {
        // Only "standard" is known to be standard: an unknown speed is charged as the fast one.
        let fast = usage
            .speed
            .as_deref()
            .is_some_and(|speed| !matches!(speed, "standard" | ""));
        if fast {
            flags.push(Flag::ServedFast);
        }
        let us_only = match usage.geo.as_deref() {
            None | Some("global" | "not_available" | "") => false,
            Some("us") => true,
            Some(other) => {
                flags.push(Flag::UnknownGeography(other.to_owned()));
                true
            }
        };
        Self {
            fast,
            us_only,
            batch: usage.service_tier.as_deref() == Some("batch"),
        }
    }

    /// The rates of `row` for a prompt of `band_prompt` tokens.
    fn rates(self, row: &PriceRow, band_prompt: u64) -> Rates {
        let standard = *row.rates_for(band_prompt);
        let speed = match row.fast {
            // A published fast price never undercuts twice the band's.
            Some(fast) if self.fast && row.band.is_some() => fast.dearer(standard.map(doubled)),
            Some(fast) if self.fast => fast,
            None if self.fast => standard.map(doubled),
            _ => standard,
        };
        self.apart_from_speed(speed)
    }

    /// `rates` of an unknown model.
    fn unknown(self, rates: Rates) -> Rates {
        self.apart_from_speed(if self.fast { rates.map(doubled) } else { rates })
    }

    fn apart_from_speed(self, rates: Rates) -> Rates {
        let placed = if self.us_only {
            rates.map(us_only)
        } else {
            rates
        };
        if self.batch {
            placed.map(halved)
        } else {
            placed
        }
    }
}

fn doubled(rate: Rate) -> Rate {
    Rate::from_pico_per_token(rate.pico_per_token().saturating_mul(2))
}

/// Half, rounded up; every published rate halves exactly, ×1.1 or not.
fn halved(rate: Rate) -> Rate {
    Rate::from_pico_per_token(rate.pico_per_token().div_ceil(2))
}

/// Adds lines up, one for each model, item and price.
#[derive(Default)]
struct Lines {
    lines: Vec<BillLine>,
    overflow: bool,
}

impl Lines {
    fn add(&mut self, model: &str, item: &'static str, count: u64, pico_per_unit: u64) {
        if count == 0 {
            return;
        }
        let same = self.lines.iter_mut().find(|line| {
            line.model == model && line.item == item && line.pico_per_unit == pico_per_unit
        });
        if let Some(line) = same {
            match line.count.checked_add(count) {
                Some(sum) => line.count = sum,
                None => self.overflow = true,
            }
        } else {
            self.lines.push(BillLine {
                model: model.to_owned(),
                item,
                count,
                pico_per_unit,
                pico_usd: PicoUsd::ZERO,
            });
        }
    }

    fn add_tokens(&mut self, model: &str, record: &Record, rates: &Rates, one_hour_asked: bool) {
        let counts = &record.counts;
        let (five_minutes, one_hour) = counts.writes(one_hour_asked);
        for (item, count, rate) in [
            ("input", counts.input, rates.input),
            ("cache_write_5m", five_minutes, rates.write_5m),
            ("cache_write_1h", one_hour, rates.write_1h),
            ("cache_read", counts.cache_read, rates.read),
            ("output", counts.output, rates.output),
        ] {
            self.add(model, item, count, rate.pico_per_token());
        }
    }

    fn total(mut self, mut flags: Vec<Flag>) -> Bill {
        let mut total: u128 = 0;
        for line in &mut self.lines {
            let cost = Rate::from_pico_per_token(line.pico_per_unit).times(line.count);
            line.pico_usd = pico(cost).unwrap_or(PicoUsd::MAX);
            total = total.saturating_add(cost);
        }
        let sum = if self.overflow { None } else { pico(total) };
        if sum.is_none() {
            flags.push(Flag::Overflow);
        }
        Bill {
            lines: self.lines,
            total: sum.unwrap_or(PicoUsd::MAX),
            flags,
        }
    }
}

fn pico(amount: u128) -> Option<PicoUsd> {
    let fits = amount <= LARGEST;
    let amount = u64::try_from(amount).ok().filter(|_| fits);
    amount.map(PicoUsd::from_pico)
}

/// Prices one usage record.
///
/// A model without a price adds no lines, only a flag; the caller then charges the hold.
pub fn bill(book: &PriceBook, usage: &Usage, terms: &ChargeTerms<'_>) -> Bill {
    let mut flags = Vec::new();
    let multipliers = Multipliers::of(usage, &mut flags);
    let mut lines = Lines::default();
    let paid = paid_records(usage, terms);
    flags.extend(paid.unknown_kinds.into_iter().map(Flag::UnknownIteration));
    for record in &paid.records {
        let rates = match &record.payer {
            Payer::Model(model) => book
                .billing_row(model, terms.at)
                .map(|row| (model.as_str(), multipliers.rates(row, record.band_prompt)))
                .map_err(|_| model.clone()),
            Payer::Dearest => book
                .dearest_rates(terms.at)
                .map(|rates| ("unknown", multipliers.unknown(rates)))
                .ok_or_else(|| "unknown".to_owned()),
        };
        match rates {
            Ok((model, rates)) => lines.add_tokens(model, record, &rates, terms.one_hour_asked),
            Err(model) => {
                let flag = Flag::UnpricedServedModel(model);
                if !flags.contains(&flag) {
                    flags.push(flag);
                }
            }
        }
    }
    let served = terms.served_model.unwrap_or(terms.requested_model);
    // A response that made nothing but names an unpriced model is still one.
    if let Ok(row) = book.billing_row(served, terms.at) {
        let fee = row.web_search.pico();
        lines.add(served, "web_search", usage.web_searches, fee);
    } else {
        let flag = Flag::UnpricedServedModel(served.to_owned());
        if !flags.contains(&flag) {
            flags.push(flag);
        }
    }
    let declared = |path: &String| terms.known_usage.iter().any(|known| known == path);
    let unknown = usage.unknown.iter().filter(|path| !declared(path)).cloned();
    flags.extend(unknown.map(Flag::UnknownCounter));
    flags.extend(
        usage
            .unreadable
            .iter()
            .cloned()
            .map(Flag::UnreadableCounter),
    );
    if usage.fell {
        flags.push(Flag::UsageFell);
    }
    lines.total(flags)
}
