//! One request: who asks, what for, and which part answers.
//!
//! The order is a rule: the placeholder before anything else, the route before the body, the body
//! before the price, the price before the credential.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::peers::Peer;
use super::refusal::Refusal;
use super::relay::ProxyBody;
use super::route::Route;
use super::{Proxy, auth, free, messages, read};
use crate::id::RequestId;

/// Answers one request.
pub(crate) async fn serve(
    proxy: &Arc<Proxy>,
    peer: &Arc<Peer>,
    request: Request<Incoming>,
) -> Response<ProxyBody> {
    let (parts, body) = request.into_parts();
    let route = Route::of(&parts.method, &parts.uri, &parts.headers);
    if matches!(route, Ok(Route::Hello)) {
        return hello(peer);
    }
    if !auth::is_authenticated(&parts.headers, &proxy.placeholder) {
        proxy.counted.unauthenticated();
        read::discard_strangers(body, &parts.headers).await;
        let mut response = refuse(proxy, &Refusal::Unauthenticated);
        close_stranger(peer, &mut response);
        return response;
    }
    if !proxy.peers.recognise(peer) {
        read::discard_strangers(body, &parts.headers).await;
        let mut response = refuse(proxy, &Refusal::TooManyConnections);
        close_stranger(peer, &mut response);
        return response;
    }
    let refusal = match route {
        Err(refusal) => Refusal::from(refusal),
        Ok(_) if proxy.closing.is_cancelled() => Refusal::Ending,
        Ok(Route::Messages) => return messages::serve(proxy, peer, parts, body).await,
        Ok(Route::CountTokens) => return free::count_tokens(proxy, parts, body).await,
        Ok(Route::Models | Route::Model(_)) => return free::models(proxy, parts).await,
        Ok(Route::Hello) => return hello(peer),
    };
    read::discard_known(body, &parts.headers).await;
    refuse(proxy, &refusal)
}

/// Whether somebody listens here: yes.
fn hello(peer: &Peer) -> Response<ProxyBody> {
    let mut response = Response::new(ProxyBody::Own(None));
    *response.status_mut() = StatusCode::OK;
    close_stranger(peer, &mut response);
    response
}

/// Strangers get no second request on a connection.
fn close_stranger(peer: &Peer, response: &mut Response<ProxyBody>) {
    if !peer.is_known() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

/// An answer of this program's own, under a fresh name.
pub(crate) fn refuse(proxy: &Proxy, refusal: &Refusal) -> Response<ProxyBody> {
    match RequestId::random() {
        Ok(id) => own(refusal.respond(&id, &proxy.parts.session)),
        Err(_) => nameless(),
    }
}

/// An answer of this program's own.
pub(crate) fn own(response: Response<Bytes>) -> Response<ProxyBody> {
    response.map(|body| ProxyBody::Own(Some(body)))
}

/// When the operating system gives no random bytes, no request can be named.
pub(crate) fn nameless() -> Response<ProxyBody> {
    let mut response = Response::new(ProxyBody::Own(None));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}
