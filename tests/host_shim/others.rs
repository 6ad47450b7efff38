//! Who may call through a session's port on its host: whoever is its user and has its placeholder.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use crate::rig::{Done, World};
use crate::sshd::Setup;

/// The user of the session, and another of the same host.
const OWN: u32 = 30_003;
const OTHER: u32 = 30_001;
const BODY: &str =
    r#"{"model":"claude-haiku-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;

/// An agent that tells how it may call, and stays until its input ends.
pub(crate) struct Caller {
    child: Child,
    pub(crate) port: u16,
    pub(crate) placeholder: String,
}

impl Caller {
    pub(crate) fn start(world: &World, more: &[(&str, &str)]) -> Self {
        let text = "echo $ANTHROPIC_BASE_URL; echo $ANTHROPIC_API_KEY; exec cat";
        let mut child = world
            .bare(&["sh", "-c", text])
            .envs(more.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let mut line = || lines.next().expect("the agent tells").unwrap();
        let (url, placeholder) = (line(), line());
        let port = url.rsplit_once(':').unwrap().1.trim_end_matches('/');
        let port = port.parse().unwrap();
        assert!(placeholder.starts_with("lp-"), "{placeholder}");
        Self {
            child,
            port,
            placeholder,
        }
    }

    /// What a user of the host hears to a call with these lines in its head.
    pub(crate) fn ask(&self, world: &World, user: u32, head: &str) -> String {
        let length = BODY.len();
        let request = format!(
            "POST /v1/messages HTTP/1.1\\r\\nhost: x\\r\\n{head}anthropic-version: 2023-06-01\\r\\n\
             content-type: application/json\\r\\ncontent-length: {length}\\r\\n\
             connection: close\\r\\n\\r\\n"
        );
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{} || exit 9\nprintf '{request}' >&3\n\
             printf %s '{BODY}' >&3\ncat <&3 2>/dev/null || true",
            self.port
        );
        world.host.ask(&as_user(user, &script))
    }

    pub(crate) fn end(mut self) -> Done {
        drop(self.child.stdin.take());
        self.child.wait_with_output().unwrap().into()
    }
}

/// A command of `sh` that has a user of the host run this text by `bash`.
fn as_user(user: u32, text: &str) -> String {
    let quoted = text.replace('\'', "'\\''");
    format!("setpriv --reuid={user} --regid={user} --clear-groups bash -c '{quoted}'")
}

/// With the placeholder the session's user is served; without it, or with another, it is a 401 through
/// the whole chain; another user is not answered and finds no socket, even with the placeholder.
#[test]
fn t17_tu12_only_the_user_with_the_placeholder_is_served() {
    let world = World::new();
    let caller = Caller::start(&world, &[]);
    let key = format!("x-api-key: {}\\r\\n", caller.placeholder);
    for head in ["", "x-api-key: lp-not-this-one\\r\\n"] {
        let answer = caller.ask(&world, OWN, head);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(answer.contains("authentication_error"), "{answer}");
    }
    assert_eq!(world.standin.requests().len(), 0);
    assert_eq!(caller.ask(&world, OTHER, &key), "");
    assert_eq!(caller.ask(&world, OTHER, ""), "");
    assert_eq!(world.standin.requests().len(), 0);
    let answer = caller.ask(&world, OWN, &key);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(world.standin.requests().len(), 1);

    let sockets = world.host.ask("find /tmp /run -name '*.sock'");
    for name in ["agent.sock", "supervisor.sock", "proxy.sock"] {
        let socket = sockets.lines().find(|path| path.ends_with(name));
        let socket = socket.unwrap_or_else(|| panic!("{name} is not in {sockets}"));
        let mode = world
            .host
            .ask(&format!("stat -c '%a %u' {socket} $(dirname {socket})"));
        assert_eq!(mode, format!("600 {OWN}\n700 {OWN}"), "{socket}");
        let look = format!("test -S {socket} && echo seen");
        assert_eq!(world.host.ask(&as_user(OWN, &look)), "seen");
        assert_eq!(world.host.ask(&as_user(OTHER, &look)), "", "{socket}");
    }
    let done = caller.end();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.host.ask("find /tmp /run -name '*.sock'"), "");
}

/// Where users do not see each other's processes, what is not seen is not taken for gone: a session
/// lives on beside another user's and beside another of its own user's, whose starts sweep.
#[test]
fn t35_sweeps_where_processes_are_hidden_leave_the_living_alone() {
    let world = World::with(Setup {
        prepare: "mount -o remount,hidepid=2 /proc".to_owned(),
        ..Setup::default()
    });
    let caller = Caller::start(&world, &[]);
    let key = format!("x-api-key: {}\\r\\n", caller.placeholder);
    let sockets = || world.host.ask("find /tmp /run -name '*.sock' | sort");
    let before = sockets();
    assert_eq!(before.lines().count(), 3, "{before}");
    let seen = world.host.ask(&as_user(OTHER, "ls -d /proc/1 2>&1"));
    assert!(
        seen.contains("No such file"),
        "processes are hidden: {seen}"
    );
    for (user, id) in [("sh", OTHER), ("bash", OWN)] {
        world.configure_user(user, "");
        let done = Done::from(world.bare(&["id", "-u"]).output().unwrap());
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.stdout, format!("{id}\n"), "{done:?}");
        assert_eq!(sockets(), before, "after {user}");
    }
    assert!(caller.ask(&world, OWN, &key).starts_with("HTTP/1.1 200 "));
    assert_eq!(caller.end().code, Some(0));
    world.host.assert_quiet();
}
