//! labproxy: exact bills and hard caps for coding agents that work on remote GPU machines.
//!
//! `ARCHITECTURE.md` has the picture; each module's first lines say what it is for.

pub mod cap;
pub mod clock;
pub mod id;
pub mod ledger;
pub mod money;
pub mod pricing;
pub mod proxy;
pub mod secret;
pub mod usage;
