//! Which token counts of a response are paid, and at whose rates: the rules of `usage.iterations`.

use super::bill::ChargeTerms;
use crate::usage::{Counts, Usage};

/// Whose rates apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payer {
    /// This model's.
    Model(String),
    /// Nobody knows what ran: the dearest known ones.
    Dearest,
}

/// Counts that are paid at one payer's rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Whose rates.
    pub(super) payer: Payer,
    /// How many tokens of each kind.
    pub(super) counts: Counts,
    /// Tokens of the prompt that chooses the band.
    pub(super) band_prompt: u64,
}

/// An uninterrupted run of `message` and `fallback_message` entries of one model: one attempt.
struct Hop<'a> {
    model: &'a str,
    entries: Vec<&'a Counts>,
    ends_in_fallback: bool,
}

impl Hop<'_> {
    fn has_output(&self) -> bool {
        self.entries.iter().any(|counts| counts.output > 0)
    }
}

/// Everything that is paid, and the kinds of entries that are unknown.
#[derive(Debug)]
pub(super) struct Paid {
    /// What is paid.
    pub(super) records: Vec<Record>,
    /// Entry kinds that this program does not know.
    pub(super) unknown_kinds: Vec<String>,
}

/// Splits a response into what is paid at whose rates.
pub(super) fn paid_records(usage: &Usage, terms: &ChargeTerms<'_>) -> Paid {
    let mut paid = Paid {
        records: Vec::new(),
        unknown_kinds: Vec::new(),
    };
    if terms.refused && !produced_anything(usage) {
        return paid;
    }
    let served = terms.served_model.unwrap_or(terms.requested_model);
    if usage.iterations.is_empty() {
        paid.records.push(Record {
            payer: Payer::Model(served.to_owned()),
            counts: usage.top,
            band_prompt: usage.top.prompt(),
        });
        return paid;
    }
    let mut hops: Vec<Hop<'_>> = Vec::new();
    let mut unknown = Counts::default();
    for entry in &usage.iterations {
        let own = |payer: Payer| Record {
            payer,
            counts: entry.counts,
            band_prompt: entry.counts.prompt(),
        };
        match entry.kind.as_str() {
            "message" | "fallback_message" => {
                let model = entry.model.as_deref().unwrap_or(served);
                let fallback = entry.kind == "fallback_message";
                match hops.last_mut() {
                    Some(hop) if hop.model == model => {
                        hop.entries.push(&entry.counts);
                        hop.ends_in_fallback |= fallback;
                    }
                    _ => hops.push(Hop {
                        model,
                        entries: vec![&entry.counts],
                        ends_in_fallback: fallback,
                    }),
                }
            }
            "compaction" => {
                let model = entry.model.as_deref().unwrap_or(terms.requested_model);
                paid.records.push(own(Payer::Model(model.to_owned())));
            }
            // An advisor without a model may be any.
            "advisor_message" => paid.records.push(own(match &entry.model {
                Some(model) => Payer::Model(model.clone()),
                None => Payer::Dearest,
            })),
            kind => {
                paid.unknown_kinds.push(kind.to_owned());
                unknown = unknown.plus(&entry.counts);
                paid.records.push(own(Payer::Dearest));
            }
        }
    }
    attempts(&mut paid.records, &hops, usage, terms, unknown);
    paid
}

/// Whether a refused response made anything that is paid.
fn produced_anything(usage: &Usage) -> bool {
    let outputs = usage.iterations.iter().map(|entry| entry.counts.output);
    usage.top.output > 0 || usage.web_searches > 0 || outputs.into_iter().any(|output| output > 0)
}

/// Adds the records of every attempt that is paid, and of what the entries leave unexplained of the
/// counts at top level.
fn attempts(
    records: &mut Vec<Record>,
    hops: &[Hop<'_>],
    usage: &Usage,
    terms: &ChargeTerms<'_>,
    unknown: Counts,
) {
    let serving = hops.iter().rposition(|hop| hop.ends_in_fallback);
    // The top level sums the serving attempt after a fallback, and every attempt otherwise.
    let in_top = |index: usize| serving.is_none_or(|serving| index == serving);
    let summed = hops
        .iter()
        .enumerate()
        .filter(|(index, _)| in_top(*index))
        .flat_map(|(_, hop)| hop.entries.iter())
        .fold(Counts::default(), |sum, counts| sum.plus(counts));
    let exact = summed.same_totals(&usage.top);
    let top_prompt = usage.top.prompt();
    for (index, hop) in hops.iter().enumerate() {
        // Searches that ran before a refusal came of a sampling, which is paid.
        let refused = terms.refused && usage.web_searches == 0;
        let declined = match serving {
            Some(serving) => index < serving || (index == serving && refused),
            None => refused,
        };
        if declined && !hop.has_output() {
            continue;
        }
        for counts in &hop.entries {
            let own = counts.prompt();
            let by_itself = exact || !in_top(index);
            records.push(Record {
                payer: Payer::Model(hop.model.to_owned()),
                counts: **counts,
                band_prompt: if by_itself { own } else { own.max(top_prompt) },
            });
        }
    }
    let rest = usage.top.minus(&summed.plus(&unknown));
    if !rest.is_nothing() {
        let served = terms.served_model.unwrap_or(terms.requested_model);
        records.push(Record {
            payer: Payer::Model(served.to_owned()),
            counts: rest,
            band_prompt: top_prompt,
        });
    }
}
