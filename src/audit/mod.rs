//! Audits: a tool looks at exactly what was pulled, sandboxed, and what came of it is recorded.
//!
//! [`policy`] judges the generation's tree by what it says of itself; nothing of it is opened for
//! that. [`view`] is the tool's own copy, which is read again afterwards. [`sandbox`] is what keeps
//! the tool in, [`limits`] what it may use, [`tool`] starts it and waits; [`run`] goes from the pull to the verdict, and [`desk`]
//! makes the audits of one session wait for each other; what a tool may make of its copy is a
//! [`change`]. [`record`] is what the ledger is told,
//! [`history`] reads it back; [`changes`] and [`diff`] say what differs between two trees. No git
//! runs here: the copy's configuration would run with it.

pub mod change;
pub mod changes;
pub mod desk;
pub mod diff;
pub mod history;
pub mod limits;
pub mod policy;
pub mod record;
pub mod run;
pub mod sandbox;
pub mod tool;
pub mod view;
