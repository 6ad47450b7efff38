//! The credential: it comes back in nothing, and it is read again as seldom as may be.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use labproxy::ledger::Entry;
use labproxy::proxy::credential::CredentialSource;
use labproxy::secret::CredentialKind;

use crate::rig::{CANARY, Rig, Setup, answer, ask, error, events, price};
use crate::upstream::{Step, Upstream, chunk, json, last_chunk, response, sse_head};
use crate::upstream_h2::{Frames, H2Upstream};

/// An answer that quotes the credential, cut at every place: the client never holds the whole of
/// it, its connection breaks, and the hold is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t18_x07_an_echoed_key_never_reaches_the_client() {
    let text = format!("data: Bearer {CANARY} is wrong\n\n");
    let at = text.find(CANARY).unwrap();
    for cut in (at - 1..=at + CANARY.len()).step_by(3) {
        let (one, two) = (text[..cut].to_owned(), text[cut..].to_owned());
        let upstream = Upstream::start(move |_, _| {
            vec![
                Step::Bytes(sse_head()),
                Step::Bytes(chunk(&events(10, 20)[0])),
                Step::Bytes(chunk(&one)),
                Step::Pause(Duration::from_millis(5)),
                Step::Bytes(chunk(&two)),
                Step::Bytes(last_chunk()),
            ]
        })
        .await;
        let rig = Rig::new(&upstream.url()).await;
        let reply = rig.post(ask(100, true)).await;
        let seen = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(!reply.whole, "cut at {cut}");
        assert!(!seen.contains(CANARY) && !seen.contains(&CANARY[..CANARY.len() - 1]));
        let expected = events(10, 20)[0].clone() + "data: Bearer ";
        assert!(expected.starts_with(&seen), "cut at {cut}: {seen}");
        assert!(matches!(rig.end().await, Entry::Kept { .. }));
    }
}

/// One that quotes it behind an encoding, or in a header.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t18_an_echoed_key_does_not_hide_behind_an_encoding_or_in_a_header() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let body = error("api_error", &format!("bad key {CANARY}"));
    encoder.write_all(body.as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let upstream = Upstream::start(move |number, _| {
        let headers = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
        vec![Step::Bytes(if number == 0 {
            response("400 Bad Request", headers, &body)
        } else {
            let headers = format!(
                "content-type: application/json\r\nrequest-id: r-{CANARY}\r\n\
                 anthropic-organization-id: org\r\n"
            );
            response("200 OK", &headers, answer(10, 20))
        })]
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    let reply = rig.post(ask(100, false)).await;
    assert!(!reply.whole && reply.body.is_empty(), "{reply:?}");
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("request-id"), None);
    assert_eq!(reply.header("anthropic-organization-id"), Some("org"));
    let text = format!("{:?}", rig.entries().await);
    assert!(!text.contains(CANARY), "the ledger holds the key");
}

/// A stream that ends in what could have become the key is delivered whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t18_ordinary_streams_that_resemble_the_key_are_whole() {
    let pieces = [
        "data: sk-",
        "ant-api03-canar",
        "ies sing\n\n",
        "data: sk-ant-api03",
    ];
    let body = pieces.concat();
    let upstream = Upstream::start(move |number, _| {
        let mut steps = Vec::new();
        if number == 0 {
            steps.push(Step::Bytes(sse_head()));
            steps.extend(pieces.map(|piece| Step::Bytes(chunk(piece))));
            steps.push(Step::Bytes(last_chunk()));
        } else {
            steps.push(Step::Bytes(json("200 OK", pieces.concat())));
        }
        steps
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    for _ in 0..2 {
        let reply = rig.post(ask(100, true)).await;
        assert!(reply.whole);
        assert_eq!(reply.body, body);
    }
}

/// A command that prints `key-N` on its N-th run.
fn rotating(directory: &Path) -> CredentialSource {
    let runs = directory.join("runs");
    let script = format!("echo >> {0}; echo key-$(wc -l < {0})", runs.display());
    CredentialSource::Command {
        kind: CredentialKind::ApiKey,
        argv: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
    }
}

/// Fifty requests meet an expired key at once: the command runs once, each request is sent once
/// more on its own hold, and all are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a09_a10_t40_fifty_parallel_401s_run_the_command_once() {
    let upstream = Upstream::start(|_, seen| {
        vec![Step::Bytes(if seen.header("x-api-key") == ["key-1"] {
            json("401 Unauthorized", error("authentication_error", "expired"))
        } else {
            json("200 OK", answer(10, 20))
        })]
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup {
        credential: Some(rotating(directory.path())),
        cap: crate::rig::dollars(100),
        ..Setup::default()
    };
    let rig = Arc::new(Rig::with(&upstream.url(), setup).await);
    let posts = (0..50).map(|_| {
        let rig = rig.clone();
        tokio::spawn(async move { rig.post(ask(100, false)).await.status.as_u16() })
    });
    for status in futures_util::future::join_all(posts).await {
        assert_eq!(status.unwrap(), 200);
    }
    let runs = std::fs::read_to_string(directory.path().join("runs")).unwrap();
    assert_eq!(runs.len(), 2, "once at the start, once after the refusals");
    assert_eq!(rig.spent().await, 50 * price(10, 20));
    assert_eq!(rig.proxy.counters().credential_refused, 0);
    let entries = rig.entries().await;
    let holds = entries
        .iter()
        .filter(|entry| matches!(entry, Entry::Held { .. }));
    assert_eq!(holds.count(), 50);
}

/// A hundred provoked 401s, one after another: one more run, and every client sees the provider's
/// own error, as final.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t40_a_hundred_provoked_401s_run_the_command_once() {
    let body = error("authentication_error", "no");
    let sent = body.clone();
    let upstream =
        Upstream::start(move |_, _| vec![Step::Bytes(json("401 Unauthorized", &sent))]).await;
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup {
        credential: Some(rotating(directory.path())),
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    let mut client = rig.client().await;
    for _ in 0..100 {
        let reply = client.post(ask(100, false)).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.body[..]),
            (401, body.as_bytes())
        );
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    }
    let runs = std::fs::read_to_string(directory.path().join("runs")).unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(rig.spent().await, 0);
    assert_eq!(rig.proxy.counters().credential_refused, 100);
}

/// A second 401, after the credential was read again, is final; a connection that breaks after it
/// is not a reason to send a third time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d09_after_a_401_a_request_is_sent_once_more_and_no_more() {
    let upstream = Upstream::start(|number, _| match number {
        0 => vec![Step::Bytes(json(
            "401 Unauthorized",
            error("authentication_error", "no"),
        ))],
        _ => vec![Step::Close],
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup {
        credential: Some(rotating(directory.path())),
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 502);
    assert_eq!(upstream.seen().len(), 2);
    assert!(matches!(rig.end().await, Entry::Kept { .. }));
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Everything that is logged at trace level while requests succeed, fail, leak and are refused,
/// over HTTP/1.1 and HTTP/2, holds neither the key nor the placeholder.
#[tokio::test]
async fn x06_x07_no_log_line_holds_the_key_or_the_placeholder() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let mut secrets = vec![CANARY.to_owned()];
    let upstream = Upstream::start(|number, _| match number {
        0 => vec![Step::Bytes(json("200 OK", answer(10, 20)))],
        1 => vec![Step::Bytes(json(
            "401 Unauthorized",
            error("authentication_error", CANARY),
        ))],
        2 => vec![Step::Bytes(json("200 OK", "not json")), Step::Close],
        _ => vec![Step::Reset],
    })
    .await;
    let rig = Rig::new(&upstream.url()).await;
    for _ in 0..4 {
        rig.post(ask(100, false)).await;
    }
    rig.post("{").await;
    secrets.push(rig.placeholder.clone());
    let h2 = H2Upstream::start(|_| Frames::Answer {
        kind: "application/json",
        pieces: vec![answer(10, 20).into_bytes()],
        cut: false,
    })
    .await;
    let setup = Setup {
        ca_file: Some(h2.ca_file.clone()),
        ..Setup::default()
    };
    let rig = Rig::with(&h2.url(), setup).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 200);
    secrets.push(rig.placeholder.clone());
    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(
        text.contains("TRACE") && text.contains("h2::"),
        "the log was taken"
    );
    for secret in secrets {
        assert!(!text.contains(&secret));
    }
}
