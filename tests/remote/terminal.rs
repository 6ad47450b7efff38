//! A program on a terminal.

use labproxy::wire::link::{ExecEnd, ExecSignal, ToHost, WindowSize};

use crate::client::{Client, shell};
use crate::rig::Host;

/// It is the controlling terminal, has the size that was asked for and follows changes; signals go
/// to the foreground group, and what was written last arrives.
#[test]
fn a_program_has_a_terminal_of_its_own() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let script = "test -t 0 && test -t 1 && test -t 2 && echo tty; stty size; \
                  : > /dev/tty && echo controlling; \
                  trap 'stty size' WINCH; trap 'echo int; exit 3' INT; \
                  echo ready; while :; do sleep 0.02; done";
    let mut asked = shell(script);
    asked.terminal = Some(WindowSize {
        rows: 31,
        columns: 97,
    });
    let exec = client.start(1, &asked);
    let has = |client: &Client, text: &str| {
        String::from_utf8_lossy(&client.execs[&exec].stdout).contains(text)
    };
    client.pump(|client| has(client, "ready\r\n"));
    for expected in ["tty\r\n", "31 97\r\n", "controlling\r\n"] {
        assert!(has(&client, expected), "{expected}");
    }
    let size = WindowSize {
        rows: 40,
        columns: 120,
    };
    client.send(&ToHost::Resize { exec, size });
    client.pump(|client| has(client, "40 120\r\n"));
    client.send(&ToHost::Signal {
        exec,
        number: 1,
        signal: ExecSignal::Interrupt,
    });
    let done = client.wait(exec);
    assert!(done.stdout.ends_with(b"int\r\n"));
    assert_eq!(done.end(), ExecEnd::Exited(3));
    client.end(0);
}

/// Typed bytes arrive, Ctrl-C among them; the end of input is the terminal's own.
#[test]
fn typing_reaches_the_program() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let mut asked = shell("stty -echo; echo ready; cat; echo end");
    asked.terminal = Some(WindowSize {
        rows: 24,
        columns: 80,
    });
    let exec = client.start(1, &asked);
    client.pump(|client| client.execs[&exec].stdout == b"ready\r\n");
    let bytes = (&b"typed\n"[..]).into();
    client.send(&ToHost::Stdin {
        exec,
        offset: 0,
        bytes,
    });
    client.send(&ToHost::StdinEnd { exec, length: 6 });
    let done = client.wait(exec);
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        "ready\r\ntyped\r\nend\r\n"
    );
    // A program that has answered is past its start, where a shell may swallow a signal.
    let mut asked = shell("exec cat");
    asked.terminal = Some(WindowSize {
        rows: 24,
        columns: 80,
    });
    let exec = client.start(2, &asked);
    let bytes = (&b"a\n"[..]).into();
    client.send(&ToHost::Stdin {
        exec,
        offset: 0,
        bytes,
    });
    client.pump(|client| client.execs[&exec].stdout == b"a\r\na\r\n");
    let bytes = (&b"\x03"[..]).into();
    client.send(&ToHost::Stdin {
        exec,
        offset: 2,
        bytes,
    });
    let expected = ExecEnd::Signaled {
        signal: 2,
        out_of_memory: false,
    };
    assert_eq!(client.wait(exec).end(), expected);
    client.end(0);
}
