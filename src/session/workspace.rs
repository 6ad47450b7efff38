//! A session's workspace: a directory here that the agent has on its host.
//!
//! [`record`] is what is written down of it, [`mirror`] opens its mirror by the session's name,
//! [`plan`] is what was checked before a session begins, and [`alone`] keeps two sessions out of one
//! directory. [`syncing`] is the workspace of a running session, [`work`] what is done with both ends,
//! [`asked`] what its owner is asked to do with them meanwhile, and [`home`] brings here what a session left that nobody owns any more.

pub mod alone;
pub mod asked;
pub mod home;
pub mod mirror;
pub mod plan;
pub mod record;
pub mod syncing;
mod told;
pub mod work;
