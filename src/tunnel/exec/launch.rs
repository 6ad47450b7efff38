//! What the tunnel keeps of a remote program: enough to go on exactly with any new link.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::inlet::Inlet;
use super::orders::Orders;
use super::outlet::Outlet;
use super::{Status, Stdio};
use crate::tunnel::error::TunnelError;
use crate::tunnel::link::Outgoing;
use crate::wire::link::{
    ExecEnd, ExecId, ExecProgress, ExecState, OutputKind, ToHost, WINDOW, WindowSize,
};

/// Bytes of a stream in one frame: small enough that a heartbeat behind two of them is in time on
/// a slow line.
const PART: usize = 64 * 1024;
/// An output is acknowledged at the latest after so many bytes.
const ACKNOWLEDGE_EVERY: u64 = WINDOW / 16;

/// A program that was asked for.
pub(in crate::tunnel) struct Launch {
    id: ExecId,
    spec: Vec<u8>,
    spec_sent: u64,
    start_sent: bool,
    status: watch::Sender<Status>,
    stdin: Arc<Inlet>,
    stdin_sent: u64,
    stdin_end_sent: bool,
    stdout: Output,
    stderr: Output,
    orders: Arc<Orders>,
    /// The number of the last signal that this link has.
    signals_sent: u64,
    /// The size that this link has.
    size_sent: Option<WindowSize>,
    exited: Option<Exited>,
}

struct Output {
    kind: OutputKind,
    outlet: Arc<Outlet>,
    acknowledged: u64,
    /// Whether this link was told that nobody reads it any more.
    close_sent: bool,
}

#[derive(Clone, Copy)]
struct Exited {
    end: ExecEnd,
    stdout: u64,
    stderr: u64,
}

impl Launch {
    /// A program whose streams begin to move at once.
    ///
    /// # Errors
    /// When there are no threads.
    pub(in crate::tunnel) fn new(
        id: ExecId,
        spec: Vec<u8>,
        streams: Stdio,
        wake: &Arc<Notify>,
    ) -> std::io::Result<(Self, watch::Receiver<Status>)> {
        let (status, seen) = watch::channel(Status::Starting);
        let stdin = Inlet::new(Arc::clone(wake));
        match streams.stdin {
            Some(source) => stdin.read_from(source)?,
            None => stdin.end(),
        }
        let output = |kind, sink| {
            let outlet = Outlet::new(Arc::clone(wake));
            outlet.write_to(sink)?;
            Ok::<_, std::io::Error>(Output {
                kind,
                outlet,
                acknowledged: 0,
                close_sent: false,
            })
        };
        let launch = Self {
            id,
            spec,
            spec_sent: 0,
            start_sent: false,
            status,
            stdin,
            stdin_sent: 0,
            stdin_end_sent: false,
            stdout: output(OutputKind::Stdout, streams.stdout)?,
            stderr: output(OutputKind::Stderr, streams.stderr)?,
            orders: Orders::new(Arc::clone(wake)),
            signals_sent: 0,
            size_sent: None,
            exited: None,
        };
        Ok((launch, seen))
    }

    pub(in crate::tunnel) fn id(&self) -> ExecId {
        self.id
    }

    /// What a new link tells the host of it.
    pub(in crate::tunnel) fn progress(&self) -> ExecProgress {
        ExecProgress {
            exec: self.id,
            stdout: self.stdout.outlet.passed(),
            stderr: self.stderr.outlet.passed(),
        }
    }

    /// Whether the host was ever told to start it.
    pub(in crate::tunnel) fn is_known_there(&self) -> bool {
        !matches!(*self.status.borrow(), Status::Starting)
    }

    /// Goes on where the host is; `None`: it knows nothing of it.
    pub(in crate::tunnel) fn go_on(&mut self, there: Option<&ExecState>) -> Result<(), String> {
        self.spec_sent = there.map_or(0, |there| there.spec);
        self.start_sent = there.is_some_and(|there| there.started);
        self.stdin_sent = there.map_or(0, |there| there.stdin);
        self.stdin_end_sent = false;
        self.size_sent = None;
        for output in [&mut self.stdout, &mut self.stderr] {
            output.acknowledged = output.outlet.passed();
            output.close_sent = false;
        }
        let signals = there.map_or(0, |there| there.signals);
        self.orders.had(signals);
        self.signals_sent = signals;
        if self.stdin.taken(self.stdin_sent) {
            Ok(())
        } else {
            Err("input was taken that was never sent".to_owned())
        }
    }

    /// What its owner asks for goes through this.
    pub(in crate::tunnel) fn orders(&self) -> Arc<Orders> {
        Arc::clone(&self.orders)
    }

    /// It runs.
    pub(in crate::tunnel) fn started(&mut self, pid: u32) {
        self.status.send_if_modified(|status| {
            let is_new = matches!(status, Status::Starting);
            if is_new {
                *status = Status::Running { pid };
            }
            is_new
        });
        // It cannot be needed again: a host that started it has it.
        self.spec = Vec::new();
    }

    /// It will not run.
    pub(in crate::tunnel) fn over(&mut self, status: Status) {
        self.stdin.close();
        self.stdout.outlet.end();
        self.stderr.outlet.end();
        self.status.send_if_modified(|now| {
            let is_new = !now.is_final();
            if is_new {
                *now = status;
            }
            is_new
        });
    }

    /// The tunnel ends: what is known of its end is told.
    pub(in crate::tunnel) fn abandon(&mut self, why: &Arc<TunnelError>) {
        let status = match self.exited {
            Some(exited) => Status::Ended(exited.end),
            None => Status::Lost(Arc::clone(why)),
        };
        self.over(status);
    }

    /// Whether this is the program's first byte.
    pub(in crate::tunnel) fn output(
        &mut self,
        kind: OutputKind,
        offset: u64,
        bytes: &[u8],
    ) -> Result<bool, String> {
        let is_first = self.stdout.outlet.received() == 0 && self.stderr.outlet.received() == 0;
        self.of(kind)
            .outlet
            .receive(offset, bytes)
            .map_err(|_| "output is missing".to_owned())?;
        Ok(is_first)
    }

    fn of(&mut self, kind: OutputKind) -> &mut Output {
        match kind {
            OutputKind::Stdout => &mut self.stdout,
            OutputKind::Stderr => &mut self.stderr,
        }
    }

    pub(in crate::tunnel) fn stdin_taken(&mut self, offset: u64) -> Result<(), String> {
        if self.stdin.taken(offset) {
            Ok(())
        } else {
            Err("input was taken that was never sent".to_owned())
        }
    }

    pub(in crate::tunnel) fn stdin_closed(&mut self) {
        self.stdin.close();
    }

    pub(in crate::tunnel) fn exited(&mut self, end: ExecEnd, stdout: u64, stderr: u64) {
        self.exited = Some(Exited {
            end,
            stdout,
            stderr,
        });
        self.stdin.close();
    }

    /// Whether it has ended and everything that it wrote is passed on.
    pub(in crate::tunnel) fn is_whole(&self) -> bool {
        self.exited.is_some_and(|exited| {
            let stdout = &self.stdout.outlet;
            let stderr = &self.stderr.outlet;
            let passed = |outlet: &Outlet, length| outlet.passed() >= length || outlet.is_broken();
            passed(stdout, exited.stdout) && passed(stderr, exited.stderr)
        })
    }

    /// Whether its owner knows all that there will be.
    pub(in crate::tunnel) fn is_over(&self) -> bool {
        self.status.borrow().is_final()
    }

    /// Tells its owner of the end; what follows is dropped.
    pub(in crate::tunnel) fn finish(&mut self) {
        if let Some(exited) = self.exited {
            self.over(Status::Ended(exited.end));
        }
    }

    /// Queues what the host should hear, at most one part of each stream; whether it was anything.
    pub(in crate::tunnel) fn fill(&mut self, out: &mut Outgoing) -> bool {
        let before = out.len();
        if !self.start_sent {
            self.fill_spec(out);
            // Whatever follows means nothing before.
            return out.len() > before;
        }
        while let Some((number, signal)) = self.orders.after(self.signals_sent) {
            self.signals_sent = number;
            out.push(&ToHost::Signal {
                exec: self.id,
                number,
                signal,
            });
        }
        let size = self.orders.size();
        if let Some(size) = size.filter(|_| size != self.size_sent) {
            self.size_sent = Some(size);
            out.push(&ToHost::Resize {
                exec: self.id,
                size,
            });
        }
        for output in [&mut self.stdout, &mut self.stderr] {
            output.acknowledge(self.id, out);
            output.close(self.id, out);
        }
        self.fill_stdin(out);
        out.len() > before
    }

    fn fill_spec(&mut self, out: &mut Outgoing) {
        let begin = usize::try_from(self.spec_sent).unwrap_or(usize::MAX);
        let rest = self.spec.get(begin..).unwrap_or_default();
        let part = rest.get(..PART).unwrap_or(rest);
        if part.is_empty() {
            self.start_sent = true;
            out.push(&ToHost::Start {
                exec: self.id,
                length: self.spec_sent,
            });
            return;
        }
        out.push(&ToHost::Spec {
            exec: self.id,
            offset: self.spec_sent,
            part: part.into(),
        });
        self.spec_sent = self
            .spec_sent
            .saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
    }

    fn fill_stdin(&mut self, out: &mut Outgoing) {
        let mut bytes = Vec::new();
        let count = self.stdin.copy_from(self.stdin_sent, PART, &mut bytes);
        if count > 0 {
            out.push(&ToHost::Stdin {
                exec: self.id,
                offset: self.stdin_sent,
                bytes: bytes.into(),
            });
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            self.stdin_sent = self.stdin_sent.saturating_add(count);
        }
        if let Some(length) = self.stdin.end_at(self.stdin_sent)
            && !self.stdin_end_sent
        {
            self.stdin_end_sent = true;
            out.push(&ToHost::StdinEnd {
                exec: self.id,
                length,
            });
        }
    }
}

impl Output {
    /// Says how far the output was passed on, when that is worth a message.
    fn acknowledge(&mut self, exec: ExecId, out: &mut Outgoing) {
        let passed = self.outlet.passed();
        let new = passed.saturating_sub(self.acknowledged);
        if new >= ACKNOWLEDGE_EVERY || (new > 0 && self.outlet.is_dry()) {
            self.acknowledged = passed;
            out.push(&ToHost::Received {
                exec,
                output: self.kind,
                offset: passed,
            });
        }
    }

    /// Says that nobody reads the output any more, so that the program is not left writing.
    fn close(&mut self, exec: ExecId, out: &mut Outgoing) {
        if self.outlet.is_broken() && !self.close_sent {
            self.close_sent = true;
            out.push(&ToHost::CloseOutput {
                exec,
                output: self.kind,
            });
        }
    }
}
