//! Sessions that share a host, a session that is asked for twice, and statuses that are told apart.

use std::process::Command;

use crate::rig::{KEY_VARIABLE, Running, eventually, finish, is_alive};
use crate::sshd::{HOST, World};

/// The agent's status is labproxy's own, 128+n when a signal ended it; the receipt tells an agent that
/// was killed from one that says 137, and none of them is taken for an end of ssh, whose 255 it may be.
#[test]
fn tu09_the_agents_status_on_a_host_is_passed_on() {
    let world = World::new();
    let receipt = world.rig.path("receipt.json").display().to_string();
    let end = |script: &str| {
        let done = finish(&mut world.start(&["--receipt", &receipt], &["sh", "-c", script]));
        let receipt = world.rig.receipt();
        assert_eq!(receipt["end_reason"], "agent_exit", "{script}: {done:?}");
        assert!(!done.stderr.contains("lost"), "{script}: {done:?}");
        (done.code, receipt["agent"].clone())
    };
    for status in [0, 1, 7, 126, 127, 137, 143, 255] {
        let (code, agent) = end(&format!("exit {status}"));
        assert_eq!(code, Some(status));
        assert_eq!(agent["exit_code"], status);
        assert!(agent["signal"].is_null(), "{agent}");
    }
    for (signal, name, status) in [("KILL", "SIGKILL", 137), ("TERM", "SIGTERM", 143)] {
        let (code, agent) = end(&format!("kill -{signal} $$"));
        assert_eq!(code, Some(status));
        assert_eq!(agent["signal"], name);
        assert!(agent["exit_code"].is_null(), "{agent}");
    }
}

/// Two sessions at once each have their own port, placeholder, directory and bill; the placeholder of
/// one is worth nothing to the other, and the end of one does not disturb the other.
#[test]
fn two_sessions_on_one_host_are_apart() {
    let world = World::new();
    let call = world.rig.path("call").display().to_string();
    let script = format!(
        "echo $ANTHROPIC_API_KEY; echo $ANTHROPIC_BASE_URL; pwd; while read -r key; do \
         [ $key = own ] || export ANTHROPIC_API_KEY=$key; {call} hi; echo; done"
    );
    let agent = ["sh", "-c", &script];
    let mut both = [(); 2].map(|()| Running::of(&mut world.start(&[], &agent)));
    let told = [&both[0], &both[1]].map(|one| [(); 3].map(|()| one.line()));
    let [one, other] = &told;
    assert!(one.iter().zip(other).all(|(one, other)| one != other));
    let names = [both[0].pid(), both[1].pid()].map(|pid| {
        let listed = world.rig.list();
        let own = listed.iter().find(|session| session["pid"] == pid).unwrap();
        own["session"].as_str().unwrap().to_owned()
    });
    for (one, calls) in [(0, 1), (1, 2)] {
        for _ in 0..calls {
            both[one].say("own");
            assert_eq!(both[one].line(), "200");
        }
    }
    both[0].say(&told[1][0]);
    assert_eq!(both[0].line(), "401");
    let [mut first, mut second] = both;
    first.close_stdin();
    let done = first.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stderr
            .contains("nothing of the session is left on gpu1")
    );
    second.say("own");
    assert_eq!(second.line(), "200");
    second.close_stdin();
    let done = second.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    let billed = names.map(|name| world.rig.show(&name)["requests"].as_array().unwrap().len());
    assert_eq!(billed, [1, 3]);
    assert_eq!(world.rig.arrived(), 4);
}

/// A session that runs is not started a second time: the second is told who owns it, and the agent on
/// the host is the same.
#[test]
fn t27_the_same_session_twice_on_a_host_is_refused() {
    let world = World::new();
    let session = world.detached(&[], &["sh", "-c", "echo $$ >pid; exec sleep 1000"]);
    let agent = world.number(&session, "pid");
    let owner = world.rig.list()[0]["pid"].as_i64().unwrap();
    let resume = |agent: &[&str]| -> Command {
        let url = world.rig.standin.url();
        let credential = format!("env:{KEY_VARIABLE}");
        let mut arguments = vec!["session", "resume", &session, "--host", HOST];
        arguments.extend(["--upstream", &url, "--credential", &credential, "--"]);
        arguments.extend(agent);
        world.rig.command(&arguments)
    };
    let done = finish(&mut resume(&["sh", "-c", "touch second"]));
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(done.stderr.contains(&owner.to_string()), "{done:?}");
    assert!(!world.there(&session).join("workspace/second").exists());
    assert!(is_alive(agent));
    assert_eq!(world.rig.list()[0]["pid"].as_i64(), Some(owner));
    let done = world.rig.labproxy(&["session", "stop", &session]);
    assert_eq!(done.code, Some(0), "{done:?}");
    eventually("the end", || (!is_alive(agent)).then_some(()));
}
