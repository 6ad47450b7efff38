//! Ending a mirror's work early, from another thread: an interrupt does not wait for a tree that is
//! read or a host that is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// Told once, heard by all that work. What is cut off is taken up by the next push or pull.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    token: CancellationToken,
    /// The same, for code that only looks.
    flag: Arc<AtomicBool>,
}

impl Stop {
    /// Tells it.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Relaxed);
        self.token.cancel();
    }

    /// Whether it was told.
    pub fn is_stopped(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves when it is told.
    pub async fn stopped(&self) {
        self.token.cancelled().await;
    }

    /// Set once it was told.
    pub fn flag(&self) -> &AtomicBool {
        &self.flag
    }
}
