//! Bytes that are no protocol end the link with a reason, and never the session.

use labproxy::wire::bytes::ByteString;
use labproxy::wire::frame::{self, FRAME_MAX};
use labproxy::wire::link::{ExecId, ExecSignal, ForwardEnd, OutputKind, Refusal, ToHost, WINDOW};

use crate::client::{Client, Open, shell};
use crate::rig::Host;

fn link(host: &Host, number: u64) -> Client {
    let open = Open {
        link: number,
        must_live: number > 1,
        ..Open::default()
    };
    Client::connect(host, &open)
}

/// Each kind of nonsense: a protocol refusal, and the next link finds the program as it was.
#[test]
fn nonsense_ends_the_link_and_not_the_session() {
    let host = Host::new();
    let mut client = link(&host, 1);
    client.attach();
    let kept = client.start(1, &shell("cat"));
    client.pump(|client| client.execs[&kept].pid.is_some());
    let execs = client.execs.clone();
    let exec = ExecId(1);
    let unknown = ExecId(99);
    let messages: Vec<ToHost<'_>> = vec![
        ToHost::Attach { execs: Vec::new() },
        ToHost::Stdin {
            exec,
            offset: 5,
            bytes: (&b"gap"[..]).into(),
        },
        ToHost::Stdin {
            exec,
            offset: u64::MAX,
            bytes: (&b"x"[..]).into(),
        },
        ToHost::StdinEnd { exec, length: 7 },
        ToHost::Received {
            exec,
            output: OutputKind::Stdout,
            offset: 1,
        },
        ToHost::Received {
            exec,
            output: OutputKind::Stderr,
            offset: u64::MAX,
        },
        ToHost::Stdin {
            exec: unknown,
            offset: 0,
            bytes: (&b"x"[..]).into(),
        },
        ToHost::Signal {
            exec: unknown,
            number: 1,
            signal: ExecSignal::Kill,
        },
        ToHost::Start {
            exec: unknown,
            length: 0,
        },
        ToHost::Spec {
            exec: unknown,
            offset: 1,
            part: (&b"x"[..]).into(),
        },
    ];
    let mut frames: Vec<Vec<u8>> = messages
        .iter()
        .map(|message| {
            let mut bytes = Vec::new();
            frame::encode(message, &mut bytes).unwrap();
            bytes
        })
        .collect();
    frames.push(vec![0, 0, 0, 0]);
    frames.push((FRAME_MAX as u32 + 1).to_le_bytes().to_vec());
    frames.push(vec![0xff; 64]);
    frames.push([&3_u32.to_le_bytes()[..], &[250, 1, 1]].concat());
    // A ping with a byte behind it.
    frames.push([&3_u32.to_le_bytes()[..], &[1, 1, 1]].concat());
    for (at, bytes) in frames.iter().enumerate() {
        client.send_bytes(bytes);
        let refusal = client.refusal();
        assert!(
            matches!(refusal, Refusal::Protocol { .. }),
            "{at}: {refusal:?}"
        );
        client = link(&host, at as u64 + 2);
        client.execs = execs.clone();
        assert_eq!(client.attach().len(), 1, "{at}");
    }
    let length = 0;
    client.send(&ToHost::StdinEnd { exec, length });
    assert!(client.wait(kept).exited.is_some());
    client.end(0);
}

/// More than a window of input is refused before it takes memory.
#[test]
fn input_beyond_the_window_is_refused() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let exec = client.start(1, &shell("sleep 600"));
    let chunk = vec![0_u8; 1 << 18];
    let mut offset = 0;
    while offset <= WINDOW + (1 << 20) {
        let bytes = chunk.as_slice().into();
        client.send(&ToHost::Stdin {
            exec,
            offset,
            bytes,
        });
        offset += 1 << 18;
    }
    assert!(matches!(client.refusal(), Refusal::Protocol { .. }));
    drop(client);
    let mut client = link(&host, 2);
    client.attach();
    client.end(0);
}

/// A link that does not begin as one, and names that lead elsewhere, are refused before anything
/// is made.
#[test]
fn hostile_openings_are_refused() {
    let host = Host::new();
    for name in [
        "",
        "..",
        ".hidden",
        "a/b",
        "a\0b",
        "a b",
        &"x".repeat(65),
        "\u{e4}",
    ] {
        let open = Open {
            session: Some(name.into()),
            ..Open::default()
        };
        let refusal = Client::connect(&host, &open).refusal();
        assert!(
            matches!(refusal, Refusal::Protocol { .. }),
            "{name}: {refusal:?}"
        );
    }
    assert!(!host.home.join(".labproxy").exists());
    let mut client = link(&host, 1);
    client.send(&ToHost::Ping(1));
    assert!(matches!(client.refusal(), Refusal::Protocol { .. }));
    let mut client = link(&host, 2);
    client.attach();
    client.send(&ToHost::Forward(ForwardEnd::Socket(ByteString::from(
        "/no/such/socket",
    ))));
    client.pump(|client| !client.said.is_empty());
    assert!(
        client.said[0].starts_with("NotForwarding"),
        "{:?}",
        client.said
    );
    client.end(0);
}
