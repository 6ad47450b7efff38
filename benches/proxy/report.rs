//! From runs to the tables of `docs/benchmarks.md`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::load::{Run, quantile_us};

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

/// Every run: by workload, then by peer, one a round.
#[derive(Debug, Default)]
pub struct Results {
    runs: BTreeMap<(&'static str, &'static str), Vec<Run>>,
    rows: String,
}

impl Results {
    /// Keeps one run.
    pub fn add(&mut self, workload: &'static str, peer: &'static str, run: Run) {
        self.runs.entry((workload, peer)).or_default().push(run);
    }

    /// The runs of one peer under one workload, in order of the rounds.
    pub fn of(&self, workload: &'static str, peer: &'static str) -> &[Run] {
        self.runs.get(&(workload, peer)).map_or(&[], Vec::as_slice)
    }

    /// A value for each round from the runs of two peers in that round.
    pub fn paired(
        &self,
        workload: &'static str,
        peers: (&'static str, &'static str),
        value: impl Fn(&Run, &Run) -> f64,
    ) -> Option<Spread> {
        let (one, other) = (self.of(workload, peers.0), self.of(workload, peers.1));
        Spread::of(one.iter().zip(other).map(|(one, other)| value(one, other)))
    }

    /// Adds a row to the table of bars; a row that was not measured says so.
    pub fn row(&mut self, what: &str, against: &str, bar: Bar, value: Option<Spread>) {
        let (bar, verdict) = bar.judge(value.map_or(f64::NAN, |value| value.median));
        let (value, verdict) = match value {
            Some(value) => (value.to_string(), verdict),
            None => ("–".to_owned(), "not measured"),
        };
        let _ = writeln!(
            self.rows,
            "| {what} | {against} | {value} | {bar} | {verdict} |"
        );
    }

    /// The table of bars.
    pub fn bars(&self) -> String {
        format!(
            "| what | against | median (least–most) | must (aim) | |\n|---|---|---|---|---|\n{}",
            self.rows
        )
    }

    /// What was seen of each peer under `workload`; `units` is how many events one request carries.
    pub fn detail(&self, workload: &'static str, units: f64, unit: &str) -> String {
        let mut text = format!(
            "| {workload} | {unit}s/s | CPU per {unit}, µs | first byte p50, µs | p99, µs | whole p50, µs | p99, µs |\n|---|---|---|---|---|---|---|\n"
        );
        for ((_, peer), runs) in self.runs.range((workload, "")..=(workload, "\u{10ffff}")) {
            let of = |value: &dyn Fn(&Run) -> f64| {
                Spread::of(runs.iter().map(value))
                    .map_or_else(String::new, |spread| spread.to_string())
            };
            let cpu = if runs.iter().all(|run| run.cpu.is_zero()) {
                "–".to_owned()
            } else {
                of(&|run| run.cpu_us() / units)
            };
            let _ = writeln!(
                text,
                "| {peer} | {} | {cpu} | {} | {} | {} | {} |",
                of(&|run| run.rate() * units),
                of(&|run| quantile_us(&run.first_byte, 0.5)),
                of(&|run| quantile_us(&run.first_byte, 0.99)),
                of(&|run| quantile_us(&run.total, 0.5)),
                of(&|run| quantile_us(&run.total, 0.99)),
            );
        }
        text
    }
}
