//! The life of one message after it was sent: the answer's head, the two permitted second sends,
//! and the relay.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::Proxy;
use super::charge::{Charge, ClientPresence};
use super::headers;
use super::leak::{self, LeakGuard};
use super::meter::Meter;
use super::read::ReadBody;
use super::refusal::{Refusal, UpstreamTrouble};
use super::relay::{Flow, ProxyBody, Relay};
use super::serve::own;
use super::upstream::{Lease, Outgoing, Ready, SendError};
use crate::id::RequestId;
use crate::secret::Credential;
use crate::usage::reader::BodyKind;
use crate::usage::{BodyEnd, Observed};

/// What is read of a 401 before the request is sent again.
const REFUSAL_LIMIT: usize = 64 * 1024;
/// How long that may take.
const REFUSAL_TIME: Duration = Duration::from_secs(5);
/// How often a request is handed to another connection when the one before had closed unused.
const MAX_UNSENT: u32 = 3;
/// Tells a client whether trying again can help.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A request that is being sent.
pub(crate) struct Exchange {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) id: RequestId,
    /// The headers of the first send, without the credential.
    pub(crate) headers: HeaderMap,
    /// As the client sent them, to make those of a second send.
    pub(crate) client_headers: HeaderMap,
    pub(crate) path: PathAndQuery,
    pub(crate) body: ReadBody,
    pub(crate) ready: Ready,
    pub(crate) charge: Charge,
}

/// Sends, and gives the response for the client. Its charge is settled by the time the response's
/// body has ended, however it ends.
pub(crate) async fn exchange(exchange: Exchange) -> Response<ProxyBody> {
    let Exchange {
        proxy,
        id,
        headers,
        client_headers,
        path,
        body,
        ready,
        mut charge,
    } = exchange;
    let refuse = |trouble| {
        let refusal = Refusal::Upstream(trouble);
        own(refusal.respond(&id, &proxy.parts.session))
    };
    let sending = Sending {
        proxy: &proxy,
        client_headers: &client_headers,
        path: &path,
        body: &body.bytes,
        client: charge.client().clone(),
    };
    match sending.send(ready, headers).await {
        Ok(Answer {
            response,
            lease,
            credential,
        }) => {
            // Nothing sends the body again from here on.
            drop(body);
            relay(&proxy, response, lease, &credential, charge).unwrap_or_else(refuse)
        }
        Err(Failed { trouble, sent }) => {
            match sent {
                Sent::Nothing => {
                    let status = Refusal::Upstream(trouble.clone()).status();
                    charge.never_sent("no connection took the request", status);
                }
                Sent::Refused(refusal) => {
                    charge.head(refusal.status, &refusal.headers, &refusal.credential);
                    charge.settle(BodyEnd::Complete, refusal.observed);
                }
                Sent::Unknown => {
                    let end = match trouble {
                        UpstreamTrouble::TimedOut => BodyEnd::TimedOut,
                        _ => BodyEnd::NoResponse,
                    };
                    charge.settle(end, Observed::default());
                }
            }
            refuse(trouble)
        }
    }
}

struct Sending<'a> {
    proxy: &'a Arc<Proxy>,
    client_headers: &'a HeaderMap,
    path: &'a PathAndQuery,
    body: &'a Bytes,
    client: ClientPresence,
}

struct Answer {
    response: Response<Incoming>,
    lease: Lease,
    credential: Arc<Credential>,
}

/// There is no answer.
struct Failed {
    trouble: UpstreamTrouble,
    sent: Sent,
}

/// What the provider has had of a request.
enum Sent {
    /// Not a byte, provably: no connection took it.
    Nothing,
    /// All of it, which it refused with a whole 401; nothing was sent after that.
    Refused(Box<WholeRefusal>),
    /// Nobody knows.
    Unknown,
}

impl Failed {
    fn unknown(trouble: UpstreamTrouble) -> Self {
        Self {
            trouble,
            sent: Sent::Unknown,
        }
    }
}

/// A 401 that was read to its end.
struct WholeRefusal {
    status: StatusCode,
    headers: HeaderMap,
    observed: Observed,
    /// The credential that was refused.
    credential: Arc<Credential>,
}

impl Sending<'_> {
    /// Sends, and once more where that is safe: after a 401 with a credential that was read again,
    /// and when the peer declared that it did not process the request.
    async fn send(&self, ready: Ready, headers: HeaderMap) -> Result<Answer, Failed> {
        let mut ready = Some(ready);
        let mut headers = Some(headers);
        let mut credential = self.proxy.credentials.current();
        let mut sent = Sent::Nothing;
        let (mut unsent, mut unprocessed, mut reread) = (0, false, false);
        loop {
            let connection = match ready.take() {
                Some(ready) => Ok(ready),
                None => self.connect_again().await,
            };
            let prepared = connection
                .and_then(|ready| Ok((ready, self.outgoing(headers.take(), &credential)?)));
            let (connection, outgoing) = match prepared {
                Ok(prepared) => prepared,
                Err(trouble) => return Err(Failed { trouble, sent }),
            };
            let answer =
                tokio::time::timeout(self.proxy.times.head, connection.send(outgoing)).await;
            let (response, lease) = match answer {
                Err(_) => return Err(Failed::unknown(UpstreamTrouble::TimedOut)),
                Ok(Ok(answer)) => answer,
                Ok(Err(SendError::NotSent)) if unsent < MAX_UNSENT => {
                    unsent += 1;
                    continue;
                }
                Ok(Err(SendError::NotSent)) => {
                    let trouble = UpstreamTrouble::Broken;
                    return Err(Failed { trouble, sent });
                }
                Ok(Err(SendError::Unprocessed)) if !unprocessed => {
                    unprocessed = true;
                    sent = Sent::Unknown;
                    continue;
                }
                Ok(Err(_)) => return Err(Failed::unknown(UpstreamTrouble::Broken)),
            };
            if response.status() != StatusCode::UNAUTHORIZED {
                return Ok(Answer {
                    response,
                    lease,
                    credential,
                });
            }
            let fresh = if reread {
                None
            } else {
                self.proxy.credentials.refreshed(&credential).await
            };
            let Some(fresh) = fresh else {
                self.proxy.counted.credential_refused();
                return Ok(Answer {
                    response,
                    lease,
                    credential,
                });
            };
            reread = true;
            let refused = std::mem::replace(&mut credential, fresh);
            sent = Sent::Refused(read_refusal(response, lease, refused).await);
        }
    }

    /// Another connection, unless nobody waits for the answer any more: then it is not bought.
    async fn connect_again(&self) -> Result<Ready, UpstreamTrouble> {
        if self.client.has_left() {
            return Err(UpstreamTrouble::Broken);
        }
        self.proxy.upstream.ready().await.map_err(|error| {
            tracing::warn!(%error, "the upstream cannot be reached again");
            UpstreamTrouble::Unreachable(error.step().to_owned())
        })
    }

    /// The request with the credential set last. The gate has seen these headers before, so they
    /// pass again.
    fn outgoing(
        &self,
        headers: Option<HeaderMap>,
        credential: &Arc<Credential>,
    ) -> Result<Outgoing, UpstreamTrouble> {
        let mut headers = if let Some(headers) = headers {
            headers
        } else {
            let gate = &self.proxy.settings.gate;
            headers::forward(self.client_headers, credential.kind(), gate)
                .map_err(|_| UpstreamTrouble::NoCredential)?
                .headers
        };
        credential.apply(&mut headers);
        Ok(Outgoing {
            method: Method::POST,
            path: self.path.clone(),
            headers,
            body: self.body.clone(),
        })
    }
}

/// Reads a 401 to its end, so that its connection can be used again and its charge is known.
async fn read_refusal(
    response: Response<Incoming>,
    lease: Lease,
    credential: Arc<Credential>,
) -> Box<WholeRefusal> {
    let (parts, mut body) = response.into_parts();
    let mut reader = crate::usage::UsageReader::new(BodyKind::Json);
    let mut guard = LeakGuard::new(credential.clone());
    let mut left = REFUSAL_LIMIT;
    let reading = async {
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if guard.pass(data.clone()).is_err() {
                return false;
            }
            reader.push(&data);
            match left.checked_sub(data.len()) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        true
    };
    let is_whole = tokio::time::timeout(REFUSAL_TIME, reading).await == Ok(true);
    let observed = if is_whole {
        lease.give_back();
        reader.finish()
    } else {
        // Cut, too long, or quoting the credential: as good as no answer.
        Observed::default()
    };
    Box::new(WholeRefusal {
        status: parts.status,
        headers: parts.headers,
        observed,
        credential,
    })
}

/// The answer's head for the client, and its body on the way.
fn relay(
    proxy: &Arc<Proxy>,
    response: Response<Incoming>,
    lease: Lease,
    credential: &Arc<Credential>,
    mut charge: Charge,
) -> Result<Response<ProxyBody>, UpstreamTrouble> {
    let (parts, incoming) = response.into_parts();
    charge.head(parts.status, &parts.headers, credential);
    if parts.status.is_redirection() {
        let reason = "the upstream answered with a redirect";
        charge.keep(reason);
        return Err(UpstreamTrouble::Redirect(parts.status.as_u16()));
    }
    if parts.status.is_informational() {
        charge.keep("the upstream switched to another protocol");
        return Err(UpstreamTrouble::Broken);
    }
    let is_stream = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let kind = if is_stream {
        BodyKind::EventStream
    } else {
        BodyKind::Json
    };
    let encoding = parts.headers.get(CONTENT_ENCODING);
    let meter = Meter::new(kind, encoding.map(HeaderValue::as_bytes), credential);
    let flow = Flow::new(
        incoming,
        headers::is_framed(parts.version, &parts.headers),
        LeakGuard::new(credential.clone()),
        Some((meter, charge)),
        lease,
        proxy.times.silence,
    );
    let mut relayed = Response::new(ProxyBody::Relay(Relay::new(flow, proxy.clone())));
    *relayed.status_mut() = parts.status;
    *relayed.headers_mut() = answer_headers(parts.headers, parts.status, credential);
    Ok(relayed)
}

/// The listed headers, without one that quotes the credential. A credential that was refused will
/// be refused again, so no client should try.
pub(crate) fn answer_headers(
    upstream: HeaderMap,
    status: StatusCode,
    credential: &Credential,
) -> HeaderMap {
    let mut headers = headers::give_back(upstream);
    let quoting: Vec<HeaderName> = headers
        .iter()
        .filter(|(_, value)| leak::quotes(value.as_bytes(), credential))
        .map(|(name, _)| name.clone())
        .collect();
    for name in quoting {
        tracing::warn!(%name, "an answer's header quotes the credential and is left out");
        headers.remove(name);
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    headers
}
