//! Work on large bodies: on threads of their own, so that no stream waits behind it, and few at
//! once, so that what it needs beside the bodies stays small.

use tokio::sync::Semaphore;

/// Pieces of work at once. Each may take some 40 MiB beside its body: a tape of spans, or a
/// decoder's window and output.
const AT_ONCE: usize = 4;

static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

/// Runs `work` on a thread of its own when there is a place; `None` when it did not come to an end.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let place = PLACES.acquire().await.ok()?;
    let work = move || {
        // Held until the work is done, also when nobody waits for it any more.
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(work).await.ok()
}
