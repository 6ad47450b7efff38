//! A directory tree as both ends of the mirror see it: names, entries, hashes, and how a tree is
//! read and changed without ever leaving it.
//!
//! [`path`] are names that cannot escape; [`entry`] and [`directory`] are what a tree holds, with
//! one canonical form and one hash ([`directory::Directory::hash`]); [`content`] names the bytes of
//! files. [`root`] and [`beneath`] open things inside a tree through descriptors, and [`scan`]
//! reads a whole tree by them; [`step`] is one change of a tree, and [`apply`] executes a list of
//! them. Nothing here knows who the other end is.

pub mod apply;
pub mod beneath;
pub mod content;
pub mod directory;
pub mod entry;
pub mod limits;
pub mod mirror_id;
pub mod path;
pub mod root;
pub mod scan;
pub mod stamp;
pub mod step;
pub mod write_back;
mod zeros;
