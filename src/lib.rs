//! labproxy: exact bills and hard caps for coding agents that work on remote GPU machines.
//!
//! `ARCHITECTURE.md` has the picture; each module's first lines say what it is for. Without the
//! feature `controller` only what the program on the host needs is built: [`wire`], [`tree`] and `remote`.

pub mod processes;
#[cfg(target_os = "linux")]
pub mod remote;
pub mod tree;
pub mod wire;

#[cfg(feature = "controller")]
pub mod audit;
#[cfg(feature = "controller")]
pub mod cap;
#[cfg(feature = "controller")]
pub mod child;
#[cfg(feature = "controller")]
pub mod cli;
#[cfg(feature = "controller")]
pub mod clock;
#[cfg(feature = "controller")]
pub mod config;
#[cfg(feature = "controller")]
pub mod destination;
#[cfg(feature = "controller")]
pub mod escape;
#[cfg(feature = "controller")]
pub mod exclude_pattern;
#[cfg(feature = "controller")]
pub mod id;
#[cfg(feature = "controller")]
pub mod ledger;
#[cfg(feature = "controller")]
pub mod mirror;
#[cfg(feature = "controller")]
pub mod money;
#[cfg(feature = "controller")]
pub mod plain_file;
#[cfg(feature = "controller")]
pub mod pricing;
#[cfg(feature = "controller")]
pub mod proxy;
#[cfg(feature = "controller")]
pub mod quote;
#[cfg(feature = "controller")]
pub mod receipt;
#[cfg(feature = "controller")]
pub mod report;
#[cfg(feature = "controller")]
pub mod secret;
#[cfg(feature = "controller")]
pub mod session;
#[cfg(feature = "controller")]
pub mod table;
#[cfg(feature = "controller")]
pub mod tunnel;
#[cfg(feature = "controller")]
pub mod usage;
