//! Zeros, as many as a group has: for holes that are hashed and holes that are left.

use std::sync::LazyLock;

/// How many there are.
pub(super) const ZEROS: usize = 64 * 1024;

/// Not in the program's file, which travels to every host.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; ZEROS]);

/// The zeros.
pub(super) fn zeros() -> &'static [u8] {
    &BYTES
}
