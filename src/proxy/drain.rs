//! What happens after a client has left: the rest of the answer is read for its usage.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::relay::{Flow, ProxyBody};
use super::{OnClientGone, Proxy};
use crate::usage::BodyEnd;

/// The client left while its answer was on the way.
pub(crate) fn left(proxy: &Arc<Proxy>, mut flow: Box<Flow>) {
    let Some(charge) = flow.charge() else {
        return;
    };
    charge.client().leave();
    if proxy.kill.is_cancelled() {
        return;
    }
    match proxy.settings.on_client_gone {
        OnClientGone::Cancel => {
            if let Some(charge) = flow.take_charge() {
                charge.keep("the client left, and on_client_gone is cancel");
            }
        }
        // A set of tasks that is closed drops the flow, which keeps the hold.
        OnClientGone::Drain => {
            let deadline = Instant::now() + proxy.times.drain;
            let _started = proxy.tasks.spawn(drain(proxy.clone(), flow, deadline));
        }
    }
}

/// Reads to the end, the deadline, or the end of the session.
async fn drain(proxy: Arc<Proxy>, mut flow: Box<Flow>, deadline: Instant) {
    let read = async {
        while let Some(Ok(_discarded)) = std::future::poll_fn(|cx| flow.poll_bytes(cx)).await {}
    };
    let in_time = tokio::select! {
        done = tokio::time::timeout_at(deadline, read) => done.is_ok(),
        // Dropping the flow keeps the hold.
        () = proxy.kill.cancelled() => return,
    };
    if !in_time {
        flow.end(BodyEnd::TimedOut);
    }
}

/// A future whose client may leave before it has a response. What it awaits goes on without the
/// client, for the same time as an answer would be read on.
pub(crate) struct Detachable<F>
where
    F: Future<Output = http::Response<ProxyBody>> + Send + 'static,
{
    exchange: Option<Pin<Box<F>>>,
    proxy: Arc<Proxy>,
    client: super::charge::ClientPresence,
}

impl<F> Detachable<F>
where
    F: Future<Output = http::Response<ProxyBody>> + Send + 'static,
{
    pub(crate) fn new(
        exchange: F,
        proxy: Arc<Proxy>,
        client: super::charge::ClientPresence,
    ) -> Self {
        Self {
            exchange: Some(Box::pin(exchange)),
            proxy,
            client,
        }
    }
}

impl<F> Future for Detachable<F>
where
    F: Future<Output = http::Response<ProxyBody>> + Send + 'static,
{
    type Output = http::Response<ProxyBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(exchange) = self.exchange.as_mut() else {
            return Poll::Pending;
        };
        let output = std::task::ready!(exchange.as_mut().poll(cx));
        self.exchange = None;
        Poll::Ready(output)
    }
}

impl<F> Drop for Detachable<F>
where
    F: Future<Output = http::Response<ProxyBody>> + Send + 'static,
{
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.take() else {
            return;
        };
        self.client.leave();
        if self.proxy.kill.is_cancelled()
            || self.proxy.settings.on_client_gone == OnClientGone::Cancel
        {
            // Dropping the exchange keeps the hold.
            return;
        }
        let proxy = self.proxy.clone();
        let deadline = Instant::now() + proxy.times.drain;
        let _started = self.proxy.tasks.spawn(async move {
            let answer = tokio::select! {
                answer = tokio::time::timeout_at(deadline, exchange) => answer,
                () = proxy.kill.cancelled() => return,
            };
            let Ok(answer) = answer else { return };
            if let ProxyBody::Relay(relay) = answer.into_body()
                && let Some(flow) = relay.into_flow()
            {
                drain(proxy, flow, deadline).await;
            }
        });
    }
}
