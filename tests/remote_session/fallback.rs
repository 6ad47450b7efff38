//! Sessions on a host whose server forwards no unix sockets.

use crate::losses::ssh_of;
use crate::rig::{Done, Running, eventually, finish, kill};
use crate::sshd::World;

const FORBIDDEN: &str = "AllowStreamLocalForwarding no";

fn ran(world: &World) -> Done {
    let mark = world.rig.path("ran").display().to_string();
    let script = format!("touch {mark}; exec {} hi", world.rig.path("call").display());
    finish(&mut world.start(&[], &["sh", "-c", &script]))
}

/// Without the setting no agent starts, the setting and its cost are named, and nothing is left.
#[test]
fn tu02_a_forbidden_forward_ends_a_session_before_its_agent() {
    let mut world = World::new();
    world.reconfigure(FORBIDDEN, "");
    let done = ran(&world);
    assert_eq!(done.code, Some(125), "{done:?}");
    for told in [
        "AllowStreamLocalForwarding yes",
        "tcp_fallback = true",
        "any local user there can connect",
    ] {
        assert!(done.stderr.contains(told), "{told}: {done:?}");
    }
    assert!(!world.rig.path("ran").exists());
    assert_eq!(world.rig.arrived(), 0);
    assert_eq!(world.rig.list()[0]["state"], "ended");
    let named = done.stderr.split_once("forwards nothing at ").unwrap().1;
    let sockets = named.split_once("/link-1/").unwrap().0;
    eventually("the host's own end", || {
        (!std::path::Path::new(sockets).exists()).then_some(())
    });
}

/// With it a call is metered, and one line says what it costs.
#[test]
fn tu02_a_port_is_forwarded_where_the_user_allows_it() {
    let mut world = World::new();
    world.reconfigure(FORBIDDEN, "tcp_fallback = true");
    let done = ran(&world);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, "200", "{done:?}");
    let warned = done
        .stderr
        .matches("any local user of gpu1 can connect to it")
        .count();
    assert_eq!(warned, 1, "{done:?}");
    assert!(world.rig.path("ran").exists());
    assert_eq!(world.rig.arrived(), 1);
    assert!(
        done.stderr
            .contains("nothing of the session is left on gpu1")
    );
}

/// A server that forwards sockets is asked for nothing weaker.
#[test]
fn tu02_a_port_is_not_forwarded_where_a_socket_is() {
    let mut world = World::new();
    world.reconfigure("", "tcp_fallback = true");
    let done = ran(&world);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "200"),
        "{done:?}"
    );
    assert!(!done.stderr.contains("any local user"), "{done:?}");
}

/// The next link forwards a port too, and the agent goes on.
#[test]
fn tu02_a_lost_link_with_a_port_comes_back() {
    let mut world = World::new();
    world.reconfigure(FORBIDDEN, "tcp_fallback = true");
    let call = world.rig.path("call").display().to_string();
    let answered = world.rig.path("answered");
    let script = format!("{call} a; : >{}; read line; {call} b", answered.display());
    let mut running = Running::of(&mut world.start(&[], &["sh", "-c", &script]));
    eventually("the first call's answer", || {
        answered.exists().then_some(())
    });
    kill("KILL", eventually("ssh", || ssh_of(running.pid())));
    running.say("on\n");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, "200200", "{done:?}");
    assert!(done.stderr.contains("link to gpu1 back"), "{done:?}");
    assert_eq!(world.rig.arrived(), 2);
}

/// A server that would open the port to the network gets no session by it: no agent starts, no call
/// passes, nothing is left.
#[test]
fn tu02_a_port_that_is_open_to_the_network_is_not_used() {
    let mut world = World::new();
    world.reconfigure(
        &format!("{FORBIDDEN}\nGatewayPorts yes"),
        "tcp_fallback = true",
    );
    let done = ran(&world);
    assert_eq!(done.code, Some(125), "{done:?}");
    for told in ["127.0.0.1 alone", "GatewayPorts"] {
        assert!(done.stderr.contains(told), "{told}: {done:?}");
    }
    assert!(!world.rig.path("ran").exists());
    assert_eq!(world.rig.arrived(), 0);
}

/// Where sockets are forwarded that setting changes nothing.
#[test]
fn tu02_gateway_ports_do_not_matter_to_a_socket() {
    let mut world = World::new();
    world.reconfigure("GatewayPorts yes", "");
    let done = ran(&world);
    let outcome = (done.code, done.stdout.as_str());
    assert_eq!(outcome, (Some(0), "200"), "{done:?}");
}
