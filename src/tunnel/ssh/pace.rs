//! How fast new connections are made: a server that gets many at once turns them away, and some
//! then turn away everything from the same address for minutes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Between two connections of this process: five a second, half of what servers take at once by
/// default (`MaxStartups 10:30:100`).
const APART: Duration = Duration::from_millis(200);

/// When the next connection may begin.
static NEXT: Mutex<Option<Instant>> = Mutex::new(None);

/// Waits until a connection may begin.
pub(super) async fn turn() {
    let at = {
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let at = next.map_or(now, |next| next.max(now));
        *next = Some(at + APART);
        at
    };
    tokio::time::sleep_until(at).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten connections at once begin over nearly two seconds.
    #[tokio::test(start_paused = true)]
    async fn connections_begin_one_after_the_other() {
        let start = Instant::now();
        for _ in 0..10 {
            turn().await;
        }
        assert!(start.elapsed() >= APART * 9, "{:?}", start.elapsed());
    }
}
