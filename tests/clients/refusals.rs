//! What a user sees when labproxy refuses, and how often the client asks.

use crate::rig::{Rig, Run, claude, outcomes};

/// Nothing was sent, one request was refused, and the user reads why.
fn assert_refused_once(rig: &Rig, run: &Run, sentence: &str) {
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert_eq!(rig.messages().len(), 0, "{run:#?}");
    assert_eq!(outcomes(&run.receipt, "refused").len(), 1, "{run:#?}");
    assert_eq!(run.receipt["requests"].as_array().unwrap().len(), 1);
    assert_eq!(run.receipt["spent_pico_usd"], 0);
    assert!(run.stdout.contains(sentence), "{run:#?}");
    rig.assert_no_key(run);
}

/// A cap that cannot hold one turn: one attempt, and the user reads what it needs.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn k24_a_cap_that_is_too_small_is_asked_once() {
    let rig = Rig::new();
    let run = rig.run("0.05", &[&claude(), "-p", "Say hello."]);
    assert_refused_once(&rig, &run, "API Error: 402 labproxy:");
    assert_eq!(run.receipt["cap_reached"], true);
}

/// A model without a price: one attempt, and the user reads its name.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn an_unpriced_model_is_asked_once() {
    let rig = Rig::new();
    let agent = [&claude(), "-p", "Say hello.", "--model", "claude-dream-9"];
    let run = rig.run("2", &agent);
    assert_refused_once(&rig, &run, "API Error: 402 labproxy:");
    assert!(run.stdout.contains("claude-dream-9"), "{run:#?}");
}

/// Fast mode: refused once, then the CLI goes on at standard speed by itself.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn fast_mode_goes_on_at_standard_speed() {
    let rig = Rig::new();
    let settings = r#"{"fastMode": true}"#;
    let agent = [&claude(), "-p", "Say hello.", "--settings", settings];
    let run = rig.run("2", &agent);
    assert_eq!(run.code, Some(0), "{run:#?}");
    rig.assert_exact(&run, 1);
    let refused = outcomes(&run.receipt, "refused");
    assert_eq!(refused.len(), 1, "{run:#?}");
    assert_eq!(refused[0]["status"], 400);
}

/// A feature whose price has no bound: the CLI's web search is a side request with a server tool;
/// it is refused once and the run goes on.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn web_search_is_refused_and_the_run_goes_on() {
    let rig = Rig::new();
    let prompt = r#"Please. [[scenario: tool WebSearch {"query":"labproxy"}]]"#;
    let agent = [&claude(), "-p", prompt, "--allowedTools", "WebSearch"];
    let run = rig.run("2", &agent);
    assert_eq!(run.code, Some(0), "{run:#?}");
    rig.assert_exact(&run, 2);
    let refused = outcomes(&run.receipt, "refused");
    assert_eq!(refused.len(), 1, "{run:#?}");
    assert_eq!(refused[0]["status"], 402);
    let reason = refused[0]["reason"].as_str().unwrap();
    assert!(reason.contains("web_search"), "{reason}");
}

/// An upstream that refuses the real credential: one attempt and no more, and labproxy says whose
/// credential it was. (The CLI turns the provider's "invalid x-api-key" into a sentence of its own
/// that sends the user to log in, which is why labproxy's line matters.)
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn a_refused_credential_is_shown_and_explained() {
    let rig = Rig::new();
    std::fs::write(rig.path("key"), "sk-ant-api03-some-other-key").unwrap();
    let run = rig.run("2", &[&claude(), "-p", "Say hello."]);
    assert_eq!(run.code, Some(1), "{run:#?}");
    let sentence = "the provider refused the real credential";
    assert!(run.stderr.contains(sentence), "{run:#?}");
    assert_eq!(run.receipt["requests"][0]["status"], 401, "{run:#?}");
    assert_eq!(run.receipt["spent_pico_usd"], 0);
    assert_eq!(rig.messages().len(), 1);
}
