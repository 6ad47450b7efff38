//! Sessions on a host whose link, or whose controller, is lost.

use crate::rig::{Running, descendants, eventually, is_alive, kill};
use crate::sshd::{HOST, World};

pub(crate) fn ssh_of(labproxy: i32) -> Option<i32> {
    let is_ssh = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"ssh\0"))
    };
    descendants(labproxy).into_iter().find(is_ssh)
}

/// ssh is killed: the user is told once of the loss and once of the return, and nothing is missing.
#[test]
fn a_killed_ssh_is_replaced_and_nothing_is_lost() {
    let world = World::new();
    let script = "i=0; while [ $i -lt 60 ]; do echo $i; i=$((i+1)); sleep 0.05; done; read last; \
                  echo $last; exit 3";
    let mut running = Running::of(&mut world.start(&[], &["sh", "-c", script]));
    assert_eq!(running.line(), "0");
    let ssh = ssh_of(running.pid()).unwrap();
    kill("KILL", ssh);
    for number in 1..60 {
        assert_eq!(running.line(), number.to_string());
    }
    running.say("last");
    assert_eq!(running.line(), "last");
    running.close_stdin();
    let done = running.finish();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert_eq!(done.stderr.matches("link to gpu1 lost").count(), 1);
    assert_eq!(done.stderr.matches("link to gpu1 back after").count(), 1);
}

/// A killed controller leaves its agent for the lease; a resume ends that one before it begins anew,
/// with another placeholder.
#[test]
fn t27_a_resume_ends_the_old_agent_first() {
    let world = World::new();
    let script = "echo $$ >pid; echo $ANTHROPIC_API_KEY >key; exec sleep 1000";
    let session = world.detached(&[], &["sh", "-c", script]);
    let agent = world.number(&session, "pid");
    let owner = world.rig.list()[0]["pid"].as_i64().unwrap();
    kill("KILL", i32::try_from(owner).unwrap());
    eventually("the owner's end", || {
        (world.rig.list()[0]["state"] == "interrupted").then_some(())
    });
    assert!(is_alive(agent));
    let script = format!(
        "! kill -0 {agent} && test $(cat key) != $ANTHROPIC_API_KEY && {} hi",
        world.rig.path("call").display()
    );
    let url = world.rig.standin.url();
    let credential = format!("env:{}", crate::rig::KEY_VARIABLE);
    let done = world.rig.labproxy(&[
        "session",
        "resume",
        &session,
        "--host",
        HOST,
        "--upstream",
        &url,
        "--credential",
        &credential,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, "200");
    assert!(!is_alive(agent));
}

/// After the lease nothing of a killed controller's session runs on the host; its work stays.
#[test]
fn t13_t39_a_killed_controller_leaves_nothing_after_the_lease() {
    let world = World::new();
    world.lease("2s");
    let script = "echo $$ >pid; exec sleep 1000";
    let session = world.detached(&[], &["sh", "-c", script]);
    let agent = world.number(&session, "pid");
    let owner = i32::try_from(world.rig.list()[0]["pid"].as_i64().unwrap()).unwrap();
    let ssh = ssh_of(owner).unwrap();
    kill("KILL", owner);
    eventually("the end of ssh", || (!is_alive(ssh)).then_some(()));
    eventually("the end of the agent", || (!is_alive(agent)).then_some(()));
    assert!(world.there(&session).join("workspace/pid").is_file());
    let done = world.rig.labproxy(&["session", "stop", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout
            .contains("nothing of the session is left on gpu1")
    );
}

/// Makes one streamed call whose answer takes seconds.
const STREAM: &str = r#"#!/bin/sh
curl -sSN -m 60 "$ANTHROPIC_BASE_URL/v1/messages" -H "x-api-key: $ANTHROPIC_API_KEY" \
  -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' \
  -d '{"model":"claude-haiku-4-5","max_tokens":100,"stream":true,
       "messages":[{"role":"user","content":"hi [[scenario: slow 250]]"}]}'
"#;

/// An answer that a lost link cuts is read to its end and charged; the agent's second try is a request
/// of its own, and the receipt says of both that they belong together.
#[test]
fn a_cut_answer_and_its_second_try_are_marked_and_charged() {
    let world = World::new();
    let stream = world
        .rig
        .write_program("stream", STREAM)
        .display()
        .to_string();
    let receipt = world.rig.path("receipt.json").display().to_string();
    let script = format!(
        "{stream} >one 2>err; echo cut $?; {stream} >two 2>err; echo again $?; {stream} >three; \
         echo third $?"
    );
    let running = Running::of(&mut world.start(&["--receipt", &receipt], &["sh", "-c", &script]));
    let sessions = world.rig.path("there/sessions");
    eventually("the answer's beginning", || {
        let session = std::fs::read_dir(&sessions).ok()?.next()?.ok()?.path();
        let begun = std::fs::metadata(session.join("workspace/one")).ok()?;
        (begun.len() > 0).then_some(())
    });
    kill("KILL", ssh_of(running.pid()).unwrap());
    assert_ne!(running.line(), "cut 0");
    assert_eq!(running.line(), "again 0");
    assert_eq!(running.line(), "third 0");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    let receipt = world.rig.receipt();
    let served = world.rig.standin.served();
    assert_eq!(world.rig.arrived(), 3);
    assert_eq!(receipt["spent_pico_usd"], served.pico_usd);
    let requests = receipt["requests"].as_array().unwrap();
    let charges = |request: &serde_json::Value| request["charged_pico_usd"].as_u64().unwrap();
    assert_eq!(charges(&requests[0]), charges(&requests[1]));
    let reason = |at: usize| {
        requests[at]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(
        reason(0).starts_with("link_lost: the link to the host was lost"),
        "{receipt}"
    );
    let first = requests[0]["id"].as_str().unwrap();
    let again =
        format!("link_lost: sent again, since the link was lost during the answer to {first}");
    assert_eq!(reason(1), again, "{receipt}");
    assert_eq!(reason(2), "", "{receipt}");
}
