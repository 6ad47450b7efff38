//! What the forwarder answers for itself while no link works.

/// The header that only this answer has: a probe tells it from the proxy's by that.
pub(super) const LINK_HEADER: &str = "labproxy-link:";
/// When clients should come again: links are usually back within some seconds, and each try waits
/// for one by itself.
const RETRY_AFTER_SECONDS: u8 = 5;
/// In the shape of the provider's errors, retryable.
const BODY: &str = concat!(
    r#"{"type":"error","error":{"type":"api_error","message":"#,
    r#""labproxy: the link to the controller is down; try again"}}"#
);

/// The whole answer; to a `HEAD` without the body.
pub(super) fn no_link(to_head: bool) -> Vec<u8> {
    let length = BODY.len();
    let mut answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nretry-after: {RETRY_AFTER_SECONDS}\r\n\
         {LINK_HEADER} down\r\nconnection: close\r\n\r\n"
    );
    if !to_head {
        answer.push_str(BODY);
    }
    answer.into_bytes()
}
