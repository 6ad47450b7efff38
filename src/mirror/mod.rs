//! The controller's side of the mirror: what is to be moved and what is not, and where to.
//!
//! [`state`] is the directory of one mirror: its lock, what it is bound to and what both ends last
//! agreed on. [`store`] keeps what came from the host: contents by hash, and generations, each a
//! whole tree that is never changed again. [`journal`] makes the way of the workspace to another
//! tree one that a crash cannot leave half gone. [`encoding`] is the form that a whole tree has in
//! a file; [`durable`] is how files here are written so that they outlive a crash.
//!
//! [`plan`] says what has to be done so that one tree becomes another, and [`brakes`] when nothing
//! may be. [`excludes`] and [`secrets`] say what a push leaves alone and refuses, [`held_back`] what
//! of a pull waits for a person, [`links`] which symlinks lead out, [`places`] which directories are
//! no roots.
//!
//! [`way`] knows a run of ours that was cut off by what it left, at both ends.
//!
//! [`ends`] finds the two ends that somebody names, [`guard`] judges them, and [`open`] finds their state;
//! a [`pair::Pair`] is one mirror that is held. [`connect`] leads to the other end, until [`stop`] is told, and [`peer`] asks it, believing nothing. [`pull`] and [`push`] are what a
//! mirror does, [`ahead`] what makes a first pull quicker; [`watch`] hears when the next push is due. [`restore`] brings an older
//! generation back, [`copy_in`] files from elsewhere. [`survey`] only looks, and [`items`] says
//! what a plan does path by path. [`canary`] looks for the credential in what a push would send.
//! [`rsync`] moves the contents where `--engine rsync` was asked for. [`failure`] and [`mod@line`] are what
//! a person sees, [`json`] what a program does.

mod accept;
pub mod agreed;
pub mod ahead;
pub mod brakes;
pub mod canary;
pub mod connect;
pub mod copy_in;
pub mod durable;
pub mod encoding;
pub mod ends;
pub mod error;
pub mod excludes;
pub mod failure;
pub mod far;
mod far_tree;
mod glance;
pub mod guard;
pub mod held_back;
mod ignore_files;
pub mod items;
pub mod journal;
pub mod json;
pub mod line;
pub mod links;
pub mod open;
pub mod pair;
pub mod peer;
pub mod places;
pub mod plan;
pub mod progress;
pub mod pull;
pub mod push;
mod pushing;
pub mod receive;
mod recover;
pub mod restore;
pub mod rsync;
pub mod secrets;
mod sending;
pub mod state;
pub mod stop;
pub mod store;
pub mod survey;
mod two_trees;
pub mod watch;
pub mod way;
mod workspace;
