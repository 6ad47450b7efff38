//! A reader's waker that tells whether it was woken since the reader last looked.
//!
//! What a reader reads from wakes it also for what the reader has itself just caused. Such wakes
//! cost a turn of its task and find nothing, so they only count while the reader sleeps; and what
//! has not rung since it was found empty need not be looked at again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The doorbell of one reader.
pub(crate) struct Doorbell {
    bell: Arc<Bell>,
    waker: Waker,
}

struct Bell {
    /// The reader's task.
    task: AtomicWaker,
    has_rung: AtomicBool,
    is_asleep: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // In one order for all: either this sees a sleeper, or who falls asleep sees the ring.
        self.has_rung.store(true, Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl Doorbell {
    /// One that nobody has rung.
    pub(crate) fn new() -> Self {
        let bell = Arc::new(Bell {
            task: AtomicWaker::new(),
            has_rung: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
        });
        Self {
            waker: Waker::from(bell.clone()),
            bell,
        }
    }

    /// What rings it.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Whether it has rung since it was last asked; the reader is awake from here on.
    pub(crate) fn answer(&self) -> bool {
        self.bell.is_asleep.store(false, Ordering::SeqCst);
        self.bell.has_rung.swap(false, Ordering::SeqCst)
    }

    /// The reader waits for the next ring; one that came since the last answer wakes it at once.
    pub(crate) fn sleep(&self, cx: &Context<'_>) {
        self.bell.task.register(cx.waker());
        self.bell.is_asleep.store(true, Ordering::SeqCst);
        if self.bell.has_rung.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_wakes_a_sleeper_only_and_loses_no_ring() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        let woken = || count.0.load(Ordering::Relaxed);
        let bell = Doorbell::new();
        assert!(!bell.answer());
        bell.waker().wake_by_ref();
        assert!(bell.answer() && !bell.answer());
        assert_eq!(woken(), 0, "rung while awake");
        bell.sleep(&cx);
        assert_eq!(woken(), 0);
        bell.waker().wake_by_ref();
        assert_eq!(woken(), 1);
        assert!(bell.answer());
        bell.waker().wake_by_ref();
        bell.sleep(&cx);
        assert_eq!(woken(), 2, "rung before it fell asleep");
    }
}
