//! The sums that are stored beside the entries, and how amounts are stored.

use jiff::Timestamp;

use crate::money::PicoUsd;

/// Name of the row that sums the open holds of all sessions.
pub(super) const SUM_HELD: &str = "held";

const NANOS_PER_DAY: i64 = 86_400 * 1_000_000_000;

/// A sum that is stored beside the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    /// Open holds of all sessions.
    Held,
    /// What was charged on a UTC day, counted from 1970.
    Day(i64),
}

impl Sum {
    /// The day of a time.
    pub(super) const fn day_of(at_nanos: i64) -> Self {
        Self::Day(at_nanos.div_euclid(NANOS_PER_DAY))
    }

    /// The name of its row.
    pub(super) fn name(self) -> String {
        match self {
            Self::Held => SUM_HELD.to_owned(),
            Self::Day(day) => day_name(day.saturating_mul(NANOS_PER_DAY)),
        }
    }
}

/// The UTC day of a time, as the name of its sum.
pub(super) fn day_name(at_nanos: i64) -> String {
    Timestamp::from_nanosecond(i128::from(at_nanos))
        .map(|at| at.strftime("%Y-%m-%d").to_string())
        .unwrap_or_default()
}

/// SQLite has no unsigned integers; the 64 bits are kept.
pub(super) const fn amount_to_sql(amount: PicoUsd) -> i64 {
    amount.pico().cast_signed()
}

/// The reverse of [`amount_to_sql`].
pub(super) const fn amount_from_sql(stored: i64) -> PicoUsd {
    PicoUsd::from_pico(stored.cast_unsigned())
}
