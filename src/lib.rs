//! labproxy: exact bills and hard caps for coding agents that work on remote GPU machines.
//!
//! `ARCHITECTURE.md` has the picture; each module's first lines say what it is for.

pub mod cap;
pub mod cli;
pub mod clock;
pub mod config;
pub mod escape;
pub mod id;
pub mod ledger;
pub mod money;
pub mod plain_file;
pub mod pricing;
pub mod proxy;
pub mod receipt;
pub mod report;
pub mod secret;
pub mod session;
pub mod table;
pub mod usage;
