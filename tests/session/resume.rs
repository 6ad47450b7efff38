//! A session that goes on.

use crate::rig::{KEY_VARIABLE, Rig, Running, eventually, finish, is_alive};

fn resume(rig: &Rig, session: &str, agent: &[&str]) -> std::process::Command {
    let url = rig.standin.url();
    let credential = format!("env:{KEY_VARIABLE}");
    let mut arguments = vec!["session", "resume", session, "--upstream", &url];
    arguments.extend(["--credential", &credential, "--"]);
    arguments.extend(agent);
    rig.command(&arguments)
}

/// The second run has the first one's cap and what it spent, in one receipt; its placeholder is new
/// and the old one is refused (threat 27).
#[test]
fn t27_a_resumed_session_has_its_money_and_a_new_placeholder() {
    let rig = Rig::new();
    let done = rig.run(
        &[],
        &["sh", "-c", "$CALL hello; echo $ANTHROPIC_API_KEY > old"],
    );
    assert_eq!(done.stdout, "200", "{done:?}");
    let session = rig.session();
    let spent = rig.receipt()["spent_pico_usd"].as_u64().unwrap();
    let script = "$CALL hello; new=$ANTHROPIC_API_KEY; ANTHROPIC_API_KEY=$(cat old); $CALL hello; \
                  [ \"$new\" != \"$ANTHROPIC_API_KEY\" ]";
    let done = finish(&mut resume(&rig, &session[..9], &["sh", "-c", script]));
    assert_eq!(done.stdout, "200401", "{done:?}");
    assert_eq!(done.code, Some(0));
    let shown = rig.show(&session);
    assert_eq!(shown["cap_pico_usd"], 2_000_000_000_000_u64);
    assert!(shown["spent_pico_usd"].as_u64().unwrap() > spent);
    assert_eq!(shown["spent_pico_usd"], rig.standin.served().pico_usd);
    assert_eq!(shown["requests"].as_array().unwrap().len(), 2);
    assert_eq!(rig.list().len(), 1);
}

/// A session that somebody owns is not resumed: the second is told who holds it; of two at once one
/// wins (threat 27, L03).
#[test]
fn t27_l03_of_two_resumes_one_wins() {
    let rig = Rig::new();
    assert_eq!(rig.run(&[], &["true"]).code, Some(0));
    let session = rig.session();
    let agent = ["sh", "-c", "echo $$; read go"];
    let both = (
        Running::of(&mut resume(&rig, &session, &agent)),
        Running::of(&mut resume(&rig, &session, &agent)),
    );
    let owner = eventually("an owner with an agent", || {
        let pid = i32::try_from(rig.list()[0]["pid"].as_i64()?).unwrap();
        [both.0.pid(), both.1.pid()].contains(&pid).then_some(pid)
    });
    let (mut winner, loser) = if both.0.pid() == owner {
        both
    } else {
        (both.1, both.0)
    };
    // Before the winner ends: a slow loser would find the session free then, and win as well.
    let done = loser.finish();
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(
        done.stderr.contains(&format!("process {owner}")),
        "{done:?}"
    );
    winner.line();
    winner.say("go");
    assert_eq!(winner.finish().code, Some(0));
    assert!(!is_alive(owner));
}

/// What a killed owner left is settled before the next run begins.
#[test]
fn t27_a_resume_settles_what_a_killed_owner_left() {
    let rig = Rig::new();
    let script = "exec $CALL '[[scenario: late 600000]]'";
    let running = Running::of(&mut rig.start(&[], &["sh", "-c", script]));
    eventually("the request", || (rig.arrived() == 1).then_some(()));
    let session = rig.session();
    running.signal("KILL");
    drop(running.finish());
    let done = finish(&mut resume(&rig, &session, &["sh", "-c", "$CALL hello"]));
    assert_eq!(done.stdout, "200", "{done:?}");
    let shown = rig.show(&session);
    assert_eq!(shown["requests"][0]["outcome"], "kept");
    assert_eq!(shown["requests"][1]["outcome"], "settled");
    assert_eq!(shown["held_pico_usd"], 0);
}
