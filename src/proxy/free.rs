//! Calls that cost nothing: `count_tokens` and the models' list. They are only counted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;

use super::Proxy;
use super::apart::apart;
use super::exchange::answer_headers;
use super::gate;
use super::headers;
use super::leak::LeakGuard;
use super::messages::path_of;
use super::read;
use super::refusal::{Refusal, UpstreamTrouble};
use super::relay::{Flow, ProxyBody, Relay};
use super::serve::refuse;
use super::upstream::{Lease, Outgoing, SendError};
use crate::secret::Credential;

/// Longest wait for the head of a free call's answer; counting a megabyte takes a few seconds.
const HEAD_LIMIT: Duration = Duration::from_mins(1);

/// Answers `POST /v1/messages/count_tokens`.
pub(crate) async fn count_tokens(
    proxy: &Arc<Proxy>,
    parts: Parts,
    body: Incoming,
) -> Response<ProxyBody> {
    proxy.counted.free();
    let answered = async {
        let body = read::read(&proxy.bodies, &parts.headers, body).await?;
        let bytes = body.bytes.clone();
        let judge = proxy.clone();
        apart(move || gate::check_count_tokens(&bytes, &judge.settings.gate))
            .await
            .ok_or(Refusal::Incomplete)??;
        let slot = proxy.counts.client_slot().await;
        let _slot = slot.ok_or(Refusal::CountsBusy)?;
        forward(proxy, &parts, Method::POST, body.bytes.clone()).await
    };
    answered
        .await
        .unwrap_or_else(|refusal| refuse(proxy, &refusal))
}

/// Answers `GET /v1/models` and `GET /v1/models/{id}`.
pub(crate) async fn models(proxy: &Arc<Proxy>, parts: Parts) -> Response<ProxyBody> {
    proxy.counted.free();
    forward(proxy, &parts, Method::GET, Bytes::new())
        .await
        .unwrap_or_else(|refusal| refuse(proxy, &refusal))
}

/// Sends and relays; a refused credential is read again as it is for messages.
async fn forward(
    proxy: &Arc<Proxy>,
    parts: &Parts,
    method: Method,
    body: Bytes,
) -> Result<Response<ProxyBody>, Refusal> {
    let mut credential = proxy.credentials.current();
    let mut answer = send(proxy, parts, &method, &body, &credential).await?;
    if answer.0.status() == StatusCode::UNAUTHORIZED {
        if let Some(fresh) = proxy.credentials.refreshed(&credential).await {
            credential = fresh;
            answer = send(proxy, parts, &method, &body, &credential).await?;
        }
        if answer.0.status() == StatusCode::UNAUTHORIZED {
            proxy.counted.credential_refused();
        }
    }
    let (response, lease) = answer;
    let (head, incoming) = response.into_parts();
    let _time = proxy.skew.observe(&head.headers, &*proxy.parts.clock);
    if head.status.is_redirection() {
        let trouble = UpstreamTrouble::Redirect(head.status.as_u16());
        return Err(Refusal::Upstream(trouble));
    }
    if head.status.is_informational() {
        return Err(Refusal::Upstream(UpstreamTrouble::Broken));
    }
    let is_framed = headers::is_framed(head.version, &head.headers);
    let headers = answer_headers(head.headers, head.status, &credential);
    let flow = Flow::new(
        incoming,
        is_framed,
        LeakGuard::new(credential),
        None,
        lease,
        proxy.times.silence,
    );
    let mut relayed = Response::new(ProxyBody::Relay(Relay::new(flow, proxy.clone())));
    *relayed.status_mut() = head.status;
    *relayed.headers_mut() = headers;
    Ok(relayed)
}

async fn send(
    proxy: &Arc<Proxy>,
    parts: &Parts,
    method: &Method,
    body: &Bytes,
    credential: &Arc<Credential>,
) -> Result<(Response<Incoming>, Lease), Refusal> {
    let mut is_second = false;
    loop {
        let gate = &proxy.settings.gate;
        let mut headers = headers::forward(&parts.headers, credential.kind(), gate)?.headers;
        credential.apply(&mut headers);
        let ready = proxy.upstream.ready().await.map_err(|error| {
            tracing::warn!(%error, "the upstream cannot be reached");
            Refusal::Upstream(UpstreamTrouble::Unreachable(error.step().to_owned()))
        })?;
        let sent = ready.send(Outgoing {
            method: method.clone(),
            path: path_of(parts),
            headers,
            body: body.clone(),
        });
        match tokio::time::timeout(HEAD_LIMIT, sent).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(SendError::NotSent | SendError::Unprocessed)) if !is_second => is_second = true,
            Ok(Err(_)) => return Err(Refusal::Upstream(UpstreamTrouble::Broken)),
            Err(_) => return Err(Refusal::Upstream(UpstreamTrouble::TimedOut)),
        }
    }
}
