//! `mirror`: the host's end of a mirror. It reads a tree, sends what is asked of it, and executes
//! steps on it; what is to happen the controller decides.
//!
//! The same end serves a mirror within one machine: it speaks over any two descriptors.

mod delta;
mod glance;
mod landing;
mod listing;
mod marks;
mod order;
mod root;
mod sending;
mod staging;

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde::Serialize;

use self::order::Orders;
use super::controller::{hear_from, say};
use super::login::Login;
use crate::wire::frame;
use crate::wire::greeting::{Nonce, greeting};
use crate::wire::mirror::{ABSENCE_MS, FromMirror, ToMirror};

/// How long a controller may say nothing.
const ORDER_LIMIT: Duration = Duration::from_millis(ABSENCE_MS);

/// Greets, and carries out orders until the controller leaves.
///
/// # Errors
/// As [`carry_out`].
pub fn serve(nonce: Nonce, login: &Login) -> Result<(), String> {
    say(&greeting(nonce))?;
    // Not the library's standard output, which looks for ends of lines in what is no text.
    let cannot = |error: rustix::io::Errno| format!("the channel cannot be used: {error}");
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(cannot)?;
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(cannot)?;
    carry_out(input, output, login)
}

/// Carries out orders that come over `input` until it ends, or until one makes no sense or cannot be
/// carried out: the controller is told why, and nobody else. Answers over `output`.
///
/// # Errors
/// When the channel cannot be used, or brings what is no order.
pub fn carry_out(input: OwnedFd, output: OwnedFd, login: &Login) -> Result<(), String> {
    let mut line = Line {
        input,
        output: output.into(),
        frame: Vec::new(),
    };
    let mut orders = Orders::new(login);
    while let Some(order) = line.hear()? {
        let order: ToMirror<'_> = frame::decode(&order).map_err(|error| error.to_string())?;
        if let Err(why) = orders.carry_out(order, &mut line) {
            return line.say(&FromMirror::Refused { why });
        }
    }
    Ok(())
}

/// The two directions of a channel to a controller.
#[derive(Debug)]
struct Line {
    input: OwnedFd,
    output: File,
    /// The last frame that was said: its memory is used again.
    frame: Vec<u8>,
}

impl Line {
    /// The next order's bytes; `None` when the controller has left.
    fn hear(&self) -> Result<Option<Vec<u8>>, String> {
        hear_from(self.input.as_fd(), ORDER_LIMIT)
    }

    fn say<M: Serialize>(&mut self, message: &M) -> Result<(), String> {
        self.frame.clear();
        frame::encode(message, &mut self.frame).map_err(|error| error.to_string())?;
        let written = self.output.write_all(&self.frame);
        written.map_err(|error| format!("the controller cannot be told: {error}"))
    }
}
