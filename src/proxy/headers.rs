//! Headers: what passes to the provider, what passes back, and what a beta does to the price.

mod betas;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING,
    CONTENT_LENGTH, CONTENT_TYPE, DATE, RETRY_AFTER, TRANSFER_ENCODING, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use crate::pricing::WriteBound;
use crate::secret::CredentialKind;

use super::gate::{GatePolicy, GateRefusal, Intent};

pub use betas::BetaEffect;

/// The header that names betas.
pub const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// Request headers that pass unchanged, beside those of [`REQUEST_PREFIX`]. All that captured
/// clients send, but for credentials, what belongs to one connection, and `accept-encoding`.
const REQUEST: [HeaderName; 16] = [
    ACCEPT,
    ACCEPT_LANGUAGE,
    CONTENT_TYPE,
    USER_AGENT,
    HeaderName::from_static("anthropic-dangerous-direct-browser-access"),
    HeaderName::from_static("anthropic-version"),
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("x-app"),
    HeaderName::from_static("x-claude-code-agent-id"),
    HeaderName::from_static("x-claude-code-parent-agent-id"),
    HeaderName::from_static("x-claude-code-prompt-id"),
    HeaderName::from_static("x-claude-code-request-class"),
    HeaderName::from_static("x-claude-code-session-id"),
    HeaderName::from_static("x-client-request-id"),
    HeaderName::from_static("x-session-affinity"),
    HeaderName::from_static("x-session-id"),
];

/// What the SDKs say about themselves.
const REQUEST_PREFIX: &str = "x-stainless-";

/// Request headers that change who is billed: refused by name, not dropped, since the caller would
/// believe that somebody else pays.
const OTHER_PAYER: [HeaderName; 3] = [
    HeaderName::from_static("anthropic-user-profile-id"),
    HeaderName::from_static("anthropic-workspace-id"),
    HeaderName::from_static("anthropic-organization-id"),
];

/// Response headers that pass back, beside those of [`RESPONSE_PREFIX`].
const RESPONSE: [HeaderName; 11] = [
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    DATE,
    RETRY_AFTER,
    HeaderName::from_static("request-id"),
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("server-timing"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-should-retry"),
];

/// What the provider says about limits and the organisation.
const RESPONSE_PREFIX: &str = "anthropic-";

/// The headers to send, without a credential, and what their betas do to the price.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// The headers; the credential is set last, by [`crate::secret::Credential::apply`].
    pub headers: HeaderMap,
    /// What the betas do to the hold.
    pub betas: BetaEffect,
}

/// Makes the headers to send from those of a client, for a credential of `kind`.
///
/// Everything not on the list is dropped: credentials, cookies, what belongs to one connection and
/// what `Connection` names. `accept-encoding` becomes `identity`.
///
/// # Errors
/// When a beta or a header changes the price or who is billed; names it and the setting.
pub fn forward(
    client: &HeaderMap,
    kind: CredentialKind,
    policy: &GatePolicy,
) -> Result<Forwarded, GateRefusal> {
    if let Some(name) = OTHER_PAYER.iter().find(|name| client.contains_key(*name)) {
        return Err(GateRefusal::Feature {
            what: format!("header {name}"),
            why: "it changes who is billed".to_owned(),
            remedy: "no setting opens it, so leave it out".to_owned(),
        });
    }
    let mut headers = HeaderMap::with_capacity(client.len());
    let any_named = client.contains_key(CONNECTION);
    for (name, value) in client {
        let listed = REQUEST.contains(name) || name.as_str().starts_with(REQUEST_PREFIX);
        if listed && !(any_named && is_named_by_connection(client, name)) {
            headers.append(name, value.clone());
        }
    }
    let betas = betas::forward(client, kind, policy, &mut headers)?;
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(Forwarded { headers, betas })
}

/// Whether the head of an answer tells how the end of its body is known: by HTTP/2's frames, a
/// length, or chunks. Else it is where the connection closes, which a cut looks like as well.
pub fn is_framed(version: Version, headers: &HeaderMap) -> bool {
    let last = headers.get_all(TRANSFER_ENCODING).iter().next_back();
    match last {
        _ if version == Version::HTTP_2 => true,
        Some(codings) => codings
            .as_bytes()
            .rsplit(|byte| *byte == b',')
            .next()
            .is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked")),
        None => headers.contains_key(CONTENT_LENGTH),
    }
}

/// The headers to give back to the client: those of `upstream` without all others.
///
/// A length beside chunks is not the body's (RFC 9112, 6.3) and would cut it for the client.
pub fn give_back(mut upstream: HeaderMap) -> HeaderMap {
    let is_chunked = upstream.contains_key(TRANSFER_ENCODING);
    let any_named = upstream.contains_key(CONNECTION);
    let passes = |name: &HeaderName| {
        let listed = RESPONSE.contains(name) || name.as_str().starts_with(RESPONSE_PREFIX);
        listed
            && !(is_chunked && name == CONTENT_LENGTH)
            && !(any_named && is_named_by_connection(&upstream, name))
    };
    let others: Vec<HeaderName> = upstream
        .keys()
        .filter(|name| !passes(name))
        .cloned()
        .collect();
    for name in others {
        upstream.remove(name);
    }
    upstream
}

fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|token| {
            token
                .trim_ascii()
                .eq_ignore_ascii_case(name.as_str().as_bytes())
        })
    })
}

impl Intent {
    /// The same request under the betas of its headers: cache betas make one-hour writes possible,
    /// and an unknown beta puts the hold on its dearest rung, which no count lowers.
    pub fn with_betas(mut self, betas: &BetaEffect) -> Self {
        if betas.one_hour {
            self.writes = WriteBound::OneHour;
            self.one_hour_asked = true;
        }
        if let Some(unknown) = betas.unknown.first() {
            self.writes = WriteBound::OneHour;
            self.one_hour_asked = true;
            self.prompt_bound = None;
            self.countable = false;
            self.window_because = Some(format!(
                "unknown beta '{unknown}' (gate.accept = [\"{unknown}\"] declares it harmless)"
            ));
        }
        self
    }
}
