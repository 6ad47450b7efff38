//! A stream of a session's events to one subscriber, as Server-Sent Events. What a subscriber does not
//! read in time is lost to it, and holds up nobody.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::events::{Event, Feed, of_notice};

/// After so long without an event a subscriber hears that the session is there; forward proxies and
/// clients take half a minute of silence for a lost connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The body of an answer that goes on.
#[derive(Debug)]
pub(super) struct EventBody(mpsc::Receiver<Bytes>);

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.get_mut().0.poll_recv(cx);
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Writes events with their numbers, one at a time: the next one is looked for when this one was taken.
struct Writer {
    out: mpsc::Sender<Bytes>,
    number: u64,
}

/// What came next.
enum Next {
    Told(&'static str, Value),
    /// So many were lost.
    Missed(u64),
    /// Nothing to tell.
    Nothing,
    /// Nothing for a while.
    Silence,
    /// The last one.
    Last(&'static str, Value),
    /// Nobody tells or hears any more.
    Over,
}

impl Writer {
    /// Whether it was taken.
    async fn event(&mut self, name: &str, value: &Value) -> bool {
        self.number = self.number.saturating_add(1);
        let text = format!("id: {}\nevent: {name}\ndata: {value}\n\n", self.number);
        self.out.send(Bytes::from(text)).await.is_ok()
    }
}

/// The body that tells `feed`, and the work that fills it: until the last event, until nobody reads, or
/// until it is `cut`.
pub(super) fn open(
    feed: Feed,
    cut: CancellationToken,
) -> (EventBody, impl Future<Output = ()> + Send) {
    // One: what waits longer waits in the feed, which is bounded and counts what it loses.
    let (out, body) = mpsc::channel(1);
    let writer = Writer { out, number: 0 };
    (EventBody(body), tell(feed, writer, cut))
}

async fn tell(mut feed: Feed, mut writer: Writer, cut: CancellationToken) {
    let status = serde_json::to_value(&feed.status).unwrap_or_default();
    if !writer.event("status", &status).await {
        return;
    }
    loop {
        let next = tokio::select! {
            biased;
            () = writer.out.closed() => Next::Over,
            () = cut.cancelled() => Next::Over,
            // Before the session's own events: the last one of those is the last of all.
            notice = feed.notices.recv() => match notice {
                Ok(notice) => {
                    of_notice(notice).map_or(Next::Nothing, |(name, value)| Next::Told(name, value))
                }
                Err(RecvError::Lagged(count)) => Next::Missed(count),
                Err(RecvError::Closed) => Next::Over,
            },
            event = feed.events.recv() => match event {
                Ok(event) => {
                    let is_last = matches!(event, Event::End(_));
                    let (name, value) = event.told();
                    if is_last { Next::Last(name, value) } else { Next::Told(name, value) }
                }
                Err(RecvError::Lagged(count)) => Next::Missed(count),
                Err(RecvError::Closed) => Next::Over,
            },
            () = tokio::time::sleep(KEEP_ALIVE) => Next::Silence,
        };
        let is_taken = match next {
            Next::Told(name, value) => writer.event(name, &value).await,
            Next::Missed(count) => {
                // The numbers of those that were lost are not given to others.
                writer.number = writer.number.saturating_add(count);
                writer.event("missed", &json!({ "events": count })).await
            }
            Next::Nothing => true,
            Next::Silence => {
                let comment = Bytes::from_static(b": still here\n\n");
                writer.out.send(comment).await.is_ok()
            }
            Next::Last(name, value) => {
                writer.event(name, &value).await;
                false
            }
            Next::Over => false,
        };
        if !is_taken {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;
    use tokio::time::Instant;

    use super::super::events::Events;
    use super::*;

    /// Who only waits hears every fifteen seconds that the session is there.
    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_every_fifteen_seconds() {
        let status = r#"{"session":"ses_aaaaaaaaaaaaaaaaaaaaaaaaaa","pid":1,"state":"running",
            "cap_pico_usd":0,"spent_pico_usd":0,"held_pico_usd":0,"waiting":0,"agent_pid":null}"#;
        let (notices, events) = (broadcast::Sender::new(4), Events::default());
        let feed = Feed {
            notices: notices.subscribe(),
            events: events.watch(),
            status: serde_json::from_str(status).unwrap(),
        };
        let (mut body, telling) = open(feed, CancellationToken::new());
        let telling = tokio::spawn(telling);
        let begun = Instant::now();
        let first = body.0.recv().await.unwrap();
        assert!(first.starts_with(b"id: 1\nevent: status\ndata: {"));
        for number in 1..=3 {
            let next = body.0.recv().await.unwrap();
            assert_eq!(&next[..], b": still here\n\n");
            assert_eq!(begun.elapsed().as_secs(), 15 * number);
        }
        drop(body);
        telling.await.unwrap();
    }
}
