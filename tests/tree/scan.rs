//! Scans of trees of every kind, quiet ones and ones that change.

mod cached;
mod kinds;
mod limits;
mod races;
mod rig;
mod writers;
