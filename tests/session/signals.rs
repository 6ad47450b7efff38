//! Signals: to the agent, to labproxy, once and twice, at each step.

use std::time::Instant;

use crate::rig::{Rig, Running, descendants, eventually, is_alive};

fn with_receipt(rig: &Rig, agent: &[&str]) -> Running {
    let receipt = rig.path("receipt.json").display().to_string();
    Running::of(&mut rig.start(&["--receipt", &receipt], agent))
}

/// SIGTERM goes to the agent, whose own status is passed on; the end is "stopped".
#[test]
fn a_termination_is_passed_to_the_agent() {
    let rig = Rig::new();
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let running = with_receipt(&rig, &["sh", "-c", script]);
    assert_eq!(running.line(), "ready");
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.code, Some(9), "{done:?}");
    assert_eq!(rig.receipt()["end_reason"], "stopped");
    assert_eq!(rig.receipt()["agent"]["exit_code"], 9);
}

/// A request in flight ends within the grace and is settled by its usage, though its agent is gone.
#[test]
fn a_request_in_flight_is_settled_after_a_termination() {
    let rig = Rig::new();
    let script = "$CALL '[[scenario: late 1500]]' & wait";
    let running = with_receipt(&rig, &["sh", "-c", script]);
    eventually("the request", || (rig.arrived() == 1).then_some(()));
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.code, Some(143), "{done:?}");
    let receipt = rig.receipt();
    assert_eq!(receipt["requests"][0]["outcome"], "settled", "{receipt:#}");
    assert_eq!(receipt["spent_pico_usd"], rig.standin.served().pico_usd);
}

/// The second SIGTERM ends at once: a stubborn agent is killed, the hold is kept.
#[test]
fn a_second_termination_ends_at_once() {
    let rig = Rig::new();
    let script = "trap '' TERM; $CALL '[[scenario: late 600000]]' & while :; do sleep 0.05; done";
    let running = with_receipt(&rig, &["sh", "-c", script]);
    eventually("the request", || (rig.arrived() == 1).then_some(()));
    let begun = Instant::now();
    running.signal("TERM");
    let session = rig.session();
    eventually("the stop", || {
        let shown = rig.path(&format!("run/labproxy/{session}/control.sock"));
        let status = std::process::Command::new("curl")
            .args(["-s", "--unix-socket", shown.to_str().unwrap()])
            .arg("http://localhost/v1/status")
            .output()
            .unwrap();
        String::from_utf8_lossy(&status.stdout)
            .contains("stopping")
            .then_some(())
    });
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.code, Some(137), "{done:?}");
    assert!(
        begun.elapsed().as_secs() < 14,
        "the grace was not waited for"
    );
    let receipt = rig.receipt();
    assert_eq!(receipt["requests"][0]["outcome"], "kept", "{receipt:#}");
    assert_eq!(receipt["held_pico_usd"], 0);
    assert_eq!(
        receipt["spent_pico_usd"],
        receipt["requests"][0]["held_pico_usd"]
    );
}

/// Without a terminal an interrupt to labproxy alone is passed to the agent, which decides.
#[test]
fn an_interrupt_without_a_terminal_is_passed_on() {
    let rig = Rig::new();
    let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done";
    // A process group of its own is not the foreground of any terminal.
    let receipt = rig.path("receipt.json").display().to_string();
    let mut command = rig.start(&["--receipt", &receipt], &["sh", "-c", script]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let running = Running::of(&mut command);
    assert_eq!(running.line(), "ready");
    running.signal("INT");
    assert_eq!(running.line(), "caught");
    let done = running.finish();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert_eq!(rig.receipt()["end_reason"], "agent_exit");
}

/// Without an agent stdout is exactly the export lines, and an interrupt ends the session well.
#[test]
fn without_an_agent_the_exports_are_printed_until_an_interrupt() {
    let rig = Rig::new();
    let running = with_receipt(&rig, &[]);
    let (url, key) = (running.line(), running.line());
    assert!(
        url.starts_with("export ANTHROPIC_BASE_URL=http://127.0.0.1:"),
        "{url}"
    );
    assert!(key.starts_with("export ANTHROPIC_API_KEY=lp-"), "{key}");
    running.signal("INT");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, "");
    assert_eq!(rig.receipt()["end_reason"], "stopped");
}

/// An interrupt at any moment of the start leaves nothing running and nothing held.
#[test]
fn t39_an_interrupt_at_each_step_of_the_start_leaves_nothing() {
    let rig = Rig::new();
    for step in 0..12_u64 {
        let mut command = rig.start(&[], &["sleep", "603"]);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let running = Running::of(&mut command);
        let pid = running.pid();
        std::thread::sleep(std::time::Duration::from_millis(step * 8));
        let agents = descendants(pid);
        crate::rig::kill_group("INT", pid);
        let done = running.finish();
        assert!(matches!(done.code, None | Some(130)), "{step}: {done:?}");
        for agent in agents {
            eventually("the agent's end", || (!is_alive(agent)).then_some(()));
        }
        assert!(rig.list().iter().all(|one| one["state"] != "running"));
    }
    assert!(rig.list().iter().all(|one| one["held_pico_usd"] == 0));
}

/// An interrupt while the credential is fetched forgets the session that never began, and ends the
/// command that was asked.
#[test]
fn t39_an_interrupt_before_the_credential_is_there_leaves_no_session() {
    let rig = Rig::new();
    let asked = rig.path("asked");
    let config = format!(
        "[upstream.anthropic]\nbase_url = \"{}\"\n\
         credential = {{ command = [\"sh\", \"-c\", \"echo $$ > {}; sleep 606\"] }}\n",
        rig.standin.url(),
        asked.display()
    );
    std::fs::create_dir(rig.path("config/labproxy")).unwrap();
    std::fs::write(rig.path("config/labproxy/config.toml"), config).unwrap();
    let mut command = rig.command(&["session", "start", "--cap", "2", "--", "true"]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let running = Running::of(&mut command);
    let pid: i32 = eventually("the credential command", || {
        std::fs::read_to_string(&asked).ok()?.trim().parse().ok()
    });
    running.signal("INT");
    let done = running.finish();
    assert_eq!(done.code, Some(130), "{done:?}");
    eventually("the command's end", || (!is_alive(pid)).then_some(()));
    let left = |name: &str| std::fs::read_dir(rig.path(name)).unwrap().count();
    assert_eq!(left("state/labproxy/sessions"), 0);
    assert_eq!(left("run/labproxy"), 0);
}

/// SIGHUP, as when a terminal goes away, ends the session in order; `nohup` keeps it.
#[test]
fn a_hang_up_ends_in_order_unless_ignored() {
    let rig = Rig::new();
    let running = with_receipt(&rig, &["sh", "-c", "echo ready; exec sleep 604"]);
    assert_eq!(running.line(), "ready");
    running.signal("HUP");
    assert_eq!(running.finish().code, Some(129));
    assert_eq!(rig.receipt()["end_reason"], "stopped");
    let inner = rig.start(&[], &["sh", "-c", "echo ready; read go"]);
    let mut ignoring = std::process::Command::new("sh");
    ignoring
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear()
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let mut running = Running::of(&mut ignoring);
    assert_eq!(running.line(), "ready");
    running.signal("HUP");
    running.say("go");
    assert_eq!(running.finish().code, Some(0));
}
