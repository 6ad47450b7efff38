//! A receipt as people read it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::ledger::WorkspaceEnd;
use crate::mirror::line::size;
use crate::money::PicoUsd;
use crate::receipt::{Outcome, Receipt, RequestLine};
use crate::report::counted;
use crate::table::{Column, Style, Table};
use crate::usage::CREDENTIAL_REFUSED;

/// So much of a tree's hash tells two apart for a person; the JSON has all of it.
const TREE_DIGITS: usize = 12;

/// Sums of one model.
#[derive(Debug, Default)]
struct ModelSums {
    requests: u64,
    input: u64,
    output: u64,
    cache_write: u64,
    cache_read: u64,
    charged: PicoUsd,
}

fn sums(receipt: &Receipt) -> BTreeMap<&str, ModelSums> {
    let mut sums: BTreeMap<&str, ModelSums> = BTreeMap::new();
    for request in &receipt.requests {
        if request.outcome == Some(Outcome::Refused) {
            continue;
        }
        let model = request.served_model.as_deref().or(request.model.as_deref());
        let sum = sums.entry(model.unwrap_or("(unknown)")).or_default();
        sum.requests = sum.requests.saturating_add(1);
        sum.charged = sum.charged.saturating_add(request.charged_pico_usd);
        for (counter, name) in [
            (&mut sum.input, "input_tokens"),
            (&mut sum.output, "output_tokens"),
            (&mut sum.cache_write, "cache_creation_input_tokens"),
            (&mut sum.cache_read, "cache_read_input_tokens"),
        ] {
            *counter = counter.saturating_add(tokens(request, name));
        }
    }
    sums
}

fn tokens(request: &RequestLine, name: &str) -> u64 {
    let usage = request.usage.as_ref();
    let count = usage.and_then(|usage| usage.get(name));
    count.and_then(Value::as_u64).unwrap_or(0)
}

fn ended_as(receipt: &Receipt) -> String {
    let Some(reason) = receipt
        .end_reason
        .as_ref()
        .filter(|_| receipt.ended_at.is_some())
    else {
        return "not ended".to_owned();
    };
    let name = receipt.agent.argv0.as_deref().unwrap_or("agent");
    let name = match &receipt.agent.host {
        Some(host) => format!("{name} on {host}"),
        None => name.to_owned(),
    };
    match (&receipt.agent.signal, receipt.agent.exit_code) {
        (Some(signal), _) => format!("{reason}, {name} ended by {signal}"),
        (None, Some(code)) => format!("{reason}, {name} exited with {code}"),
        (None, None) => reason.clone(),
    }
}

/// The compact table of a receipt: who, requests, tokens and dollars by model, the cap.
pub fn text(receipt: &Receipt, style: Style) -> String {
    let sums = sums(receipt);
    let mut text = line(&format!(
        "labproxy session {}: {}",
        receipt.session,
        ended_as(receipt)
    ));
    text.push_str(&line(&requests_line(receipt)));
    if !sums.is_empty() {
        text.push_str(&by_model(&sums).render(style));
    }
    text.push_str(&line(&money_line(receipt)));
    if let Some(workspace) = &receipt.workspace {
        text.push_str(&line(&workspace_line(workspace)));
    }
    let refused = credential_refused(receipt);
    if refused > 0 {
        let times = counted(refused, "time", "times");
        text.push_str(&line(&format!("{CREDENTIAL_REFUSED} {times}")));
    }
    if let Some(why) = &receipt.unused_because {
        text.push_str(&line(&format!("unused because: {why}")));
    }
    if let Some(reason) = last_refusal(receipt) {
        text.push_str(&line(&format!("last refusal: {reason}")));
    }
    text
}

/// A line of ours that may hold foreign strings.
fn line(text: &str) -> String {
    let mut line = crate::escape::escape_line(text);
    line.push('\n');
    line
}

fn requests_line(receipt: &Receipt) -> String {
    let count = |outcome| {
        let of_outcome = receipt
            .requests
            .iter()
            .filter(|request| request.outcome == outcome);
        u64::try_from(of_outcome.count()).unwrap_or(u64::MAX)
    };
    let beyond = receipt.refusals_beyond_listed;
    let all = u64::try_from(receipt.requests.len()).unwrap_or(u64::MAX);
    let mut parts = vec![counted(all.saturating_add(beyond), "request", "requests")];
    for (number, words) in [
        (
            count(Some(Outcome::Refused)).saturating_add(beyond),
            "refused",
        ),
        (count(Some(Outcome::Kept)), "charged at their whole hold"),
        (
            count(Some(Outcome::UpstreamError)),
            "not sent: upstream unreachable",
        ),
        (count(Some(Outcome::Free)), "free"),
        (count(None), "in flight"),
        (
            receipt.free_requests,
            if receipt.free_requests == 1 {
                "other call that cost nothing"
            } else {
                "other calls that cost nothing"
            },
        ),
    ] {
        if number > 0 {
            parts.push(format!("{number} {words}"));
        }
    }
    parts.join(", ")
}

fn money_line(receipt: &Receipt) -> String {
    let mut parts = vec![
        format!("cap {}", receipt.cap_pico_usd),
        format!("spent {}", receipt.spent_pico_usd),
    ];
    for (amount, words) in [
        (receipt.held_pico_usd, "held"),
        (receipt.over_cap_pico_usd, "over the cap"),
    ] {
        if amount > PicoUsd::ZERO {
            parts.push(format!("{words} {amount}"));
        }
    }
    let reached = if receipt.cap_reached {
        " (the cap was reached)"
    } else {
        ""
    };
    parts.push(format!("unused {}{reached}", receipt.unused_pico_usd));
    parts.join(", ")
}

fn workspace_line(workspace: &WorkspaceEnd) -> String {
    let pushes = counted(workspace.pushes, "push", "pushes");
    let pulls = counted(workspace.pulls, "pull", "pulls");
    let changed = counted(workspace.changed_files, "file", "files");
    let mut parts = vec![
        format!("{pushes}, {} sent", size(workspace.sent_bytes)),
        format!("{pulls}, {} received", size(workspace.received_bytes)),
        format!("{changed} changed here"),
    ];
    let short = |tree: &str| tree.chars().take(TREE_DIGITS).collect::<String>();
    if let (Some(before), Some(after)) = (&workspace.tree_before, &workspace.tree_after) {
        parts.push(if before == after {
            format!("tree {}, as before", short(after))
        } else {
            format!("tree {} to {}", short(before), short(after))
        });
    }
    if workspace.unpulled {
        parts.push("UNPULLED work on the host".to_owned());
    }
    format!("workspace: {}", parts.join("; "))
}

/// How many requests the provider answered with a 401.
fn credential_refused(receipt: &Receipt) -> u64 {
    let refused = |request: &&RequestLine| request.reason.as_deref() == Some(CREDENTIAL_REFUSED);
    u64::try_from(receipt.requests.iter().filter(refused).count()).unwrap_or(u64::MAX)
}

fn last_refusal(receipt: &Receipt) -> Option<&str> {
    let mut refused = receipt
        .requests
        .iter()
        .rev()
        .filter(|request| request.outcome == Some(Outcome::Refused));
    refused.next()?.reason.as_deref()
}

fn by_model(sums: &BTreeMap<&str, ModelSums>) -> Table {
    let mut table = Table::new([
        Column::text("MODEL"),
        Column::number("REQUESTS"),
        Column::number("INPUT"),
        Column::number("CACHE WRITE"),
        Column::number("CACHE READ"),
        Column::number("OUTPUT"),
        Column::number("USD"),
    ]);
    for (model, sum) in sums {
        table.row([
            (*model).to_owned(),
            sum.requests.to_string(),
            sum.input.to_string(),
            sum.cache_write.to_string(),
            sum.cache_read.to_string(),
            sum.output.to_string(),
            sum.charged.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(outcome: &str, charged: u64, reason: &Value, usage: &Value) -> Value {
        json!({
            "id": format!("req_{}", "a".repeat(26)), "at": "2026-12-01T00:00:00Z", "stream": true,
            "model": "m", "served_model": null, "status": 200, "outcome": outcome,
            "client_gone": false, "reason": reason, "held_pico_usd": 0,
            "charged_pico_usd": charged, "max_tokens": {"asked": 1, "sent": 1}, "usage": usage,
            "upstream_request_id": null, "ttfb_ms": 1, "duration_ms": 2,
        })
    }

    fn receipt() -> Receipt {
        let usage = json!({"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5,
                           "cache_creation_input_tokens": null});
        let hash = "0".repeat(64);
        serde_json::from_value(json!({
            "schema": 1, "labproxy_version": "0", "session": format!("ses_{}", "a".repeat(26)),
            "end_reason": "cap", "cap_pico_usd": 2_000_000_000_000_u64,
            "spent_pico_usd": 1_500_000_000_000_u64, "held_pico_usd": 0,
            "unused_pico_usd": 500_000_000_000_u64, "unused_because": "the next needs $0.60",
            "cap_reached": true, "started_at": "2026-12-01T00:00:00Z",
            "ended_at": "2026-12-01T00:01:00Z", "pricing_digest": "", "free_requests": 2,
            "agent": {"argv0": "claude\u{1b}[2J", "exit_code": 1, "signal": null},
            "requests": [
                request("settled", 1_500_000_000_000, &Value::Null, &usage),
                request("refused", 0, &json!("cap reached"), &Value::Null),
            ],
            "refusals_beyond_listed": 3, "on_cap": "clamp", "over_cap_pico_usd": 0,
            "ledger": {"seq": 1, "hash": hash},
        }))
        .unwrap()
    }

    /// The table holds what a person asks for, and a hostile name in it cannot draw.
    #[test]
    fn t37_a_receipt_is_shown_escaped() {
        let text = text(&receipt(), Style::Plain);
        let (_, rest) = text.split_once(": ").unwrap();
        assert_eq!(
            rest,
            "cap, claude\\x1b[2J exited with 1\n\
             5 requests, 4 refused, 2 other calls that cost nothing\n\
             MODEL  REQUESTS  INPUT  CACHE WRITE  CACHE READ  OUTPUT    USD\n\
             m             1      3            0           5       4  $1.50\n\
             cap $2.00, spent $1.50, unused $0.50 (the cap was reached)\n\
             unused because: the next needs $0.60\n\
             last refusal: cap reached\n"
        );
    }
}
