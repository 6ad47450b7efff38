//! The way to the host: ssh, the program that is sent there, the forward, and what runs through
//! them.

pub mod carrier;
pub mod deploy;
mod driver;
pub mod end;
pub mod error;
pub mod exec;
pub mod host;
pub mod host_check;
mod link;
pub mod phase;
pub mod program;
pub mod resolve;
pub mod service;
pub mod session;
pub mod ssh;
pub mod transport;

pub use link::Attached;
