//! The Anthropic SDKs for Python and TypeScript.

use serde_json::{Value, json};

use crate::rig::{Rig, Run, clients, outcomes};

fn script(name: &str) -> String {
    format!("{}/tests/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn python(rig: &Rig, cap: &str, what: &str) -> (Run, Value) {
    let interpreter = clients().join("venv/bin/python").display().to_string();
    let run = rig.run(cap, &[&interpreter, &script("python.py"), what]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let told = serde_json::from_str(&run.stdout).unwrap();
    (run, told)
}

/// Every way of calling gave what the stand-in serves, and the bill is exact.
fn assert_called(rig: &Rig, run: &Run, told: &Value) {
    rig.assert_exact(run, 3);
    for (what, expected) in [
        ("plain", json!("Thought about it: done.")),
        ("stop_reason", json!("end_turn")),
        ("output_tokens", json!(17)),
        ("streamed", json!("Thought about it: done.")),
        ("streamed_output_tokens", json!(17)),
        ("first_event", json!("message_start")),
        ("last_event", json!("message_stop")),
        ("model", json!("claude-sonnet-5-5")),
    ] {
        assert_eq!(told[what], expected, "{what}: {told:#}");
    }
    assert!(told["counted"].as_u64().unwrap() > 0);
    let models = told["models"].as_array().unwrap();
    assert!(models.contains(&json!("claude-opus-5-5")));
    // count_tokens, the list of models, one model.
    assert_eq!(run.receipt["free_requests"], 3, "{run:#?}");
    assert_eq!(outcomes(&run.receipt, "settled").len(), 3, "{run:#?}");
}

/// The Python SDK: whole answers, streams, token counts, models.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn a11_a13_the_python_sdk_calls() {
    let rig = Rig::new();
    let (run, told) = python(&rig, "2", "call");
    assert_called(&rig, &run, &told);
    let refused = outcomes(&run.receipt, "refused");
    assert_eq!(refused.len(), 0);
}

/// The TypeScript SDK: the same, and a refusal with labproxy's sentence after one attempt.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn the_typescript_sdk_calls() {
    let rig = Rig::new();
    let folder = clients().display().to_string();
    let run = rig.run("2", &["node", &script("typescript.mjs"), &folder]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_called(&rig, &run, &told);
    assert_eq!(told["refusal"]["status"], 402, "{told:#}");
    assert!(
        told["refusal"]["said"]
            .as_str()
            .unwrap()
            .contains("labproxy:")
    );
    assert_eq!(outcomes(&run.receipt, "refused").len(), 1);
}

/// Each kind of refusal: the SDK's user reads labproxy's sentence, and nothing is asked twice.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn k24_the_python_sdk_asks_once_for_each_refusal() {
    let rig = Rig::new();
    let (run, told) = python(&rig, "0.01", "refuse");
    for (what, status, kind) in [
        ("feature", 402, "PaymentRequiredError"),
        ("model", 402, "PaymentRequiredError"),
        ("fast", 400, "BadRequestError"),
        ("endpoint", 403, "PermissionDeniedError"),
        ("cap", 402, "PaymentRequiredError"),
    ] {
        assert_eq!(told[what]["status"], status, "{what}: {told:#}");
        assert_eq!(told[what]["type"], kind, "{what}: {told:#}");
        let said = told[what]["said"].as_str().unwrap();
        assert!(said.contains("labproxy"), "{what}: {said}");
    }
    assert_eq!(rig.messages().len(), 0);
    // What did not fit was counted first, which is free.
    let counted = "/v1/messages/count_tokens";
    let seen = rig.standin.requests();
    assert!(seen.iter().all(|seen| seen.target == counted), "{seen:#?}");
    // The endpoint's refusal is no `POST /v1/messages`, so it has no line.
    assert_eq!(
        run.receipt["requests"].as_array().unwrap().len(),
        4,
        "{run:#?}"
    );
}

/// A stream that is cut before its usage: the client sees the cut, the whole hold is kept, and that
/// is no less than what was served.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn d03_a_cut_stream_keeps_its_hold() {
    let rig = Rig::new();
    let (run, told) = python(&rig, "2", "broken");
    assert_ne!(told["error"], Value::Null, "{told:#}");
    assert!(told["events"].as_u64().unwrap() > 0);
    let kept = outcomes(&run.receipt, "kept");
    assert_eq!(kept.len(), 1, "{run:#?}");
    assert_eq!(kept[0]["charged_pico_usd"], kept[0]["held_pico_usd"]);
    assert!(run.receipt["spent_pico_usd"].as_u64().unwrap() >= rig.served().pico_usd);
    assert_eq!(rig.messages().len(), 1, "a POST is never sent twice");
}
