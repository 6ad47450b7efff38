//! Sessions: an agent under a cap, here or on a host, its owner process, and control from outside.
//!
//! [`start::Plan`] checks everything, [`launch::run`] makes it live, waits and ends it; [`listing`],
//! [`changes`] and [`resume`] are for whoever comes later. `docs/sessions.md` tells users the same.

pub mod agent;
mod answers;
pub mod audits;
pub mod binary;
pub mod books;
pub mod carry;
pub mod changes;
pub mod control;
pub mod detach;
pub mod ending;
pub mod environment;
pub mod inside;
pub mod launch;
pub mod listing;
pub mod live;
pub mod lookup;
mod orphans;
pub mod owner;
pub mod receipt;
pub mod receipt_file;
pub mod remote;
pub mod resume;
pub mod runner;
pub mod running;
pub mod settings_file;
pub mod shim;
pub mod signals;
pub mod slot;
pub mod start;
mod terminal;
pub mod watched;
pub mod workspace;

pub use crate::processes;
