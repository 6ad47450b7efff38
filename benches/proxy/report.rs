//! From runs to the tables of `docs/benchmarks.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::bars::{Bars, Spread};
use crate::load::{Run, quantile_us};

/// Every run: by workload, then by peer, one a round.
#[derive(Debug, Default)]
pub struct Results {
    runs: BTreeMap<(&'static str, &'static str), Vec<Run>>,
    /// The table of bars.
    pub bars: Bars,
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
