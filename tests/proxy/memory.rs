//! Memory of open streams.

use std::process::Command;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::rig::{Rig, Setup, ask, dollars, events};
use crate::upstream::{Step, Upstream, chunk, sse_head, within};

/// Resident memory of this process in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Set in the process that is measured: other tests must not share its memory.
const MEASURED: &str = "LABPROXY_TEST_MEASURED";

/// Three hundred streams that are open at once take at most 64 KiB each, the test's own client and
/// upstream included.
#[test]
fn an_open_stream_takes_little_memory() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::measured_streams", "--nocapture"])
        .env(MEASURED, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The whole of the measured process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measured_streams() {
    const STREAMS: usize = 300;
    if std::env::var_os(MEASURED).is_none() {
        return;
    }
    let upstream = Upstream::start(|_, _| {
        vec![
            Step::Bytes(sse_head()),
            Step::Bytes(chunk(events(10, 20)[..3].concat())),
            Step::UntilClosed,
        ]
    })
    .await;
    let setup = Setup {
        cap: dollars(10_000),
        max_connections: 2 * STREAMS,
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    let mut open = Vec::new();
    let mut before = 0;
    for number in 0..STREAMS + 20 {
        // The first ones pay for what is made once.
        if number == 20 {
            before = resident();
        }
        let mut socket = TcpStream::connect(rig.address).await.unwrap();
        let body = ask(100, true);
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\n\
             content-length: {}\r\n\r\n{body}",
            rig.placeholder,
            body.len()
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut seen = [0; 4096];
        let mut text = Vec::new();
        while !text.windows(7).any(|seven| seven == b"\"hello\"") {
            let length = within(socket.read(&mut seen)).await.unwrap();
            assert!(length > 0);
            text.extend_from_slice(&seen[..length]);
        }
        open.push(socket);
    }
    let each = resident().saturating_sub(before) / STREAMS;
    eprintln!("{each} KiB for a stream");
    assert!(each <= 64, "{each} KiB for a stream");
}
