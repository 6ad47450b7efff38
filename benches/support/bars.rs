//! The table of bars: what was measured, beside what it must be and aims at.

use std::fmt::{self, Write as _};

/// Median, least and greatest of the rounds.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    /// Of one value a round; nothing of no rounds.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self {
            median,
            least,
            most,
        })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.median.abs() {
            value if value < 10.0 => 2,
            value if value < 100.0 => 1,
            _ => 0,
        };
        write!(
            f,
            "{:.digits$} ({:.digits$}–{:.digits$})",
            self.median, self.least, self.most
        )
    }
}

/// Which way a row counts.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Smaller is better: must be at most the first, aims at the second.
    AtMost(f64, f64),
    /// Larger is better: must be at least the first, aims at the second.
    AtLeast(f64, f64),
}

impl Bar {
    fn judge(self, value: f64) -> (String, &'static str) {
        let (text, must, aim) = match self {
            Self::AtMost(must, aim) => (format!("≤ {must} (≤ {aim})"), value <= must, value <= aim),
            Self::AtLeast(must, aim) => {
                (format!("≥ {must} (≥ {aim})"), value >= must, value >= aim)
            }
        };
        (
            text,
            if aim {
                "aim met"
            } else if must {
                "must met"
            } else {
                "MISSED"
            },
        )
    }
}

/// The rows of the table.
#[derive(Debug, Default)]
pub struct Bars(String);

impl Bars {
    /// Adds a row; one that was not measured says so.
    pub fn row(&mut self, what: &str, against: &str, bar: Bar, value: Option<Spread>) {
        let (bar, verdict) = bar.judge(value.map_or(f64::NAN, |value| value.median));
        let (value, verdict) = match value {
            Some(value) => (value.to_string(), verdict),
            None => ("–".to_owned(), "not measured"),
        };
        let _ = writeln!(
            self.0,
            "| {what} | {against} | {value} | {bar} | {verdict} |"
        );
    }
}

impl fmt::Display for Bars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = "| what | against | median (least–most) | must (aim) | |\n|---|---|---|---|---|";
        write!(f, "{head}\n{}", self.0)
    }
}
