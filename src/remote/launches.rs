//! What of a session's messages is new: launches, their specs, input and signals, by their
//! positions. What came before is recognised; what cannot follow ends the link. Nothing here
//! touches a process, so that any sequence of messages can be tried.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::link::{
    ExecId, ExecProgress, ExecSignal, ExecSpec, ForwardEnd, LAUNCHES_MAX, OutputKind, Refusal,
    SPEC_MAX, ToHost, WINDOW, WindowSize,
};

/// Bytes of specs that are not whole yet, all together.
const ASSEMBLED_MAX: u64 = 2 * SPEC_MAX;

/// What a message asks for, once what came before is taken off.
#[derive(Debug, PartialEq, Eq)]
pub enum Order<'a> {
    /// Answer with this number.
    Pong(u64),
    /// The proxy is behind this.
    Forward(&'a ForwardEnd),
    /// Start it; `None` when its spec is no spec.
    Start(ExecId, Option<Box<ExecSpec>>),
    /// Say again whether it started.
    Repeat(ExecId),
    /// The next bytes of its input.
    Stdin(ExecId, &'a [u8]),
    /// Its input ends.
    StdinEnd(ExecId, u64),
    /// So much of an output arrived.
    Received(ExecId, OutputKind, u64),
    /// Nobody reads this output any more.
    CloseOutput(ExecId, OutputKind),
    /// Signal it.
    Signal(ExecId, ExecSignal),
    /// Its terminal has another size.
    Resize(ExecId, WindowSize),
    /// Forget it.
    Forget(ExecId),
    /// End everything, with this many milliseconds between TERM and KILL.
    End(u64),
}

/// What the messages said of a launch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The spec, while it is not whole.
    spec: Vec<u8>,
    /// Bytes of the spec that came.
    pub spec_length: u64,
    /// Whether it was to be started.
    pub started: bool,
    /// Bytes of input that came.
    stdin: u64,
    /// The input's length, once that is known.
    stdin_end: Option<u64>,
    /// Bytes of input that were taken; `None` when no more will be.
    stdin_taken: Option<u64>,
    /// The last signal's number.
    pub signals: u64,
}

/// All launches of a session.
#[derive(Debug, Default)]
pub struct Launches {
    known: BTreeMap<ExecId, Heard>,
    forgotten: Forgotten,
}

/// Ids that must not be used again: from the first to the second of each pair. They usually rise,
/// so that one pair holds them all.
#[derive(Debug, Default)]
struct Forgotten(BTreeMap<u32, u32>);

impl Forgotten {
    fn add(&mut self, exec: ExecId) {
        if self.has(exec) {
            return;
        }
        let (mut first, mut last) = (exec.0, exec.0);
        if let Some((&start, &end)) = self.0.range(..first).next_back()
            && end.checked_add(1) == Some(first)
        {
            first = start;
        }
        if let Some(end) = last.checked_add(1).and_then(|next| self.0.remove(&next)) {
            last = end;
        }
        self.0.insert(first, last);
    }

    fn has(&self, exec: ExecId) -> bool {
        let before = self.0.range(..=exec.0).next_back();
        before.is_some_and(|(_, last)| exec.0 <= *last)
    }
}

fn nonsense(what: &str) -> Refusal {
    Refusal::Protocol {
        what: what.to_owned(),
    }
}

impl Launches {
    /// What a message asks for; `None` when it came before, or nothing is left to do.
    ///
    /// # Errors
    /// When the message cannot follow what came before.
    pub fn take<'a>(&mut self, message: &'a ToHost<'_>) -> Result<Option<Order<'a>>, Refusal> {
        match message {
            ToHost::Attach { .. } => Err(nonsense("a second beginning of a link")),
            ToHost::Ping(number) => Ok(Some(Order::Pong(*number))),
            ToHost::Pong(_) => Ok(None),
            ToHost::Forward(end) => Ok(Some(Order::Forward(end))),
            ToHost::End { grace_ms } => Ok(Some(Order::End(*grace_ms))),
            ToHost::Spec { exec, offset, part } => self.spec(*exec, *offset, part).map(|()| None),
            ToHost::Start { exec, length } => self.start(*exec, *length),
            ToHost::Stdin {
                exec,
                offset,
                bytes,
            } => self.stdin(*exec, *offset, bytes),
            ToHost::StdinEnd { exec, length } => self.stdin_end(*exec, *length),
            ToHost::Received {
                exec,
                output,
                offset,
            } => Ok(self
                .running(*exec)?
                .map(|_| Order::Received(*exec, *output, *offset))),
            ToHost::CloseOutput { exec, output } => Ok(self
                .running(*exec)?
                .map(|_| Order::CloseOutput(*exec, *output))),
            ToHost::Signal {
                exec,
                number,
                signal,
            } => Ok(self.running(*exec)?.and_then(|heard| {
                let is_new = *number > heard.signals;
                heard.signals = heard.signals.max(*number);
                is_new.then_some(Order::Signal(*exec, *signal))
            })),
            ToHost::Resize { exec, size } => {
                Ok(self.running(*exec)?.map(|_| Order::Resize(*exec, *size)))
            }
            ToHost::Forget { exec } => {
                let known = self.known.remove(exec).is_some();
                self.forgotten.add(*exec);
                Ok(known.then_some(Order::Forget(*exec)))
            }
        }
    }

    /// A new link names what its controller knows; gives what is forgotten thereby.
    pub fn attach(&mut self, execs: &[ExecProgress]) -> Vec<ExecId> {
        let named: BTreeSet<ExecId> = execs.iter().map(|progress| progress.exec).collect();
        let unnamed: Vec<ExecId> = self
            .known
            .keys()
            .filter(|exec| !named.contains(exec))
            .copied()
            .collect();
        for exec in &unnamed {
            self.known.remove(exec);
            self.forgotten.add(*exec);
        }
        unnamed
    }

    /// What was heard of a launch.
    pub fn heard(&self, exec: ExecId) -> Option<&Heard> {
        self.known.get(&exec)
    }

    /// So much of its input was taken; `None`: nothing more will be.
    pub fn stdin_taken(&mut self, exec: ExecId, taken: Option<u64>) {
        if let Some(heard) = self.known.get_mut(&exec) {
            heard.stdin_taken = taken;
        }
    }

    /// A launch that was started; `None` for one that is forgotten.
    fn running(&mut self, exec: ExecId) -> Result<Option<&mut Heard>, Refusal> {
        if self.forgotten.has(exec) {
            return Ok(None);
        }
        match self.known.get_mut(&exec) {
            Some(heard) if heard.started => Ok(Some(heard)),
            _ => Err(nonsense("a message for a program that was not started")),
        }
    }

    fn spec(&mut self, exec: ExecId, offset: u64, part: &[u8]) -> Result<(), Refusal> {
        if self.forgotten.has(exec) {
            return Ok(());
        }
        let assembled: u64 = self.known.values().map(|heard| length(&heard.spec)).sum();
        if !self.known.contains_key(&exec) && self.known.len() >= LAUNCHES_MAX {
            return Err(nonsense("too many programs at once"));
        }
        let heard = self.known.entry(exec).or_insert_with(|| Heard {
            stdin_taken: Some(0),
            ..Heard::default()
        });
        if heard.started {
            return Ok(());
        }
        let new = unseen(heard.spec_length, offset, part)?;
        if heard.spec_length + length(new) > SPEC_MAX || assembled + length(new) > ASSEMBLED_MAX {
            return Err(nonsense(
                "a command line that is longer than any kernel takes",
            ));
        }
        heard.spec.extend_from_slice(new);
        heard.spec_length += length(new);
        Ok(())
    }

    fn start(&mut self, exec: ExecId, spec: u64) -> Result<Option<Order<'static>>, Refusal> {
        if self.forgotten.has(exec) {
            return Ok(None);
        }
        let Some(heard) = self.known.get_mut(&exec) else {
            return Err(nonsense("the start of a program without a command line"));
        };
        if heard.started {
            return Ok(Some(Order::Repeat(exec)));
        }
        if heard.spec_length != spec {
            return Err(nonsense(
                "the start of a program whose command line is not whole",
            ));
        }
        heard.started = true;
        let bytes = std::mem::take(&mut heard.spec);
        let spec = match postcard::take_from_bytes(&bytes) {
            Ok((spec, [])) => Some(Box::new(spec)),
            _ => None,
        };
        Ok(Some(Order::Start(exec, spec)))
    }

    fn stdin<'a>(
        &mut self,
        exec: ExecId,
        offset: u64,
        bytes: &'a [u8],
    ) -> Result<Option<Order<'a>>, Refusal> {
        let Some(heard) = self.running(exec)? else {
            return Ok(None);
        };
        let Some(taken) = heard.stdin_taken else {
            return Ok(None);
        };
        let new = unseen(heard.stdin, offset, bytes)?;
        let end = heard.stdin + length(new);
        if end > taken + WINDOW {
            return Err(nonsense("more input than the window lets through"));
        }
        if heard.stdin_end.is_some_and(|last| end > last) {
            return Err(nonsense("input behind its end"));
        }
        heard.stdin = end;
        Ok((!new.is_empty()).then_some(Order::Stdin(exec, new)))
    }

    fn stdin_end(&mut self, exec: ExecId, end: u64) -> Result<Option<Order<'static>>, Refusal> {
        let Some(heard) = self.running(exec)? else {
            return Ok(None);
        };
        if heard.stdin_taken.is_none() || heard.stdin_end == Some(end) {
            return Ok(None);
        }
        if heard.stdin != end || heard.stdin_end.is_some() {
            return Err(nonsense("an end of input elsewhere than at its end"));
        }
        heard.stdin_end = Some(end);
        Ok(Some(Order::StdinEnd(exec, end)))
    }
}

/// The bytes at `offset` that are behind the first `have` of their stream.
fn unseen(have: u64, offset: u64, bytes: &[u8]) -> Result<&[u8], Refusal> {
    let Some(seen) = have.checked_sub(offset) else {
        return Err(nonsense("a gap in a stream"));
    };
    if offset.checked_add(length(bytes)).is_none() {
        return Err(nonsense("a stream that is too long"));
    }
    let seen = usize::try_from(seen).unwrap_or(usize::MAX);
    Ok(bytes.get(seen..).unwrap_or_default())
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
