//! Claude Code, headless.

use crate::rig::{Rig, claude, outcomes};

/// One turn: the answer is printed, the bill is exact.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn claude_code_answers_one_turn() {
    let rig = Rig::new();
    let run = rig.run("2", &[&claude(), "-p", "Say hello."]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(
        run.stdout.trim(),
        "The stand-in says hello; no model was asked."
    );
    rig.assert_exact(&run, 1);
    let settled = outcomes(&run.receipt, "settled");
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0]["model"], "claude-opus-5-5");
    assert_eq!(settled[0]["stream"], true);
    assert_eq!(settled[0]["max_tokens"]["asked"], 128_000);
    assert_eq!(run.receipt["agent"]["exit_code"], 0);
}

/// A turn with a tool writes a file into the workspace.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn claude_code_writes_a_file() {
    let rig = Rig::new();
    let prompt = "Please. [[scenario: write-file hello.txt]]";
    let agent = [&claude(), "-p", prompt, "--permission-mode", "acceptEdits"];
    let run = rig.run("2", &agent);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let written = std::fs::read_to_string(rig.path("workspace/hello.txt")).unwrap();
    assert_eq!(written, "Written by an agent that never saw the key.\n");
    rig.assert_exact(&run, 2);
    // The second turn read what the first wrote into the prompt cache.
    let second = outcomes(&run.receipt, "settled")[1];
    let read = second["usage"]["cache_read_input_tokens"].as_u64().unwrap();
    assert!(read > 1_024, "{second:#?}");
}

/// Three subagents at once, each with its own requests, share one cap and one bill.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn claude_code_runs_subagents_in_parallel() {
    let rig = Rig::new();
    let run = rig.run("5", &[&claude(), "-p", "Please. [[scenario: agents 3]]"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    rig.assert_exact(&run, 5);
    let subagents = rig.messages();
    let of_subagents = subagents.iter().filter(|seen| {
        let mut headers = seen.headers.iter();
        headers.any(|(name, _)| name == "x-claude-code-agent-id")
    });
    assert_eq!(of_subagents.count(), 3);
}

/// Three subagents under a cap that cannot hold three whole requests at once: all are clamped, one may
/// wait for another, and
/// all get their answer.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn subagents_share_a_small_cap() {
    let rig = Rig::new();
    let run = rig.run("0.90", &[&claude(), "-p", "Please. [[scenario: agents 3]]"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    rig.assert_exact(&run, 5);
    let settled = outcomes(&run.receipt, "settled");
    assert_eq!(settled.len(), 5, "{run:#?}");
    let sent = settled
        .iter()
        .map(|request| request["max_tokens"]["sent"].as_u64());
    assert!(
        sent.max() < Some(Some(128_000)),
        "all were clamped: {run:#?}"
    );
}

/// An overloaded provider is retried by the CLI, and only the answer is billed.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn a18_an_overload_is_passed_on_and_costs_nothing() {
    let rig = Rig::new();
    let run = rig.run("2", &[&claude(), "-p", "Please. [[scenario: error 529 1]]"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    rig.assert_exact(&run, 1);
    assert_eq!(rig.messages().len(), 2);
    assert_eq!(outcomes(&run.receipt, "free").len(), 1, "{run:#?}");
}

/// Settings files that name another server, in the home directory and in the workspace, do not lead
/// the CLI past the proxy; those of the caller stay in force otherwise.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn settings_files_do_not_lead_past_the_proxy() {
    for place in [
        "home/.claude/settings.json",
        "workspace/.claude/settings.json",
        "workspace/.claude/settings.local.json",
        "given.json",
    ] {
        let rig = Rig::new();
        let decoy = Rig::new();
        let settings = serde_json::json!({"env": {
            "ANTHROPIC_BASE_URL": decoy.standin.url(),
            "ANTHROPIC_API_KEY": "sk-elsewhere",
            "ANTHROPIC_AUTH_TOKEN": "elsewhere",
            "MARK": "kept",
        }});
        rig.write(place, &settings.to_string());
        let given = rig.path("given.json").display().to_string();
        let claude = claude();
        let prompt = "Please. [[scenario: bash echo $MARK > mark.txt]]";
        let mut agent = vec![claude.as_str(), "-p", prompt, "--allowedTools", "Bash"];
        if place == "given.json" {
            agent.extend(["--settings", &given]);
        }
        let run = rig.run("2", &agent);
        assert_eq!(run.code, Some(0), "{place}: {run:#?}");
        assert_eq!(decoy.standin.requests().len(), 0, "{place}");
        rig.assert_exact(&run, 2);
        let mark = std::fs::read_to_string(rig.path("workspace/mark.txt")).unwrap();
        assert_eq!(mark, "kept\n", "{place}");
    }
}

/// A clamped answer that ends inside a tool call is not asked for again and again: the next request
/// must be able to get twice as much, else it is refused.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn a_cut_tool_call_does_not_loop() {
    let rig = Rig::new();
    let prompt = "Please. [[scenario: write-file big.txt 100000]]";
    let agent = [&claude(), "-p", prompt, "--permission-mode", "acceptEdits"];
    let run = rig.run("1.50", &agent);
    assert_eq!(run.code, Some(1), "{run:#?}");
    let served = rig.served();
    assert!((1..=3).contains(&served.answers), "{served:#?}");
    assert!(
        served
            .calls
            .iter()
            .all(|call| call.stop_reason == "max_tokens")
    );
    assert_eq!(run.receipt["spent_pico_usd"], served.pico_usd, "{run:#?}");
    assert_eq!(outcomes(&run.receipt, "refused").len(), 1, "{run:#?}");
    assert!(run.stdout.contains("API Error: 402 labproxy:"), "{run:#?}");
    let sent = outcomes(&run.receipt, "settled")[0]["max_tokens"].clone();
    assert!(sent["sent"].as_u64() < sent["asked"].as_u64(), "{sent}");
    assert!(!rig.path("workspace/big.txt").exists());
}

/// Everything the CLI and labproxy connect to is on this machine: no look-up of a name, no call
/// beside the proxy.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn nothing_talks_to_the_outside() {
    let rig = Rig::new();
    let trace = rig.path("trace.txt");
    let mut command = tokio::process::Command::new("strace");
    command
        .args([
            "-f",
            "-qq",
            "-e",
            "trace=connect,sendto,sendmsg,sendmmsg",
            "-o",
        ])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_labproxy"))
        .args(rig.arguments("2"))
        .args(["--", &claude(), "-p", "Say hello."])
        .current_dir(rig.path("workspace"))
        .env_clear()
        .envs(rig.environment());
    let run = rig.finish(command);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let addressed: Vec<&str> = trace
        .lines()
        .filter(|line| line.contains("sa_family=AF_INET"))
        .collect();
    assert!(addressed.len() >= 2, "the CLI and the proxy both connect");
    for line in addressed {
        let local = line.contains("inet_addr(\"127.0.0.1\")") && !line.contains("htons(53)");
        assert!(local, "{line}");
    }
    rig.assert_exact(&run, 1);
}
