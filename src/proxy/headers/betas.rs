//! The `anthropic-beta` header: each known name with what it does to the price.

use http::{HeaderMap, HeaderValue};

use crate::secret::CredentialKind;

use super::super::gate::json::shown;
use super::super::gate::{GatePolicy, GateRefusal};
use super::ANTHROPIC_BETA;

/// What the betas of a request do to its hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BetaEffect {
    /// A beta about caches is among them: one-hour writes are possible.
    pub one_hour: bool,
    /// Betas that nobody knows: the hold is on its dearest rung.
    pub unknown: Vec<String>,
}

/// What a beta does to the price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Nothing that the gate does not see in the body.
    Neutral,
    /// Caches live longer, or are written and dropped otherwise.
    Cache,
    /// It belongs to a kind of credential and is set here.
    Credential,
    /// Compaction: refused unless the operator has opened it.
    Compaction,
    /// Refused, for this reason.
    Refused(&'static str),
}

use Effect::{Cache, Compaction, Credential, Neutral, Refused};

const OTHER_MODELS: &str = "other models may answer and bill";
const OTHER_PAYER: &str = "it changes who is billed";
const CONTAINERS: &str = "container time is billed and does not show in the usage";
const REMOTE: &str = "results of remote servers enter the prompt without a bound";
const ELSEWHERE: &str = "the prompt lies at the provider, so the body does not bound it";

/// The beta that an OAuth token needs.
const OAUTH: &str = "oauth-2025-04-20";

/// Every beta that is known, by its whole name.
const BETAS: &[(&str, Effect)] = &[
    // What captured clients send by default.
    ("advanced-tool-use-2025-11-20", Neutral),
    ("afk-mode-2026-01-31", Neutral),
    ("claude-code-20250219", Neutral),
    ("context-1m-2025-08-07", Neutral),
    ("context-management-2025-06-27", Neutral),
    ("dangerous-tool-use-2026-09-03", Neutral),
    ("effort-2025-11-24", Neutral),
    ("extended-cache-ttl-2025-04-11", Cache),
    // The client keeps sending it at standard speed; the body's `speed` is what is billed.
    ("fast-mode-2026-02-01", Neutral),
    ("interleaved-thinking-2025-05-14", Neutral),
    ("mid-conversation-system-2026-04-07", Neutral),
    ("mid-conversation-tool-changes-2026-07-01", Neutral),
    ("per-turn-control-2026-07-01", Neutral),
    ("prompt-caching-scope-2026-01-05", Cache),
    ("redact-thinking-2026-02-12", Neutral),
    ("structured-outputs-2025-11-13", Neutral),
    ("structured-outputs-2025-12-15", Neutral),
    ("thinking-display-updates-2026-08-18", Neutral),
    ("thinking-token-count-2026-05-13", Neutral),
    ("token-counting-2024-11-01", Neutral),
    // What else the SDKs list and what changes nothing that the gate does not see.
    ("cache-diagnosis-2026-04-07", Neutral),
    ("computer-use-2024-10-22", Neutral),
    ("computer-use-2025-01-24", Neutral),
    ("computer-use-2025-11-24", Neutral),
    ("dev-full-thinking-2025-05-14", Neutral),
    ("files-api-2025-04-14", Neutral),
    ("inline-tools-2026-09-15", Neutral),
    ("message-batches-2024-09-24", Neutral),
    ("mid-conversation-output-config-2026-07-01", Neutral),
    ("mid-conversation-system-clear-at-2026-08-21", Neutral),
    ("model-context-window-exceeded-2025-08-26", Neutral),
    ("output-128k-2025-02-19", Neutral),
    ("output-300k-2026-03-24", Neutral),
    ("pdfs-2024-09-25", Neutral),
    ("prompt-caching-2024-07-31", Neutral),
    ("task-budgets-2026-03-13", Neutral),
    ("thinking-binding-controls-2026-08-01", Neutral),
    ("token-efficient-tools-2025-02-19", Neutral),
    ("web-search-results-only-2026-11-15", Neutral),
    // Caches.
    ("cache-keepalive-2026-09-03", Cache),
    ("prompt-caching-evict-2026-05-12", Cache),
    // Credentials.
    (OAUTH, Credential),
    ("oidc-federation-2026-04-01", Credential),
    // Priced otherwise, or by somebody else.
    ("compact-2026-01-12", Compaction),
    ("compact-2026-09-04", Compaction),
    ("advisor-tool-2026-03-01", Refused(OTHER_MODELS)),
    ("server-side-fallback-2026-06-01", Refused(OTHER_MODELS)),
    ("server-side-fallback-2026-07-01", Refused(OTHER_MODELS)),
    ("fallback-credit-2026-06-01", Refused(OTHER_MODELS)),
    ("fallback-credit-2026-07-01", Refused(OTHER_MODELS)),
    ("user-profiles-2026-03-24", Refused(OTHER_PAYER)),
    ("user-profiles-2026-08-18", Refused(OTHER_PAYER)),
    ("user-profiles-2026-09-04", Refused(OTHER_PAYER)),
    ("user-profiles-billing-2026-10-01", Refused(OTHER_PAYER)),
    ("code-execution-2025-05-22", Refused(CONTAINERS)),
    ("code-execution-2025-08-25", Refused(CONTAINERS)),
    ("skills-2025-10-02", Refused(CONTAINERS)),
    ("mcp-client-2025-04-04", Refused(REMOTE)),
    ("mcp-client-2025-11-20", Refused(REMOTE)),
    ("mcp-client-2026-09-15", Refused(REMOTE)),
    ("mcp-tunnels-2026-06-22", Refused(REMOTE)),
    ("managed-agents-2026-04-01", Refused(ELSEWHERE)),
    ("message-threads-2026-08-12", Refused(ELSEWHERE)),
];

/// Puts the betas to send into `headers` and says what they do.
pub(super) fn forward(
    client: &HeaderMap,
    kind: CredentialKind,
    policy: &GatePolicy,
    headers: &mut HeaderMap,
) -> Result<BetaEffect, GateRefusal> {
    let mut found = BetaEffect::default();
    let mut values: Vec<HeaderValue> = Vec::new();
    for value in client.get_all(&ANTHROPIC_BETA) {
        let Ok(text) = value.to_str() else {
            return Err(GateRefusal::Malformed(
                "anthropic-beta holds bytes that are not visible ASCII".to_owned(),
            ));
        };
        let mut kept = Vec::new();
        let mut dropped = false;
        for name in text.split(',') {
            if judge(name.trim(), policy, &mut found)? == Credential {
                dropped = true;
            } else {
                kept.push(name);
            }
        }
        if !dropped {
            values.push(value.clone());
        } else if !kept.is_empty() {
            values.extend(HeaderValue::from_str(kept.join(",").trim()));
        }
    }
    for value in values {
        headers.append(ANTHROPIC_BETA, value);
    }
    if kind == CredentialKind::Oauth {
        headers.append(ANTHROPIC_BETA, HeaderValue::from_static(OAUTH));
    }
    Ok(found)
}

/// Notes what one beta does.
fn judge(name: &str, policy: &GatePolicy, found: &mut BetaEffect) -> Result<Effect, GateRefusal> {
    let accepted = policy.accept.iter().any(|accept| accept == name);
    let known = BETAS.iter().find(|(known, _)| *known == name);
    match known.map(|(_, effect)| *effect) {
        Some(effect @ (Neutral | Credential)) => return Ok(effect),
        Some(Cache) => found.one_hour = true,
        Some(Compaction) if policy.compaction => {}
        // An operator who opens it may be right that nothing in the body uses it; the hold is on
        // its dearest rung all the same.
        Some(Compaction | Refused(_)) if accepted => found.unknown.push(name.to_owned()),
        Some(Compaction) => {
            return Err(refusal(
                name,
                "it samples over the whole context once more",
                "compaction = true under [gate] holds one more window for it",
            ));
        }
        Some(Refused(why)) => {
            let remedy = format!("accept = [\"{name}\"] under [gate] lets the name through");
            return Err(refusal(name, why, &remedy));
        }
        None if accepted || name.is_empty() => {}
        None => found.unknown.push(shown(name)),
    }
    Ok(Neutral)
}

fn refusal(name: &str, why: &str, remedy: &str) -> GateRefusal {
    GateRefusal::Feature {
        what: format!("beta {name}"),
        why: why.to_owned(),
        remedy: remedy.to_owned(),
    }
}
