//! Which requests are let in: a closed list of methods and raw paths.
//!
//! The path is compared as it was sent, byte for byte; nothing is decoded, joined or normalised. A
//! path that some other reader might normalise into something else is refused as malformed.

use http::header::{HeaderMap, UPGRADE};
use http::{Method, Uri};

/// What is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `POST /v1/messages`: metered.
    Messages,
    /// `POST /v1/messages/count_tokens`: free.
    CountTokens,
    /// `GET /v1/models`: free.
    Models,
    /// `GET /v1/models/{id}`: free.
    Model(String),
    /// `HEAD /` and `HEAD /api/hello`, answered here: clients ask whether somebody listens.
    Hello,
}

/// Why a request is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteRefusal {
    /// The target is not a plain path: 400.
    #[error("the request target {what}")]
    OddTarget {
        /// What is odd about it.
        what: &'static str,
    },
    /// A WebSocket for responses, which the client falls back from after 426.
    #[error("WebSocket is not served")]
    WebSocket,
    /// Another protocol is asked for: 400.
    #[error("the request asks for an upgrade of the protocol")]
    Upgrade,
    /// The path or its method is not served: 403.
    #[error("{method} {path} is not served")]
    NotServed {
        /// The method, escaped and cut.
        method: String,
        /// The path, escaped and cut.
        path: String,
    },
    /// A query parameter that is not let through: 400.
    #[error("query parameter '{name}' is not let through")]
    Query {
        /// The parameter, escaped and cut; never its value.
        name: String,
    },
}

/// What is served, for a message.
pub const SERVED: &str =
    "POST /v1/messages, POST /v1/messages/count_tokens, GET /v1/models and GET /v1/models/ID";

/// Query parameters that pass.
const QUERY: [&str; 4] = ["beta", "limit", "after_id", "before_id"];

/// Longest model id in a path.
const LONGEST_ID: usize = 128;

impl Route {
    /// Finds the route of a request.
    ///
    /// # Errors
    /// Why there is none.
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Self, RouteRefusal> {
        if *method == Method::CONNECT {
            return Err(odd("is for CONNECT"));
        }
        if uri.scheme().is_some() || uri.authority().is_some() {
            return Err(odd("is a whole URL; set no HTTP proxy for this address"));
        }
        let path = uri.path();
        if headers.contains_key(UPGRADE) {
            return Err(if path == "/v1/responses" {
                RouteRefusal::WebSocket
            } else {
                RouteRefusal::Upgrade
            });
        }
        plain_path(path)?;
        let route = match (method.as_str(), path) {
            ("POST", "/v1/messages") => Self::Messages,
            ("POST", "/v1/messages/count_tokens") => Self::CountTokens,
            ("GET", "/v1/models") => Self::Models,
            ("HEAD", "/" | "/api/hello") => Self::Hello,
            ("GET", _) => match path.strip_prefix("/v1/models/").filter(|id| is_id(id)) {
                Some(id) => Self::Model(id.to_owned()),
                None => return Err(not_served(method, path)),
            },
            _ => return Err(not_served(method, path)),
        };
        query(uri.query())?;
        Ok(route)
    }
}

fn odd(what: &'static str) -> RouteRefusal {
    RouteRefusal::OddTarget { what }
}

fn not_served(method: &Method, path: &str) -> RouteRefusal {
    RouteRefusal::NotServed {
        method: super::gate::json::shown(method.as_str()),
        path: super::gate::json::shown(path),
    }
}

/// Refuses paths that another reader might take for something else.
fn plain_path(path: &str) -> Result<(), RouteRefusal> {
    if !path.starts_with('/') {
        return Err(odd("is not a path"));
    }
    let segments = || path.split('/').skip(1);
    if path.contains("//") {
        Err(odd("has an empty segment"))
    } else if segments().any(|segment| matches!(segment, "." | "..")) {
        Err(odd("has a dot segment"))
    } else if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Err(odd("has an upper-case letter"))
    } else if path.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(odd("has a byte that no served path has"))
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._:".contains(&byte)
}

fn is_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && !id.contains('/')
}

/// Lets a query through whole or not at all.
fn query(query: Option<&str>) -> Result<(), RouteRefusal> {
    let Some(query) = query else { return Ok(()) };
    let mut seen: Vec<&str> = Vec::new();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = value.bytes().all(|byte| byte != b'/' && is_plain(byte));
        if !QUERY.contains(&name) || !plain || seen.contains(&name) {
            return Err(RouteRefusal::Query {
                name: super::gate::json::shown(name),
            });
        }
        seen.push(name);
    }
    Ok(())
}
