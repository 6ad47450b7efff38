//! A session whose agent works on another machine: the proxy and the ledger stay here.
//!
//! [`plan`] is what was checked, [`open`] connects and starts the agent, [`agent`] is the agent as
//! the main loop sees it, [`confirm`] asks the host what is left, and [`record`] lets a later
//! command find the host again.

pub mod agent;
pub mod confirm;
pub mod not_started;
pub mod open;
pub mod plan;
pub mod record;
mod screen;
pub mod shim;
mod watcher;
