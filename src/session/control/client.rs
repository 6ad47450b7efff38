//! Asking a running session over its control socket.

use std::io;
use std::path::Path;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use super::{Call, PROBE, TopUpBody};

/// A receipt lists every request of a session; a day's work stays far below.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Why a running session did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens there.
    #[error("the session's control socket does not answer")]
    Unreachable(#[source] io::Error),
    /// It took too long.
    #[error("the session did not answer within {} s", PROBE.as_secs())]
    TimedOut,
    /// The conversation broke off.
    #[error("the session's answer cannot be read")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It refused, and says why.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// Why.
        message: String,
    },
}

/// Asks the session that listens at `socket`, and waits for its answer.
///
/// # Errors
/// When it cannot be reached, or refuses.
pub async fn ask(socket: &Path, call: &Call) -> Result<Value, ControlError> {
    tokio::time::timeout(PROBE, ask_unbounded(socket, call))
        .await
        .map_err(|_| ControlError::TimedOut)?
}

async fn ask_unbounded(socket: &Path, call: &Call) -> Result<Value, ControlError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(ControlError::Unreachable)?;
    let broken = |error: hyper::Error| ControlError::Broken(error.into());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let (method, path) = call.place();
    let body = match *call {
        Call::TopUp { pico_usd } => serde_json::to_vec(&TopUpBody { pico_usd })
            .map_err(|error| ControlError::Broken(error.into()))?,
        Call::Session
        | Call::Status
        | Call::Audits
        | Call::Audit { .. }
        | Call::Sync(_)
        | Call::Stop => Vec::new(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "localhost")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| ControlError::Broken(error.into()))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(ControlError::Broken)?;
        Ok((status, body.to_bytes()))
    };
    let (status, body) = tokio::select! {
        done = exchange => done?,
        // It ends only after the exchange, or with an error that the exchange reports as well.
        () = async { let _ended = connection.await; std::future::pending().await } => {
            return Err(ControlError::TimedOut);
        }
    };
    let value: Value =
        serde_json::from_slice(&body).map_err(|error| ControlError::Broken(error.into()))?;
    if status.is_success() {
        return Ok(value);
    }
    let message = value.get("error").and_then(|text| text.as_str());
    Err(ControlError::Refused {
        status,
        message: message.unwrap_or("the session refused").to_owned(),
    })
}
