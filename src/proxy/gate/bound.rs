//! From a body's bounds to the terms of a hold.

use crate::cap::HoldTerms;
use crate::money::{PicoUsd, Rate};
use crate::pricing::HoldRates;

use super::Intent;

/// Output tokens that an expected cost reckons with; real turns of coding agents use about two
/// thousand of the 128,000 they ask for.
pub const EXPECTED_OUTPUT: u64 = 4_000;

/// Added to a count that the provider gave: the count is an estimate "by a small amount".
pub const COUNT_SLACK: u64 = 512;

/// Bytes of JSON for one token, for an expected cost; real bodies have more.
const EXPECTED_BYTES_PER_TOKEN: usize = 3;

impl Intent {
    /// Hold terms from the body's own bound.
    pub fn hold_terms(&self, rates: &HoldRates) -> HoldTerms {
        let window = rates.context_window();
        self.terms(rates, self.prompt_bound.unwrap_or(window).min(window))
    }

    /// Hold terms when `count_tokens` said `counted`: × 1.02 + 512, and never more than the body's
    /// own bound. When the request is not countable, the same as [`Self::hold_terms`].
    pub fn counted_terms(&self, rates: &HoldRates, counted: u64) -> HoldTerms {
        if !self.countable {
            return self.hold_terms(rates);
        }
        self.terms(rates, self.counted_bound(rates, counted))
    }

    /// Most prompt tokens that [`Self::counted_terms`] cover.
    pub fn counted_bound(&self, rates: &HoldRates, counted: u64) -> u64 {
        let window = rates.context_window();
        let own = self.prompt_bound.unwrap_or(window).min(window);
        let likely = counted
            .saturating_add(counted.div_ceil(50))
            .saturating_add(COUNT_SLACK);
        likely.min(own)
    }

    /// Expected cost, for `on_cap = "soft"`: a third of the bytes at the write rate, and at most
    /// [`EXPECTED_OUTPUT`] tokens of output. `per_output_token` is zero, so the amount stays the
    /// same whatever `max_tokens` is put in.
    pub fn expected_terms(&self, rates: &HoldRates, body_bytes: usize) -> HoldTerms {
        let bytes = u64::try_from(body_bytes.div_ceil(EXPECTED_BYTES_PER_TOKEN));
        let prompt = bytes.unwrap_or(u64::MAX).min(rates.context_window());
        let output = rates
            .output(prompt)
            .saturating_times(self.max_tokens.min(EXPECTED_OUTPUT));
        let fees = rates.web_search().saturating_mul(self.web_searches);
        HoldTerms {
            fixed: rates
                .input(prompt, self.writes)
                .saturating_times(prompt)
                .saturating_add(output)
                .saturating_add(fees),
            per_output_token: Rate::from_pico_per_token(0),
        }
    }

    /// Terms for a prompt of at most `prompt` tokens, searches and compaction included.
    fn terms(&self, rates: &HoldRates, prompt: u64) -> HoldTerms {
        let window = rates.context_window();
        let read = prompt
            .saturating_mul(self.samplings)
            .saturating_add(self.web_search_tokens)
            .min(window.saturating_mul(self.samplings));
        let extra = if self.compaction { window } else { 0 };
        let tokens = read.saturating_add(extra);
        let output = rates.output(tokens);
        let fees: PicoUsd = rates.web_search().saturating_mul(self.web_searches);
        HoldTerms {
            fixed: rates
                .input(tokens, self.writes)
                .saturating_times(tokens)
                .saturating_add(fees),
            per_output_token: if self.compaction {
                Rate::from_pico_per_token(output.pico_per_token().saturating_mul(2))
            } else {
                output
            },
        }
    }
}
