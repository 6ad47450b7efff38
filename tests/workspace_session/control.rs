//! A workspace that is pulled and pushed over the control socket of its running session.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::{here, listed, read, world, write};
use crate::rig::{Running, descendants, eventually, finish, kill};
use crate::sshd::World;
use crate::subscriber::Subscriber;

/// A running session with the workspace, whose agent works, and its name.
fn started(world: &World, script: &str) -> (Running, String) {
    let options = ["--workspace", "."];
    let running = Running::of(&mut world.start(&options, &["sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    // The last of the start comes after the agent's first word; nothing is pushed meanwhile.
    let session = world.rig.session();
    let held = held(world);
    eventually("a session that can be asked", || {
        let (_, answer) = post(world, &session, "push");
        (!error(&answer).contains("not started yet")).then_some(())
    });
    drop(held);
    (running, session)
}

/// The mirror's lock, as another process that works with it has it.
fn held(world: &World) -> std::fs::File {
    let mirrors = std::fs::read_dir(world.rig.path("state/labproxy/mirrors"));
    let mirror = mirrors.unwrap().next().unwrap().unwrap().path();
    let lock = std::fs::File::open(mirror.join("lock")).unwrap();
    lock.try_lock().unwrap();
    lock
}

fn error(answer: &Value) -> &str {
    answer["error"].as_str().unwrap_or_default()
}

fn post(world: &World, session: &str, what: &str) -> (u16, Value) {
    world.rig.ask(session, "POST", &format!("/v1/{what}"), "")
}

/// The status of a session's workspace.
fn workspace(world: &World, session: &str) -> Value {
    let (status, answer) = world.rig.ask(session, "GET", "/v1/status", "");
    assert_eq!(status, 200, "{answer}");
    answer["workspace"].clone()
}

/// Ends a session's agent, and then the session.
fn ended(mut running: Running) {
    running.say("go");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// A pull over the socket brings here what is there, a push brings there what is here: the trees are equal
/// afterwards, and the answers, the status and the list name them.
#[test]
fn a_running_session_is_pulled_and_pushed_over_its_socket() {
    let world = world();
    let script = "echo made >sub/made; echo ready; read go; read again; cat here.txt";
    let (mut running, session) = started(&world, script);
    let pushed = workspace(&world, &session)["last_push"].clone();
    assert!(pushed["tree"].is_string(), "{pushed}");

    let (status, answer) = post(&world, &session, "pull");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(read(&world, "sub/made").unwrap(), "made\n");
    assert_eq!(answer["workspace"], "brought", "{answer}");
    assert_eq!(answer["files"], 4, "{answer}");
    assert_eq!(answer["created"], 1, "{answer}");
    assert_eq!(answer["received_bytes"], 5, "{answer}");
    let pull = &workspace(&world, &session)["last_pull"];
    assert_eq!(pull["tree"], answer["tree"]);
    assert_eq!(pull["generation"], 1);
    assert_eq!(
        listed(&world, &session)["workspace"]["last_pull"],
        pull["at"]
    );
    let command = ["mirror", "pull", "--session", &session, "--json"];
    let by_command: Value = serde_json::from_str(&world.rig.labproxy(&command).stdout).unwrap();
    assert_eq!(by_command["tree"], answer["tree"]);
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&by_command), keys(&answer));

    running.say("go");
    write(&world, "here.txt", "from here\n");
    let (status, answer) = post(&world, &session, "push");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["created"], 1, "{answer}");
    assert_eq!(answer["sent_bytes"], 10, "{answer}");
    let there = world.there(&session).join("workspace/here.txt");
    assert_eq!(std::fs::read_to_string(there).unwrap(), "from here\n");
    let now = workspace(&world, &session);
    assert_eq!(now["last_push"]["tree"], answer["tree"]);
    assert_eq!(now["doing"], Value::Null);
    let verify = ["mirror", "verify", "--session", &session];
    assert_eq!(world.rig.labproxy(&verify).code, Some(0));
    running.say("again");
    let done = running.finish();
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "from here"),
        "{done:?}"
    );
    let receipt = world.rig.show(&session);
    assert_eq!(receipt["workspace"]["pulls"], 3, "{receipt}");
}

/// What a command refuses without options is refused over the socket too: nothing is changed, and the answer
/// says what was found and what helps.
#[test]
fn what_a_command_refuses_is_refused_over_the_socket() {
    let world = world();
    let script = "echo ready; read go; echo there >a.txt; echo done; read go; echo one >a.txt; \
                  echo done; read go; rm -r a.txt sub; echo done; read go";
    let (mut running, session) = started(&world, script);
    write(&world, ".env", "A=b\n");
    let (status, answer) = post(&world, &session, "push");
    assert_eq!(status, 409, "{answer}");
    assert_eq!(error(&answer), "the tree holds what looks like secrets");
    assert!(
        answer["problems"][0]
            .as_str()
            .unwrap()
            .starts_with(".env: ")
    );
    assert!(
        answer["hints"][0]
            .as_str()
            .unwrap()
            .contains("--allow-secret")
    );
    std::fs::remove_file(here(&world, ".env")).unwrap();

    running.say("go");
    assert_eq!(running.line(), "done");
    write(&world, "a.txt", "edited here\n");
    let (status, answer) = post(&world, &session, "pull");
    assert_eq!(status, 409, "{answer}");
    assert!(error(&answer).contains("was edited since"), "{answer}");
    assert_eq!(answer["problems"], serde_json::json!(["a.txt"]));
    assert_eq!(answer["pull"]["workspace"], "edited", "{answer}");
    assert_eq!(read(&world, "a.txt").unwrap(), "edited here\n");
    let generation = &workspace(&world, &session)["last_pull"]["tree"];
    assert_eq!(*generation, answer["pull"]["tree"], "it is kept");
    let (status, answer) = post(&world, &session, "push");
    assert_eq!(status, 409, "{answer}");
    assert!(error(&answer).contains("has changed since"), "{answer}");
    let there = world.there(&session).join("workspace/a.txt");
    assert_eq!(std::fs::read_to_string(there).unwrap(), "there\n");

    write(&world, "a.txt", "one\n");
    running.say("go");
    assert_eq!(running.line(), "done");
    running.say("go");
    assert_eq!(running.line(), "done");
    let (status, answer) = post(&world, &session, "pull");
    assert_eq!(status, 409, "{answer}");
    assert!(
        answer["hints"].to_string().contains("--allow-empty"),
        "{answer}"
    );
    assert_eq!(read(&world, "a.txt").unwrap(), "one\n");
    ended(running);
}

/// One pull or push is done at a time, whoever does the other one; a caller who leaves ends nothing.
#[test]
fn one_pull_or_push_is_done_at_a_time() {
    let world = world();
    let (running, session) = started(&world, "echo work >made; echo ready; read go");
    let lock = held(&world);
    for word in ["pull", "push"] {
        let (status, answer) = post(&world, &session, word);
        assert_eq!(status, 409, "{answer}");
        assert!(error(&answer).contains("mirror"), "{answer}");
    }
    drop(lock);

    // A server that takes no connection: the pull hangs until it goes on.
    let server = i32::try_from(world.sshd_pid()).unwrap();
    kill("STOP", server);
    let socket = world.rig.sockets(&session).join("control.sock");
    let mut curl = Command::new("curl")
        .args(["-sS", "-X", "POST", "--unix-socket"])
        .arg(socket)
        .arg("http://localhost/v1/pull")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let doing = |what: Value| {
        eventually("another state of the workspace", || {
            (workspace(&world, &session)["doing"] == what).then_some(())
        });
    };
    doing("pull".into());
    for word in ["pull", "push"] {
        let (status, answer) = post(&world, &session, word);
        assert_eq!(status, 409, "{answer}");
        assert!(error(&answer).starts_with("a pull of this"), "{answer}");
    }
    curl.kill().unwrap();
    curl.wait().unwrap();
    assert_eq!(workspace(&world, &session)["doing"], "pull");
    kill("CONT", server);
    doing(Value::Null);
    assert_eq!(read(&world, "made").unwrap(), "work\n");
    ended(running);
}

/// Each example of the documentation works, and every call is documented.
#[test]
fn the_examples_of_the_documentation_work() {
    let world = world();
    let (running, session) = started(&world, "echo ready; read go");
    let socket = world.rig.sockets(&session).join("control.sock");
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/control-api.md");
    let text = std::fs::read_to_string(text).unwrap();
    let examples = text.lines().filter(|line| line.starts_with("curl "));
    // The one that ends the session comes last.
    let (last, others): (Vec<&str>, Vec<&str>) =
        examples.partition(|line| line.contains("/v1/stop"));
    assert_eq!((last.len(), others.len()), (1, 7));
    for example in [others, last].concat() {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {example}")]);
        shell.env("SOCKET", &socket);
        if example.contains("/v1/events") {
            let stream = Subscriber::from(Running::of(&mut shell));
            assert_eq!(stream.next("status")["session"], session);
            stream.leave();
            continue;
        }
        let done = finish(&mut shell);
        assert_eq!(done.code, Some(0), "{example} {done:?}");
        let answer: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(answer.get("error"), None, "{example} {done:?}");
    }
    assert_eq!(running.finish().code, Some(143));
    for call in [
        "GET /v1/status",
        "GET /v1/session",
        "GET /v1/audits",
        "GET /v1/audits/N",
        "POST /v1/topup",
        "POST /v1/pull",
        "POST /v1/push",
        "POST /v1/stop",
        "GET /v1/events",
    ] {
        assert!(text.contains(&format!("`{call}`")), "{call}");
    }
}

/// The ssh of a session.
fn ssh_of(labproxy: i32) -> i32 {
    let is_ssh = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"ssh\0"))
    };
    descendants(labproxy).into_iter().find(is_ssh).unwrap()
}

/// Pulls, pushes and the link are told as they become, those of the session's end too; without a link nothing
/// is pulled or pushed.
#[test]
fn the_workspace_and_the_link_are_told() {
    let mut world = world();
    let (running, session) = started(&world, "echo made >made; echo ready; read go");
    let subscriber = Subscriber::of(&world.rig.sockets(&session));
    let status = subscriber.next("status");
    assert_eq!(status["link"], "up");
    assert_eq!(status["workspace"], workspace(&world, &session));

    let (_, pulled) = post(&world, &session, "pull");
    assert_eq!(subscriber.next("pull")["what"], "began");
    let done = subscriber.next("pull");
    assert_eq!(done["what"], "done", "{done}");
    assert_eq!(done["tree"], pulled["tree"]);
    assert_eq!(done["received_bytes"], 5);
    assert_eq!(done["changed_files"], 1);
    write(&world, ".env", "A=b\n");
    let (_, refused) = post(&world, &session, "push");
    assert_eq!(subscriber.next("push")["what"], "began");
    let told = subscriber.next("push");
    assert_eq!(told["what"], "refused");
    assert_eq!(told["error"], refused["error"]);
    std::fs::remove_file(here(&world, ".env")).unwrap();

    world.stop_sshd();
    kill("KILL", ssh_of(running.pid()));
    assert_eq!(subscriber.next("link")["link"], "lost");
    for word in ["pull", "push"] {
        let (status, answer) = post(&world, &session, word);
        assert_eq!(status, 409, "{answer}");
        assert!(
            error(&answer).contains("the link to gpu1 is lost"),
            "{answer}"
        );
    }
    world.start_sshd();
    assert_eq!(subscriber.next("link")["link"], "up");
    let (status, answer) = post(&world, &session, "push");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(subscriber.next("push")["what"], "began");
    assert_eq!(subscriber.next("push")["tree"], answer["tree"]);

    ended(running);
    let rest = subscriber.rest();
    let names: Vec<&str> = rest.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["state", "state", "pull", "pull", "state", "end"]);
    assert_eq!(rest[1].data["state"], "pulling");
    assert_eq!(rest[3].data["what"], "done");
    let receipt = world.rig.show(&session);
    assert_eq!(rest[3].data["tree"], receipt["workspace"]["tree_after"]);
    assert_eq!(rest[5].data["end_reason"], "agent_exit");
    subscriber.ended();
}
