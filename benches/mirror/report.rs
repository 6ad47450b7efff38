//! From costs to tables and bars.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::bars::{Bar, Bars, Spread};
use crate::meter::Cost;
use crate::trees::Tree;

/// What is done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Nothing is there yet.
    Initial,
    /// Nothing changed.
    Nothing,
    /// 4 KiB more at the end of one file.
    Append,
    /// 100 bytes changed here and there, with the times as they were.
    Edits,
    /// A directory, or the one file, has another name.
    Rename,
}

impl Op {
    pub const ALL: [Self; 5] = [
        Self::Initial,
        Self::Nothing,
        Self::Append,
        Self::Edits,
        Self::Rename,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial copy",
            Self::Nothing => "no-op",
            Self::Append => "append",
            Self::Edits => "100 edits",
            Self::Rename => "rename",
        }
    }
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// `rsync` over ssh.
    Rsync,
    /// The same through a connection that is open: ssh's own master.
    RsyncConnected,
    /// `labproxy mirror pull`.
    Command,
    /// The library, with its connection open.
    Resident,
    /// Nobody: both ends are only hashed, at the same time.
    Pass,
}

/// A row and its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub Tree, pub Op, pub Who);

/// Costs of each round.
#[derive(Debug, Default)]
pub struct Results(BTreeMap<Key, Vec<Cost>>);

impl Results {
    pub fn add(&mut self, key: Key, cost: Cost) {
        self.0.entry(key).or_default().push(cost);
    }

    fn walls(&self, key: Key) -> Vec<f64> {
        let costs = self.0.get(&key).map_or(&[][..], Vec::as_slice);
        costs.iter().map(|cost| cost.wall).collect()
    }

    /// A value of each round from the wall times of two in it.
    fn paired(&self, one: Key, other: Key, value: impl Fn(f64, f64) -> f64) -> Option<Spread> {
        let other = self.walls(other);
        Spread::of(
            self.walls(one)
                .into_iter()
                .zip(other)
                .map(|(one, other)| value(one, other)),
        )
    }

    pub fn table(&self) -> String {
        let mut text = String::from(
            "| tree, operation | both passes | rsync | rsync, connected | command | resident |\n\
             |---|---|---|---|---|---|\n",
        );
        let mut rows: Vec<(Tree, Op)> = self.0.keys().map(|key| (key.0, key.1)).collect();
        rows.dedup();
        for (tree, op) in rows {
            let cells = [
                Who::Pass,
                Who::Rsync,
                Who::RsyncConnected,
                Who::Command,
                Who::Resident,
            ]
            .map(|who| self.cell(Key(tree, op, who)));
            let _ = writeln!(
                text,
                "| {}, {} | {} |",
                tree.name(),
                op.name(),
                cells.join(" | ")
            );
        }
        text.push_str("\nEach: wall s / CPU s / MB on the wire, medians.\n");
        text
    }

    fn cell(&self, key: Key) -> String {
        let Some(costs) = self.0.get(&key) else {
            return "–".to_owned();
        };
        let median = |value: fn(&Cost) -> f64| {
            let mut values: Vec<f64> = costs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let (wall, cpu) = (median(|cost| cost.wall), median(|cost| cost.cpu));
        let wire = median(|cost| cost.wire) / 1e6;
        if key.2 == Who::Pass {
            return format!("{wall:.2} / {cpu:.2}");
        }
        format!("{wall:.2} / {cpu:.2} / {wire:.2}")
    }

    /// The rows of the speed table.
    pub fn bars(&self, place: &str, bars: &mut Bars) {
        let key = |tree, op, who| Key(tree, op, who);
        let (a, b) = (Tree::A, Tree::B);
        let quiet = key(a, Op::Nothing, Who::Resident);
        let ratio = |one: f64, other: f64| one / other;
        let row = |bars: &mut Bars, what: &str, against: &str, bar, value| {
            bars.row(&format!("{what}, {place}"), against, bar, value);
        };
        row(
            bars,
            "unchanged 20k files, resident",
            "both BLAKE3 passes at once, ×",
            Bar::AtMost(1.5, 1.2),
            self.paired(quiet, key(a, Op::Nothing, Who::Pass), ratio),
        );
        row(
            bars,
            "unchanged 20k files, resident",
            "rsync --checksum, × faster",
            Bar::AtLeast(2.0, 3.0),
            self.paired(key(a, Op::Nothing, Who::Rsync), quiet, ratio),
        );
        row(
            bars,
            "rename of 10k files",
            "its no-op, + s",
            Bar::AtMost(0.3, 0.1),
            self.paired(key(a, Op::Rename, Who::Resident), quiet, |one, other| {
                one - other
            }),
        );
        let large = key(b, Op::Nothing, Who::Resident);
        for (op, what) in [
            (Op::Append, "1 GiB, append"),
            (Op::Edits, "1 GiB, 100 edits"),
        ] {
            row(
                bars,
                what,
                "its no-op, ×",
                Bar::AtMost(2.0, 1.3),
                self.paired(key(b, op, Who::Resident), large, ratio),
            );
        }
        let bar = if place == "tmpfs" {
            Bar::AtLeast(1.2, 1.5)
        } else {
            Bar::AtLeast(1.0, 1.2)
        };
        for tree in Tree::ALL {
            let first = |who| key(tree, Op::Initial, who);
            let what = format!("initial copy, {}", tree.name());
            // Each with a login of its own, and both without.
            let value = self.paired(first(Who::Rsync), first(Who::Command), ratio);
            row(bars, &what, "rsync -a, × faster", bar, value);
            let value = self.paired(first(Who::RsyncConnected), first(Who::Resident), ratio);
            row(bars, &what, "the same, both connected", bar, value);
        }
    }
}

pub fn growth_head() -> String {
    "| files | initial copy, s | pass, s | scan, s | no-op, s | no-op per 1,000 files, ms |\n\
     |---|---|---|---|---|---|\n"
        .to_owned()
}

pub fn growth_row(files: u64, first: f64, [pass, scan, again]: [f64; 3]) -> String {
    let each = again * 1e6 / files as f64;
    format!("| {files} | {first:.2} | {pass:.3} | {scan:.3} | {again:.3} | {each:.1} |\n")
}
