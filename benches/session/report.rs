//! From costs to tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::bars::Spread;
use crate::meter::Cost;

/// A step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// From the command to the first byte of the agent: its workspace is there by then.
    Start,
    /// The first audit: the whole tree comes.
    First,
    /// An audit after which nothing changed.
    Unchanged,
    /// An audit after a hundred files were edited.
    Edited,
    /// From the agent's end to that of the session: its work is here by then, and proven.
    End,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// `labproxy session start`.
    Session,
    /// `labproxy audit run -- true`: pull, policy, a private copy, the sandbox, both proofs, the record.
    Audit,
    /// `labproxy mirror pull --session --generation-only`: what an audit pulls.
    Pull,
    /// `rsync -a --checksum --delete`.
    RsyncChecksum,
    /// `rsync -a --delete`, which believes sizes and times.
    Rsync,
}

impl Step {
    const ALL: [Self; 5] = [
        Self::Start,
        Self::First,
        Self::Unchanged,
        Self::Edited,
        Self::End,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start to first byte",
            Self::First => "first audit",
            Self::Unchanged => "audit, unchanged",
            Self::Edited => "audit, 100 edits",
            Self::End => "end",
        }
    }
}

impl Who {
    const ALL: [Self; 5] = [
        Self::Session,
        Self::Audit,
        Self::Pull,
        Self::RsyncChecksum,
        Self::Rsync,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Audit => "whole audit",
            Self::Pull => "its pull alone",
            Self::RsyncChecksum => "rsync --checksum",
            Self::Rsync => "rsync",
        }
    }
}

/// Costs of each round.
#[derive(Debug, Default)]
pub struct Results(BTreeMap<(Step, Who), Vec<Cost>>);

impl Results {
    pub fn add(&mut self, step: Step, who: Who, cost: Cost) {
        self.0.entry((step, who)).or_default().push(cost);
    }

    /// Wall and processor seconds.
    pub fn table(&self) -> String {
        let names = Who::ALL.map(Who::name).join(" | ");
        let mut text = format!("| step | {names} |\n|---|---|---|---|---|---|\n");
        for step in Step::ALL {
            let cells = Who::ALL.map(|who| self.cell(step, who)).join(" | ");
            let _ = writeln!(text, "| {} | {cells} |", step.name());
        }
        text.push_str("\nEach: wall s / CPU s, medians.\n");
        text
    }

    fn cell(&self, step: Step, who: Who) -> String {
        let Some(costs) = self.0.get(&(step, who)) else {
            return "–".to_owned();
        };
        let median = |value: fn(&Cost) -> f64| {
            let mut values: Vec<f64> = costs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let (wall, cpu) = (median(|cost| cost.wall), median(|cost| cost.cpu));
        format!("{wall:.2} / {cpu:.2}")
    }

    /// How many times as long rsync took, round by round.
    pub fn ratios(&self) -> String {
        let mut text = String::from(
            "| rsync's time ÷ labproxy's, of one round | median (least–most) |\n|---|---|\n",
        );
        for (step, ours) in [
            (Step::Start, Who::Session),
            (Step::First, Who::Audit),
            (Step::Unchanged, Who::Audit),
            (Step::Unchanged, Who::Pull),
            (Step::Edited, Who::Audit),
            (Step::Edited, Who::Pull),
        ] {
            for theirs in [Who::RsyncChecksum, Who::Rsync] {
                let walls = |who| self.0.get(&(step, who)).map_or(&[][..], Vec::as_slice);
                let pairs = walls(theirs).iter().zip(walls(ours));
                let ratios = pairs.map(|(theirs, ours)| theirs.wall / ours.wall);
                let Some(spread) = Spread::of(ratios) else {
                    continue;
                };
                let (what, ours, theirs) = (step.name(), ours.name(), theirs.name());
                let _ = writeln!(text, "| {what}: {theirs} ÷ {ours} | {spread} |");
            }
        }
        text
    }
}
