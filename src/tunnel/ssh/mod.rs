//! The ssh client of the system as a child of ours: one connection, its channels and forwards.
//!
//! [`config`] writes a configuration in which our settings come first, [`check`] asks ssh what it
//! makes of it, [`control`] is the private place of the control socket, [`said`] takes in what ssh
//! says, [`failure`] makes of it why there is no link, and [`master`] holds the connection.

pub mod check;
pub mod config;
pub mod control;
pub mod ended;
pub mod failure;
pub mod hostkey;
pub mod identity;
pub mod local;
pub mod master;
pub mod pace;
pub mod said;
