//! Money as whole pico-dollars.
//!
//! One pico-dollar is 1e-12 US dollars. Every published rate, the ×1.1 of US-only inference, the
//! ×2 of fast mode and the ×½ of batches is a whole number of pico-dollars per token, so nothing
//! in this program is ever rounded except for display. There is no floating point here and none of
//! the arithmetic operators: a sum that does not fit is an error the caller must name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Pico-dollars in one dollar.
pub const PICO_PER_USD: u64 = 1_000_000_000_000;

/// An amount of money: whole pico-dollars, never negative, at most about 18.4 million dollars.
///
/// ```
/// use labproxy::money::PicoUsd;
///
/// assert_eq!("0.50".parse::<PicoUsd>().unwrap().pico(), 500_000_000_000);
/// assert!("1e3".parse::<PicoUsd>().is_err());
/// assert_eq!(PicoUsd::MAX.checked_add(PicoUsd::from_pico(1)), None);
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PicoUsd(u64);

impl PicoUsd {
    /// No money.
    pub const ZERO: Self = Self(0);
    /// The largest amount that can be written down.
    pub const MAX: Self = Self(u64::MAX);

    /// An amount given in pico-dollars.
    pub const fn from_pico(pico: u64) -> Self {
        Self(pico)
    }

    /// The amount in pico-dollars.
    pub const fn pico(self) -> u64 {
        self.0
    }

    /// The sum, or `None` when it does not fit.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The difference, or `None` when it would be negative.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(rest) => Some(Self(rest)),
            None => None,
        }
    }

    /// What is left of `self` after `other`, and nothing when `other` is larger.
    ///
    /// For displays and for room under a cap; never for what is charged.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum, and the largest amount when it does not fit: the safe side for a hold.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `count` times this amount, and the largest amount when it does not fit: the safe side for a
    /// hold and for a fee.
    pub const fn saturating_mul(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// Half of the amount, rounded down: for deciding how much room to use, never for a charge.
    pub const fn half(self) -> Self {
        Self(self.0 / 2)
    }
}

/// Dollars with every digit that matters and at least two: `$0.0538`, `$2.00`.
impl fmt::Display for PicoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0 / PICO_PER_USD;
        let fraction = format!("{:012}", self.0 % PICO_PER_USD);
        let digits = fraction.trim_end_matches('0');
        f.pad(&format!("${whole}.{digits:0<2}"))
    }
}

/// Why a text is not an amount of dollars.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUsdError {
    /// It is not plain decimal digits with at most one point.
    #[error("'{0}' is not an amount in dollars; write digits such as 2 or 0.50")]
    NotDecimal(String),
    /// It has more than twelve digits after the point.
    #[error("'{0}' is finer than a pico-dollar (twelve digits after the point)")]
    TooFine(String),
    /// It is more than can be counted.
    #[error("'{0}' is more than 18 million dollars")]
    TooLarge(String),
}

/// Parses dollars such as `2`, `0.50`, `$1.25`; digits only, no sign, no exponent.
impl FromStr for PicoUsd {
    type Err = ParseUsdError;

    fn from_str(text: &str) -> Result<Self, ParseUsdError> {
        parse_decimal(text.strip_prefix('$').unwrap_or(text), 12)
            .map(Self)
            .map_err(|why| {
                let text = text.to_owned();
                match why {
                    DecimalError::NotDecimal => ParseUsdError::NotDecimal(text),
                    DecimalError::TooFine => ParseUsdError::TooFine(text),
                    DecimalError::TooLarge => ParseUsdError::TooLarge(text),
                }
            })
    }
}

/// A price per token: whole pico-dollars for one token.
///
/// One dollar per million tokens is 1,000,000 pico-dollars per token, so a published price with up
/// to six decimals is exact.
///
/// ```
/// use labproxy::money::Rate;
///
/// assert_eq!(Rate::from_usd_per_million("0.125").unwrap().times(1_000), 125_000_000);
/// assert!(Rate::from_usd_per_million("0.0000001").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(u64);

impl Rate {
    /// A rate given in pico-dollars per token.
    pub const fn from_pico_per_token(pico: u64) -> Self {
        Self(pico)
    }

    /// Pico-dollars for one token.
    pub const fn pico_per_token(self) -> u64 {
        self.0
    }

    /// Parses a published price in dollars per million tokens, such as `"0.125"`.
    ///
    /// # Errors
    /// When the text is not plain decimal digits, or finer than six decimals.
    pub fn from_usd_per_million(text: &str) -> Result<Self, ParseUsdError> {
        parse_decimal(text, 6).map(Self).map_err(|why| {
            let text = text.to_owned();
            match why {
                DecimalError::NotDecimal => ParseUsdError::NotDecimal(text),
                DecimalError::TooFine => ParseUsdError::TooFine(text),
                DecimalError::TooLarge => ParseUsdError::TooLarge(text),
            }
        })
    }

    /// The price of `tokens` in u128 pico-dollars, which cannot overflow.
    pub fn times(self, tokens: u64) -> u128 {
        u128::from(self.0) * u128::from(tokens)
    }

    /// The price of `tokens`, and the largest amount when it does not fit: the safe side for a hold.
    pub const fn saturating_times(self, tokens: u64) -> PicoUsd {
        PicoUsd(self.0.saturating_mul(tokens))
    }
}

enum DecimalError {
    NotDecimal,
    TooFine,
    TooLarge,
}

/// Reads `text` as a decimal scaled by 10^`places`.
fn parse_decimal(text: &str, places: usize) -> Result<u64, DecimalError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let has_point_without_digits = text.contains('.') && fraction.is_empty();
    if whole.is_empty() || !digits(whole) || !digits(fraction) || has_point_without_digits {
        return Err(DecimalError::NotDecimal);
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > places {
        return Err(DecimalError::TooFine);
    }
    format!("{whole}{fraction:0<places$}")
        .parse()
        .map_err(|_| DecimalError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_exactly_or_refused() {
        let pico = |text: &str| text.parse::<PicoUsd>().map(PicoUsd::pico);
        assert_eq!(pico("2"), Ok(2_000_000_000_000));
        assert_eq!(pico("0.50"), Ok(500_000_000_000));
        assert_eq!(pico("$0.000000000001"), Ok(1));
        assert_eq!(pico("18446744.073709551615"), Ok(u64::MAX));
        for bad in [
            "", ".", "1.", ".5", "-1", "+1", "1e3", "0x1", "1,000", " 1", "NaN", "١",
        ] {
            assert!(
                matches!(pico(bad), Err(ParseUsdError::NotDecimal(_))),
                "{bad}"
            );
        }
        assert!(matches!(
            pico("0.0000000000001"),
            Err(ParseUsdError::TooFine(_))
        ));
        assert!(matches!(
            pico("18446744.073709551616"),
            Err(ParseUsdError::TooLarge(_))
        ));
    }

    #[test]
    fn dollars_are_shown_with_every_digit_that_matters() {
        assert_eq!(PicoUsd::from_pico(53_800_000_000).to_string(), "$0.0538");
        assert_eq!(PicoUsd::from_pico(2_000_000_000_000).to_string(), "$2.00");
        assert_eq!(PicoUsd::from_pico(1).to_string(), "$0.000000000001");
        assert_eq!(PicoUsd::ZERO.to_string(), "$0.00");
    }

    #[test]
    fn a_published_price_is_exact() {
        let rate = |text| Rate::from_usd_per_million(text).map(Rate::pico_per_token);
        assert_eq!(rate("0.125"), Ok(125_000));
        assert_eq!(rate("40"), Ok(40_000_000));
        assert!(matches!(rate("0.0000001"), Err(ParseUsdError::TooFine(_))));
    }
}
