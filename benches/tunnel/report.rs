//! From values to tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::bars::Spread;
use crate::chain::Peer;
use crate::load::What;

/// Less than this, µs, is less than can be told apart from nothing.
const LEAST_ADDED: f64 = 1.0;

/// Values of each round, in order of time.
#[derive(Debug, Default)]
pub struct Results(BTreeMap<(What, Peer), Vec<Vec<f64>>>);

impl Results {
    pub fn add(&mut self, what: What, peer: Peer, values: Vec<f64>) {
        self.0.entry((what, peer)).or_default().push(values);
    }

    fn of(&self, what: What, peer: Peer, share: f64) -> Vec<f64> {
        let rounds = self.0.get(&(what, peer)).map_or(&[][..], Vec::as_slice);
        rounds
            .iter()
            .map(|values| quantile(values, share))
            .collect()
    }

    /// A value of each round from two peers' in that round.
    fn paired(
        &self,
        what: What,
        share: f64,
        peers: [Peer; 2],
        value: impl Fn(f64, f64) -> f64,
    ) -> Vec<f64> {
        let [one, other] = peers.map(|peer| self.of(what, peer, share));
        one.iter()
            .zip(other)
            .map(|(one, other)| value(*one, other))
            .collect()
    }

    /// What a peer adds to a connection in each round: the median of the differences between
    /// connections that followed each other.
    fn added(&self, what: What, peer: Peer) -> Vec<f64> {
        let rounds = |peer| self.0.get(&(what, peer)).into_iter().flatten();
        rounds(peer)
            .zip(rounds(Peer::Bare))
            .map(|(one, bare)| {
                let each: Vec<f64> = one.iter().zip(bare).map(|(one, bare)| one - bare).collect();
                quantile(&each, 0.5)
            })
            .collect()
    }

    pub fn tables(&self) -> String {
        let mut text = String::from("| what | bare | forwarder | socat |\n|---|---|---|---|\n");
        for (what, share, name) in [
            (
                What::Connections,
                0.5,
                "connection, request, answer: p50, µs",
            ),
            (What::Connections, 0.99, "p99, µs"),
            (What::Lone, 0.5, "a lone one: p50, µs"),
            (What::Events, 0.5, "event: p50, µs"),
            (What::Events, 0.99, "p99, µs"),
            (What::Download, 0.5, "to the host, MiB/s"),
            (What::Upload, 0.5, "from the host, MiB/s"),
        ] {
            let cells = Peer::ALL.map(|peer| spread(&self.of(what, peer, share)));
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
        text.push_str("\n| added by | forwarder | socat |\n|---|---|---|\n");
        for (what, share, name) in [
            (What::Connections, 0.99, "connection: p99, µs"),
            (What::Events, 0.5, "event: p50, µs"),
            (What::Events, 0.99, "p99, µs"),
        ] {
            let added = [Peer::Forwarder, Peer::Socat].map(|peer| {
                spread(&self.paired(what, share, [peer, Peer::Bare], |one, bare| one - bare))
            });
            let _ = writeln!(text, "| {name} | {} |", added.join(" | "));
        }
        for (what, name) in [
            (What::Connections, "connection"),
            (What::Lone, "a lone one"),
        ] {
            let peers = [Peer::Forwarder, Peer::Socat];
            let [own, socat] = peers.map(|peer| spread(&self.added(what, peer)));
            let _ = writeln!(
                text,
                "| {name}: median of the differences, µs | {own} | {socat} |"
            );
        }
        text
    }

    /// How many times what the forwarder adds to a connection socat adds.
    pub fn less_than_socat(&self, what: What) -> Option<Spread> {
        let [own, socat] = [Peer::Forwarder, Peer::Socat].map(|peer| self.added(what, peer));
        let ratio = |(own, socat): (f64, f64)| socat / own.max(LEAST_ADDED);
        Spread::of(own.into_iter().zip(socat).map(ratio))
    }

    /// The forwarder's throughput, of bare.
    pub fn of_bare(&self, what: What) -> Option<Spread> {
        let peers = [Peer::Forwarder, Peer::Bare];
        Spread::of(self.paired(what, 0.5, peers, |one, bare| one / bare))
    }
}

/// The value below which `share` of the values lie.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * share) as usize).min(values.len() - 1);
    values[at]
}

/// Median, least and greatest.
pub fn spread(values: &[f64]) -> String {
    Spread::of(values.iter().copied()).map_or_else(|| "–".to_owned(), |spread| spread.to_string())
}
