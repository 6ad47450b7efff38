//! Changes of a body before it is sent, and the body of a `count_tokens` call: both from the
//! original bytes.

use std::ops::Range;

use bytes::Bytes;

use super::{Intent, Splice};

/// The body to send: the same bytes when nothing changes, else with the splices and with
/// `max_tokens` in place of the number that was asked for.
pub fn apply(body: &Bytes, intent: &Intent, max_tokens: u64) -> Bytes {
    let clamp = (max_tokens != intent.max_tokens).then(|| Splice {
        at: intent.max_tokens_at.clone(),
        with: max_tokens.to_string().into_bytes(),
    });
    if clamp.is_none() && intent.splices.is_empty() {
        return body.clone();
    }
    let mut splices: Vec<&Splice> = intent.splices.iter().chain(clamp.as_ref()).collect();
    splices.sort_by_key(|splice| splice.at.start);
    let added: usize = splices.iter().map(|splice| splice.with.len()).sum();
    let mut out = Vec::with_capacity(body.len().saturating_add(added));
    let mut from = 0;
    for splice in splices {
        out.extend_from_slice(part(body, from..splice.at.start));
        out.extend_from_slice(&splice.with);
        from = splice.at.end;
    }
    out.extend_from_slice(part(body, from..body.len()));
    out.into()
}

/// The body of a `count_tokens` call for the request: that endpoint's keys only, each value as it
/// stands in `body`. Edits of the context are left out, so the count is of the whole prompt.
pub fn count_body(body: &[u8], intent: &Intent) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    for (name, at) in &intent.counted_parts {
        out.push(if out.is_empty() { b'{' } else { b',' });
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(part(body, at.clone()));
    }
    out.push(b'}');
    out
}

fn part(body: &[u8], at: Range<usize>) -> &[u8] {
    body.get(at).unwrap_or_default()
}
