//! The shim: an executable file that an SDK takes for the CLI, while the CLI runs on the host.
//!
//! The [`script`] answers `-v` itself and else becomes the [`client`], which carries its command
//! line, standard streams and signals over the session's `shim.sock` and ends as the remote program
//! ends. The session's side, [`service`], holds one [`conversation`] a launch. Both speak the
//! messages of `wire::link`, with an [`ExecSpec`](crate::wire::link::ExecSpec) that says what is
//! wanted here: the session makes of it what the host gets.

pub mod client;
pub mod conversation;
pub mod frames;
pub mod script;
pub mod service;
mod streams;

use crate::wire::link::ExecId;

/// The hidden command that the script becomes.
pub const SHIM_COMMAND: &str = "__shim";
/// Bytes of a stream that may be on their way between a shim and its session: a socket of this
/// machine needs no more, and what the tunnel keeps comes on top.
pub const LOCAL_WINDOW: u64 = 1024 * 1024;
/// Most data in one message here.
const PART: usize = 64 * 1024;
/// A shim's socket carries one launch, and this is its name there.
const ONLY: ExecId = ExecId(0);
