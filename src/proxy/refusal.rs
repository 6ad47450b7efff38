//! Everything that the proxy answers by itself, in the provider's error shape.
//!
//! Which status makes which client stop, and with what on the screen, was measured: 402 with
//! `billing_error` and `x-should-retry: false` is the one that all of them take as final and show in
//! full. A final refusal never carries `Retry-After`, since some clients obey it first.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Response, StatusCode};

use crate::cap::Denied;
use crate::id::{RequestId, SessionId};
use crate::pricing::Unpriced;
use crate::usage::CloseReason;

use super::body::BodyError;
use super::gate::GateRefusal;
use super::gate::json::shown;
use super::route::{RouteRefusal, SERVED};

/// Tells a client whether trying again can help.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The provider's name for a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Longest text of a refusal, in characters: what every client shows whole.
const LONGEST_TEXT: usize = 300;

/// What is wrong between here and the provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamTrouble {
    /// No connection; says which step failed, without addresses or secrets.
    #[error("the upstream cannot be reached ({0})")]
    Unreachable(String),
    /// The connection broke before there was an answer.
    #[error("the connection to the upstream broke before it answered")]
    Broken,
    /// No answer in time.
    #[error("the upstream did not answer in time")]
    TimedOut,
    /// It answered with a redirect, which is never followed or relayed.
    #[error("the upstream answered with a redirect (status {0}), which is never followed")]
    Redirect(u16),
    /// The credential stood in the answer.
    #[error("the upstream's answer was withheld because it repeats the credential")]
    Leak,
    /// There is no credential to send.
    #[error("there is no credential for the upstream")]
    NoCredential,
}

/// Why a request is answered here.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The gate does not let the body or a header through.
    Gate(GateRefusal),
    /// The model has no price.
    Unpriced(Unpriced),
    /// There is no room under the cap, or the session takes no more.
    Denied(Denied),
    /// There is no room under the cap for a whole window, and this is why it was one.
    NoRoomForWindow {
        /// What did not fit.
        denied: Denied,
        /// Why only the window bounds the prompt.
        because: String,
    },
    /// The path, method or query is not served.
    Route(RouteRefusal),
    /// The body is too large or not what its encoding says.
    Body(BodyError),
    /// A header section or a body that did not come whole, or not in time.
    Incomplete,
    /// No placeholder, or not this launch's.
    Unauthenticated,
    /// As many bodies are being read as there is memory for.
    Busy,
    /// As many clients are connected as may be.
    TooManyConnections,
    /// As many `count_tokens` calls are in flight as are let through.
    CountsBusy,
    /// The upstream did not give an answer to relay.
    Upstream(UpstreamTrouble),
    /// The upstream's clock and this machine's differ by this many seconds, too many to know which
    /// prices hold.
    ClockOff(i64),
    /// The proxy is ending.
    Ending,
}

/// How a refusal looks: status, the provider's error type, and whether trying again can help.
struct Form(StatusCode, &'static str, Again);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Never,
    MayHelp,
}

const INVALID: &str = "invalid_request_error";
const BILLING: &str = "billing_error";
const API: &str = "api_error";

impl Refusal {
    /// A denial of a request; says why it needed a whole window, where it did.
    pub fn denied(denied: Denied, window_because: Option<&str>) -> Self {
        match (denied, window_because) {
            (denied @ Denied::Cap { .. }, Some(because)) => Self::NoRoomForWindow {
                denied,
                because: because.to_owned(),
            },
            (denied, _) => Self::Denied(denied),
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.form().0
    }

    fn form(&self) -> Form {
        use Again::{MayHelp, Never};
        match self {
            Self::Gate(GateRefusal::Malformed(_) | GateRefusal::Fast) | Self::Incomplete => {
                Form(StatusCode::BAD_REQUEST, INVALID, Never)
            }
            Self::Gate(GateRefusal::Feature { .. }) | Self::Unpriced(_) | Self::ClockOff(_) => {
                Form(StatusCode::PAYMENT_REQUIRED, BILLING, Never)
            }
            Self::Denied(denied) | Self::NoRoomForWindow { denied, .. } => match denied {
                Denied::Ledger(_) | Denied::Closed(CloseReason::LedgerFailed(_)) => {
                    Form(StatusCode::SERVICE_UNAVAILABLE, API, MayHelp)
                }
                Denied::ClientGone => Form(StatusCode::SERVICE_UNAVAILABLE, API, Never),
                _ => Form(StatusCode::PAYMENT_REQUIRED, BILLING, Never),
            },
            Self::Route(route) => match route {
                RouteRefusal::OddTarget { .. }
                | RouteRefusal::Upgrade
                | RouteRefusal::Query { .. } => Form(StatusCode::BAD_REQUEST, INVALID, Never),
                RouteRefusal::WebSocket => Form(StatusCode::UPGRADE_REQUIRED, INVALID, Never),
                RouteRefusal::NotServed { .. } => {
                    Form(StatusCode::FORBIDDEN, "permission_error", Never)
                }
            },
            Self::Body(body) => match body {
                BodyError::UnknownCoding(_) | BodyError::SeveralCodings => {
                    Form(StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID, Never)
                }
                BodyError::TooLarge { .. } => {
                    Form(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", Never)
                }
                BodyError::Malformed(_) | BodyError::Trailing(_) => {
                    Form(StatusCode::BAD_REQUEST, INVALID, Never)
                }
            },
            Self::Unauthenticated => Form(StatusCode::UNAUTHORIZED, "authentication_error", Never),
            Self::Busy | Self::TooManyConnections | Self::Ending => {
                Form(StatusCode::SERVICE_UNAVAILABLE, API, MayHelp)
            }
            Self::CountsBusy => Form(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", MayHelp),
            Self::Upstream(trouble) => match trouble {
                UpstreamTrouble::TimedOut => {
                    Form(StatusCode::GATEWAY_TIMEOUT, "timeout_error", MayHelp)
                }
                UpstreamTrouble::NoCredential => {
                    Form(StatusCode::SERVICE_UNAVAILABLE, API, MayHelp)
                }
                UpstreamTrouble::Unreachable(_) | UpstreamTrouble::Broken => {
                    Form(StatusCode::BAD_GATEWAY, API, MayHelp)
                }
                UpstreamTrouble::Redirect(_) | UpstreamTrouble::Leak => {
                    Form(StatusCode::BAD_GATEWAY, API, Never)
                }
            },
        }
    }

    /// What the user reads: what happened, the numbers, what to do. At most 300 characters of ASCII,
    /// beginning `labproxy:`, but for fast mode, whose text makes the client go on without it.
    pub fn text(&self, session: &SessionId) -> String {
        let text = match self {
            Self::Gate(GateRefusal::Fast) => {
                "Fast mode is not enabled for this session (labproxy: it costs twice as much); \
                 standard speed works"
                    .to_owned()
            }
            Self::Gate(refusal) => format!("labproxy: {refusal}"),
            Self::Unpriced(unpriced) => format!(
                "labproxy: {unpriced}, so it is not forwarded; choose one of `labproxy pricing show` \
                 or add a row to the price file"
            ),
            Self::Denied(denied) => denied_text(denied, session),
            Self::NoRoomForWindow { denied, because } => {
                format!("labproxy: {denied}, a whole context window because of {because}")
            }
            Self::Route(RouteRefusal::NotServed { method, path }) => {
                format!("labproxy: {method} {path} is not served; only {SERVED} are")
            }
            Self::Route(refusal) => format!("labproxy: {refusal}"),
            Self::Body(error) => format!("labproxy: {error}"),
            Self::Incomplete => {
                "labproxy: the request did not arrive whole, or not in time".to_owned()
            }
            Self::Unauthenticated => {
                "labproxy: this key is not this session's placeholder; use the ANTHROPIC_API_KEY \
                 that the session gave its agent"
                    .to_owned()
            }
            Self::Busy => {
                "labproxy: too many request bodies are being read at once; try again".to_owned()
            }
            Self::TooManyConnections => {
                "labproxy: too many connections at once; close some and try again".to_owned()
            }
            Self::CountsBusy => {
                "labproxy: too many count_tokens calls at once; try again".to_owned()
            }
            Self::Upstream(trouble) => format!("labproxy: {trouble}"),
            Self::ClockOff(seconds) => format!(
                "labproxy: this machine's clock is {} s {} the upstream's, so it is not known which \
                 prices hold; set the clock",
                seconds.unsigned_abs(),
                if *seconds > 0 { "behind" } else { "ahead of" }
            ),
            Self::Ending => "labproxy: the session is ending".to_owned(),
        };
        fit(&text)
    }

    /// The answer.
    pub fn respond(&self, request: &RequestId, session: &SessionId) -> Response<Bytes> {
        let Form(status, kind, again) = self.form();
        let body = serde_json::json!({
            "type": "error",
            "error": { "type": kind, "message": self.text(session) },
            "request_id": request.as_str(),
        });
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(id) = HeaderValue::from_str(request.as_str()) {
            headers.insert(REQUEST_ID, id);
        }
        if again == Again::Never {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

fn denied_text(denied: &Denied, session: &SessionId) -> String {
    let topup = format!("`labproxy session topup {session} USD` raises the cap");
    match denied {
        Denied::Cap {
            cap,
            settled,
            held,
            needs,
        } => format!(
            "labproxy: session cap {cap} reached: spent {settled}, in flight {held}, this request \
             may cost {needs}; {topup}"
        ),
        Denied::CutAgain { last } => format!(
            "labproxy: the last answer was cut at {last} tokens to stay under the cap, and there is \
             no room for twice as much; {topup}"
        ),
        Denied::Daily { ceiling, spent } => format!(
            "labproxy: daily ceiling {ceiling} reached: {spent} charged and held today over all \
             sessions; limits.daily_usd in the user configuration sets it"
        ),
        Denied::Closed(reason) => format!("labproxy: {}", closed_text(reason)),
        Denied::ClientGone => "labproxy: the client left".to_owned(),
        Denied::Ledger(error) => format!(
            "labproxy: the ledger cannot record the hold, so nothing was forwarded ({})",
            shown(&error.cause())
        ),
    }
}

fn closed_text(reason: &CloseReason) -> String {
    let reopen = "look at `labproxy session show`, then `session resume --reopen`";
    match reason {
        CloseReason::Overrun(what) => {
            format!(
                "the session is closed, a charge was above its hold ({}); {reopen}",
                shown(what)
            )
        }
        CloseReason::UnpricedServedModel(model) => format!(
            "the session is closed, '{}' served a request and has no price; {reopen}",
            shown(model)
        ),
        CloseReason::UnknownCounter(what) => format!(
            "the session is closed, an answer counted something unknown ({}); add it to \
             gate.known_usage if it is harmless; {reopen}",
            shown(what)
        ),
        CloseReason::ServedFast => {
            format!("the session is closed, a request was served in fast mode; {reopen}")
        }
        CloseReason::LedgerFailed(what) => format!(
            "the ledger cannot be written, so nothing is forwarded until labproxy is started again \
             ({})",
            shown(what)
        ),
        CloseReason::Ending => "the session is ending".to_owned(),
    }
}

/// Printable ASCII of at most [`LONGEST_TEXT`] characters.
fn fit(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        let printable = character.is_ascii_graphic() || character == ' ';
        out.push(if printable { character } else { '?' });
    }
    if out.len() > LONGEST_TEXT {
        out.truncate(LONGEST_TEXT - 3);
        out.push_str("...");
    }
    out
}

impl From<GateRefusal> for Refusal {
    fn from(refusal: GateRefusal) -> Self {
        Self::Gate(refusal)
    }
}

impl From<Unpriced> for Refusal {
    fn from(unpriced: Unpriced) -> Self {
        Self::Unpriced(unpriced)
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<RouteRefusal> for Refusal {
    fn from(refusal: RouteRefusal) -> Self {
        Self::Route(refusal)
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}
