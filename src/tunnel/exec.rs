//! A program on the host, as its owner here sees it.

mod inlet;
pub(super) mod launch;
mod orders;
mod outlet;

use std::io::{Read, Write};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use self::orders::Orders;
use super::driver::Command;
use super::error::TunnelError;
use crate::wire::link::{ExecEnd, ExecSignal, StartError, WindowSize};

/// Where a remote program's three streams begin and end here. Each gets a thread of its own, so
/// that none waits for another.
pub struct Stdio {
    /// What it reads; nothing at all when `None`.
    pub stdin: Option<Box<dyn Read + Send>>,
    /// Where its output goes.
    pub stdout: Box<dyn Write + Send>,
    /// Where its error output goes.
    pub stderr: Box<dyn Write + Send>,
}

/// What is known of a remote program.
#[derive(Clone, Debug)]
pub enum Status {
    /// It is being started.
    Starting,
    /// It runs.
    Running {
        /// Its pid on the host.
        pid: u32,
    },
    /// It ended, and everything that it had written is passed on.
    Ended(ExecEnd),
    /// It cannot be started.
    NotStarted(StartError),
    /// The tunnel ended first.
    Lost(Arc<TunnelError>),
}

impl Status {
    /// Whether nothing more happens.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Starting | Self::Running { .. })
    }
}

/// A program on the host. Dropping it lets the program go on.
#[derive(Debug)]
pub struct RemoteExec {
    pub(super) orders: Arc<Orders>,
    /// The tunnel goes on as long as somebody may command it.
    pub(super) _commands: mpsc::Sender<Command>,
    pub(super) status: watch::Receiver<Status>,
}

impl RemoteExec {
    /// What is known now.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Waits until it runs, or will not.
    pub async fn started(&mut self) -> Status {
        self.wait_for(|status| !matches!(status, Status::Starting))
            .await
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> Status {
        self.wait_for(Status::is_final).await
    }

    async fn wait_for(&mut self, wanted: impl FnMut(&Status) -> bool) -> Status {
        match self.status.wait_for(wanted).await {
            Ok(status) => status.clone(),
            Err(_) => Status::Lost(Arc::new(TunnelError::Ending)),
        }
    }

    /// Sends a signal to its process group; with a terminal, to the foreground group there. When no
    /// link works it is sent when one does.
    pub fn signal(&self, signal: ExecSignal) {
        self.orders.signal(signal);
    }

    /// Tells it the size of the terminal here.
    pub fn resize(&self, size: WindowSize) {
        self.orders.resize(size);
    }
}
