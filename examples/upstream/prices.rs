//! The stand-in's own count of money: integers, its own table, none of labproxy's code, so that a
//! comparison of the two means something.

/// Pico-dollars per token of one model, standard speed: input, output, 5-minute write, 1-hour
/// write, read. Pico-dollars per token are micro-dollars per million tokens.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The exact id.
    model: &'static str,
    /// Above 100,000 prompt tokens, where the model has such a band.
    long: Option<[u64; 5]>,
    /// Otherwise.
    base: [u64; 5],
}

/// Prompt tokens above which `long` holds.
const BAND: u64 = 100_000;

/// List prices as published on 2026-11-29.
const TABLE: &[Row] = &[
    row(
        "claude-fable-5-2",
        [8_000_000, 40_000_000, 10_000_000, 16_000_000, 200_000],
    ),
    row(
        "claude-opus-5-5",
        [4_000_000, 20_000_000, 5_000_000, 8_000_000, 200_000],
    ),
    row(
        "claude-opus-5",
        [5_000_000, 25_000_000, 6_250_000, 10_000_000, 500_000],
    ),
    row(
        "claude-opus-4-8",
        [5_000_000, 25_000_000, 6_250_000, 10_000_000, 500_000],
    ),
    row(
        "claude-sonnet-5-5",
        [2_000_000, 10_000_000, 2_500_000, 4_000_000, 100_000],
    ),
    row(
        "claude-sonnet-5",
        [2_000_000, 10_000_000, 2_500_000, 4_000_000, 200_000],
    ),
    Row {
        model: "claude-haiku-5-5",
        long: Some([500_000, 2_500_000, 625_000, 1_000_000, 50_000]),
        base: [100_000, 500_000, 125_000, 200_000, 10_000],
    },
    row(
        "claude-haiku-4-5-20251001",
        [1_000_000, 5_000_000, 1_250_000, 2_000_000, 100_000],
    ),
];

const fn row(model: &'static str, base: [u64; 5]) -> Row {
    Row {
        model,
        long: None,
        base,
    }
}

/// Tokens of one answer, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Tokens {
    /// Neither read from nor written to the cache.
    pub(crate) input: u64,
    /// Written for five minutes.
    pub(crate) write_5m: u64,
    /// Written for an hour.
    pub(crate) write_1h: u64,
    /// Read from the cache.
    pub(crate) read: u64,
    /// Generated.
    pub(crate) output: u64,
}

impl Tokens {
    /// Tokens of the prompt.
    pub(crate) fn prompt(self) -> u64 {
        self.input + self.write_5m + self.write_1h + self.read
    }
}

/// The ids that are served.
pub(crate) fn models() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.model)
}

/// The id that an asked model resolves to, or `None` when it is not served.
pub(crate) fn resolve(asked: &str) -> Option<&'static str> {
    let name = match asked {
        "claude-haiku-4-5" => "claude-haiku-4-5-20251001",
        other => other,
    };
    models().find(|model| *model == name)
}

/// What one answer costs, in pico-dollars; 0 for a model that is not served.
///
/// `us_only` is the ×1.1 of US-only inference; `fast` the ×2 of fast mode.
pub(crate) fn pico_usd(model: &str, tokens: Tokens, us_only: bool, fast: bool) -> u64 {
    let Some(row) = TABLE.iter().find(|row| row.model == model) else {
        return 0;
    };
    let rates = match row.long {
        Some(long) if tokens.prompt() > BAND => long,
        _ => row.base,
    };
    let counts = [
        tokens.input,
        tokens.output,
        tokens.write_5m,
        tokens.write_1h,
        tokens.read,
    ];
    let sum: u64 = rates.iter().zip(counts).map(|(rate, n)| rate * n).sum();
    let sum = if fast { sum * 2 } else { sum };
    if us_only { sum / 10 * 11 } else { sum }
}
