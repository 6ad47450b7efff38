//! What the controller and its host side say to each other: frames over the two directions of one
//! ssh channel, the same types on both ends.
//!
//! A channel begins with a [`greeting`] of the host side, before which a login shell may have
//! printed anything. Then come length-capped [`frame`]s, each one message of a closed enum:
//! [`link`] between a controller and the supervisor of its session, [`mirror`] between the two ends of
//! a mirror, [`rsync`] before an rsync on the host, [`service`] for probes.
//! Both programs are of one build (the greeting says so), so that nothing is ever negotiated.

pub mod bytes;
pub mod delta;
pub mod digits;
pub mod frame;
pub mod greeting;
pub mod link;
pub mod mirror;
pub mod pieces;
pub mod rsync;
pub mod service;
