//! What must hold for any bytes that arrive as a body: used by the fuzz target and by the replay of
//! its seeds.

use bytes::Bytes;
use labproxy::proxy::body::{Coding, decode};
use labproxy::proxy::gate::json::{Fault, Kind, Tape, Value};
use labproxy::proxy::gate::{
    GatePolicy, Intent, WebSearchPolicy, apply, check_count_tokens, check_messages, count_body,
};

/// Largest decoded body of a fuzz run.
const LIMIT: usize = 1 << 20;

/// Judges `data` in every way there is; panics when a promise is broken.
pub(crate) fn judge(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
        if let Ok(decoded) = decode(coding, body.clone(), LIMIT) {
            assert!(decoded.len() <= LIMIT);
        }
    }
    let theirs = read(data);
    let open = GatePolicy {
        web_search: Some(WebSearchPolicy {
            tokens_per_use: 1_000,
            max_uses: 3,
        }),
        compaction: true,
        remote_content: true,
        ..GatePolicy::default()
    };
    let strict = check_messages(&body, &GatePolicy::default());
    let opened = check_messages(&body, &open);
    if let (Ok(intent), Some(theirs)) = (&strict, &theirs) {
        closed(intent, theirs);
        assert!(intent.splices.is_empty());
        assert_eq!((intent.web_searches, intent.samplings), (0, 1));
        assert!(opened.is_ok());
    }
    if let Ok(intent) = &strict {
        assert!(check_count_tokens(&body, &GatePolicy::default()).is_ok());
        edited(&body, intent, &GatePolicy::default());
    }
    if let Ok(intent) = &opened {
        edited(&body, intent, &open);
    }
}

/// What is accepted, `serde_json` accepts and reads the same; what only this reader refuses has a
/// reason that the grammar does not know.
fn read(data: &[u8]) -> Option<serde_json::Value> {
    let theirs = serde_json::from_slice::<serde_json::Value>(data);
    match (Tape::parse(data), theirs) {
        (Ok(tape), Ok(theirs)) => {
            assert_eq!(back(tape.root().unwrap()).as_ref(), Some(&theirs));
            Some(theirs)
        }
        (Ok(_), Err(error)) => {
            let text = error.to_string();
            let limit = text.contains("number out of range") || text.contains("recursion limit");
            assert!(limit, "{text}");
            None
        }
        (Err(error), Ok(_)) => {
            assert!(matches!(error.fault, Fault::DuplicateKey(_)), "{error}");
            None
        }
        (Err(_), Err(_)) => None,
    }
}

fn back(value: Value<'_>) -> Option<serde_json::Value> {
    Some(match value.kind() {
        Kind::Null => serde_json::Value::Null,
        Kind::Bool => (value.raw() == "true").into(),
        Kind::Number => serde_json::from_str(value.raw()).ok()?,
        Kind::String => value.string()?.into(),
        Kind::Array => value
            .children()
            .map(|(_, child)| back(child))
            .collect::<Option<_>>()?,
        Kind::Object => value
            .children()
            .map(|(key, child)| Some((key?.string()?.into_owned(), back(child)?)))
            .collect::<Option<serde_json::Map<_, _>>>()?
            .into(),
    })
}

/// Nothing that is refused by default stands in a body that passes, as another reader sees it.
fn closed(intent: &Intent, theirs: &serde_json::Value) {
    assert_eq!(theirs["model"], intent.model.as_str());
    assert_eq!(theirs["max_tokens"].as_u64(), Some(intent.max_tokens));
    assert_ne!(theirs["speed"], "fast");
    for key in [
        "fallbacks",
        "fallback_credit_token",
        "container",
        "mcp_servers",
        "thread",
        "billing_policy",
        "user_profile_id",
        "workspace_id",
        "betas",
        "compaction",
    ] {
        assert!(theirs[key].is_null(), "{key}");
    }
    let tools = theirs["tools"].as_array().into_iter().flatten();
    for tool in tools {
        let kind = tool["type"].as_str().unwrap_or("custom");
        for refused in ["web_", "code_execution", "advisor", "mcp_", "tool_search"] {
            assert!(!kind.starts_with(refused), "{kind}");
        }
    }
    if theirs["cache_control"]["ttl"] == "1h" {
        assert!(intent.one_hour_asked);
    }
}

/// A clamp and the splices change what they should and nothing else: the sent body passes again,
/// with the same terms, and needs no further splice.
fn edited(body: &Bytes, intent: &Intent, policy: &GatePolicy) {
    let same = apply(body, intent, intent.max_tokens);
    if intent.splices.is_empty() {
        assert_eq!(&same, body);
    }
    let sent = apply(body, intent, 7);
    let again = check_messages(&sent, policy).unwrap();
    assert_eq!(again.max_tokens, 7);
    assert!(again.splices.is_empty());
    let searches = |intent: &Intent| {
        (
            intent.web_searches,
            intent.web_search_tokens,
            intent.samplings,
        )
    };
    assert_eq!(again.model, intent.model);
    assert_eq!(searches(&again), searches(intent));
    let terms = |intent: &Intent| {
        (
            intent.writes,
            intent.stream,
            intent.countable,
            intent.compaction,
        )
    };
    assert_eq!(terms(&again), terms(intent));
    assert_eq!(again.prompt_bound.is_none(), intent.prompt_bound.is_none());
    if let Some(bound) = intent.prompt_bound {
        assert!(bound >= u64::try_from(body.len()).unwrap());
    }
    assert!(Tape::parse(&count_body(body, intent)).is_ok());
}
