//! What the user hears of links, and what is known of a host that cannot be reached.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::record::RecordFile;
use crate::clock::SharedClock;
use crate::escape::escape_line;
use crate::proxy::Proxy;
use crate::report;
use crate::session::control::HostLink;
use crate::session::control::events::{Event, Events};
use crate::session::live::Live;
use crate::tunnel::session::LinkWatcher;
use crate::wire::link::SILENCE_MS;

/// Hears of links for the user.
#[derive(Debug)]
pub(super) struct Watcher {
    host: String,
    record: Mutex<RecordFile>,
    is_raw: Mutex<bool>,
    proxy: Arc<Proxy>,
    clock: SharedClock,
    lease: Duration,
    /// Since when no link works, on the clock that counts suspended time.
    lost: watch::Sender<Option<Duration>>,
    /// The same, for whoever asks the session.
    link: Arc<Mutex<Option<HostLink>>>,
    events: Events,
}

impl Watcher {
    pub(super) fn new(host: &str, record: RecordFile, live: &Live, lease: Duration) -> Self {
        let watcher = Self {
            host: host.to_owned(),
            record: Mutex::new(record),
            is_raw: Mutex::new(false),
            proxy: Arc::clone(&live.proxy),
            clock: Arc::clone(&live.clock),
            lease,
            lost: watch::Sender::new(None),
            link: Arc::clone(&live.link),
            events: live.events.clone(),
        };
        watcher.link(HostLink::Connecting);
        watcher
    }

    /// The link is this way now.
    pub(super) fn link(&self, now: HostLink) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.events.tell(|| Event::Link(now));
    }

    /// The host, as the user names it.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn record(&self) -> MutexGuard<'_, RecordFile> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the terminal is in raw mode, where a line ends with a carriage return too.
    pub(super) fn raw(&self, is_raw: bool) {
        *self.is_raw.lock().unwrap_or_else(PoisonError::into_inner) = is_raw;
    }

    /// Tells the user one line.
    pub(super) fn tell(&self, line: &str) {
        let is_raw = *self.is_raw.lock().unwrap_or_else(PoisonError::into_inner);
        let end = if is_raw { "\r\n" } else { "\n" };
        report::tell(&format!("labproxy: {}{end}", escape_line(line)));
    }

    /// Whether a link worked and none does now.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }

    /// Hears of each loss and each return.
    pub(super) fn losses(&self) -> watch::Receiver<Option<Duration>> {
        self.lost.subscribe()
    }

    /// Waits until no link works any more.
    pub(super) async fn loss(&self) {
        // The sender is in `self`, so waiting cannot fail.
        let mut losses = self.losses();
        let _lost = losses.wait_for(Option::is_some).await;
    }

    /// Tells what becomes of everything on a host that cannot be reached.
    pub(super) fn tell_unreached(&self) {
        let since = self.lost.borrow().unwrap_or_default();
        let away = self.clock.since_boot().saturating_sub(since);
        // The host may have noticed the loss so much later.
        let within = self.lease + Duration::from_millis(SILENCE_MS);
        self.tell(&format!(
            "{} cannot be reached; everything there ends when its lease is over, within {} s",
            self.host,
            within.saturating_sub(away).as_secs()
        ));
    }
}

impl LinkWatcher for Watcher {
    fn next_link(&self) -> Result<u64, String> {
        self.record()
            .next_link()
            .map_err(|failure| failure.message().to_owned())
    }

    fn lost(&self) {
        self.proxy.link_lost();
        self.link(HostLink::Lost);
        self.tell(&format!("link to {} lost, reconnecting …", self.host));
        self.lost.send_replace(Some(self.clock.since_boot()));
    }

    fn exposed(&self, port: u16) {
        self.tell(&format!(
            "warning: {0} forwards no unix sockets, so tcp_fallback opens 127.0.0.1:{port} there: any \
             local user of {0} can connect to it, which is of no use without the session's placeholder",
            self.host
        ));
    }

    fn back(&self, after: Duration) {
        self.tell(&format!(
            "link to {} back after {} s",
            self.host,
            after.as_secs()
        ));
        self.lost.send_replace(None);
        self.link(HostLink::Up);
    }
}
