//! Sessions on one machine: an agent under a cap, its owner process, and control from outside.

pub mod agent;
pub mod control;
pub mod environment;
pub mod owner;
pub mod processes;
pub mod settings_file;
pub mod signals;
