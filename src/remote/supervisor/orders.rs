//! What the controller says is done.

use std::collections::btree_map::Entry;

use crate::remote::clock::Moment;
use crate::remote::exec::Exec;
use crate::remote::launches::Order;
use crate::remote::link::Came;
use crate::remote::spec::Around;
use crate::remote::tell;
use crate::wire::bytes::ByteString;
use crate::wire::frame;
use crate::wire::link::{ExecId, ExecProgress, ExecState, FromHost, Refusal, ToHost};

use super::Supervisor;
use super::ending::{Cause, GRACE_MAX};

impl Supervisor {
    /// Reads the link and does what it says.
    pub(super) fn serve_link(&mut self) {
        let Some(link) = &mut self.link else { return };
        let came = link.read();
        let inbox = link.take_inbox();
        let mut rest = inbox.as_slice();
        let mut refusal = None;
        // The link may be gone after a message.
        while self.link.is_some() && refusal.is_none() {
            match frame::split(rest) {
                Ok(None) => break,
                Ok(Some((message, behind))) => {
                    rest = behind;
                    refusal = match frame::decode::<ToHost<'_>>(message) {
                        Ok(message) => self.hear(&message).err(),
                        Err(error) => Some(nonsense(&error)),
                    };
                }
                Err(error) => refusal = Some(nonsense(&error)),
            }
        }
        let done = inbox.len() - rest.len();
        if let Some(link) = &mut self.link {
            link.put_back(inbox, done);
        }
        if refusal.is_some() || came == Came::End {
            self.drop_link(refusal);
        }
    }

    fn hear(&mut self, message: &ToHost<'_>) -> Result<(), Refusal> {
        if let ToHost::Attach { execs } = message
            && !self.is_attached()
        {
            return self.attach(execs);
        }
        if !self.is_attached() {
            return Err(nonsense(&"a link begins with what the controller has"));
        }
        match self.launches.take(message)? {
            Some(order) => self.obey(order),
            None => Ok(()),
        }
    }

    fn obey(&mut self, order: Order<'_>) -> Result<(), Refusal> {
        match order {
            Order::Pong(number) => self.say(&FromHost::Pong(number)),
            Order::Forward(end) => self.forward(end),
            Order::Start(id, spec) => {
                let socket = self.place.agent_socket();
                let around = Around {
                    session_directory: &self.session_directory,
                    login: &self.login,
                    group: self.group.as_ref(),
                    port: self.port,
                    socket: &socket,
                };
                let exec = Exec::start(id, spec, &around);
                self.execs.insert(id, exec);
                self.repeat(id);
            }
            Order::Repeat(id) => self.repeat(id),
            Order::Stdin(id, bytes) => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.stdin.push(self.private.opened(), bytes);
                }
            }
            Order::StdinEnd(id, length) => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.stdin.finish(length);
                }
            }
            Order::Received(id, kind, offset) => {
                let exec = self.execs.get_mut(&id);
                let output = exec.and_then(|exec| exec.output(kind));
                if output.is_some_and(|output| !output.acknowledge(offset)) {
                    return Err(nonsense(&"output was received that was never sent"));
                }
            }
            Order::CloseOutput(id, kind) => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.close_output(kind);
                }
            }
            Order::Signal(id, signal) => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.signal(signal);
                }
            }
            Order::Resize(id, size) => {
                if let Some(exec) = self.execs.get(&id) {
                    exec.resize(size);
                }
            }
            Order::Forget(id) => self.forget(id),
            Order::End(grace_ms) => {
                let grace = std::time::Duration::from_millis(grace_ms).min(GRACE_MAX);
                self.begin_ending(Cause::Asked, grace, Moment::now());
            }
        }
        Ok(())
    }

    /// Says what was said of a launch before.
    fn repeat(&mut self, id: ExecId) {
        let messages = self.execs.get(&id).map(Exec::again).unwrap_or_default();
        for message in messages {
            self.say(&message);
        }
    }

    /// The link begins: tells what is here, and goes on where the controller is.
    fn attach(&mut self, execs: &[ExecProgress]) -> Result<(), Refusal> {
        for id in self.launches.attach(execs) {
            self.forget(id);
        }
        let mut states = Vec::new();
        for progress in execs {
            let Some(heard) = self.launches.heard(progress.exec) else {
                continue;
            };
            let exec = self.execs.get_mut(&progress.exec);
            let stdin = exec.as_ref().map_or(0, |exec| exec.stdin.taken());
            if let Some(exec) = exec {
                let [stdout, stderr] = &mut exec.outputs;
                if !stdout.resume(progress.stdout) || !stderr.resume(progress.stderr) {
                    return Err(nonsense(&"output that was received before is wanted again"));
                }
            }
            states.push(ExecState {
                exec: progress.exec,
                spec: heard.spec_length,
                started: heard.started,
                stdin,
                signals: heard.signals,
            });
        }
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        // No refusal of a directory: that says that there is no supervisor.
        let directory =
            self.place
                .link_directory(link.number())
                .map_err(|error| Refusal::Failed {
                    what: format!(
                        "{} cannot be used for a link: {error}",
                        self.place.path().display()
                    ),
                })?;
        link.attached = true;
        let ids: Vec<ExecId> = states.iter().map(|state| state.exec).collect();
        self.say(&FromHost::Attached {
            forward_directory: ByteString::from(directory.as_os_str()),
            port: self.port,
            session_directory: ByteString::from(self.session_directory.as_os_str()),
            user: self.login.user(),
            execs: states,
        });
        for id in ids {
            self.repeat(id);
        }
        Ok(())
    }

    /// A launch is over for the controller: what still runs of it is ended.
    fn forget(&mut self, id: ExecId) {
        if let Entry::Occupied(entry) = self.execs.entry(id) {
            let mut exec = entry.remove();
            exec.signal(crate::wire::link::ExecSignal::Kill);
        }
        if let Err(error) = self.private.forget(id) {
            tell(&format!("private files of launch {} stay: {error}", id.0));
        }
    }
}

fn nonsense(what: &dyn std::fmt::Display) -> Refusal {
    Refusal::Protocol {
        what: what.to_string(),
    }
}
