//! The events of a session: what is told, to whom, and what becomes of who does not listen.

use std::future::Future;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;

use labproxy::cap::{Balance, Notice};
use labproxy::money::PicoUsd;
use labproxy::session::control::events::{Events, Feed};
use labproxy::session::control::{Answer, Call, ControlServer, Controlled, Refusal, Status};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::rig::{Rig, Running, eventually};
use crate::subscriber::Subscriber;

/// Calls as often as it is told to, one after the other.
const CALLS: [&str; 3] = [
    "sh",
    "-c",
    "echo ready; while read prompt; do $CALL \"$prompt\"; echo; done",
];

fn started(rig: &Rig) -> (Running, String) {
    let running = Running::of(&mut rig.start(&[], &CALLS));
    assert_eq!(running.line(), "ready");
    let session = rig.session();
    (running, session)
}

/// Each request is told when it goes out and when it has ended, with the pico-dollars of the receipt; the
/// first event is the status, the numbers count, and the last one is the end.
#[test]
fn every_request_is_told_with_its_exact_cost() {
    let rig = Rig::new();
    let (mut running, session) = started(&rig);
    let subscriber = Subscriber::of(&rig.sockets(&session));
    let first = subscriber.event();
    assert_eq!((first.id, first.name.as_str()), (1, "status"));
    assert_eq!(first.data, rig.ask(&session, "GET", "/v1/status", "").1);

    running.say("hello");
    let held = subscriber.next("spend");
    let began = subscriber.next("request");
    assert_eq!(began["what"], "began", "{began}");
    assert_eq!(began["model"], "claude-haiku-4-5");
    assert_eq!(began["max_tokens"], 100);
    assert_eq!(held["held_pico_usd"], began["held_pico_usd"]);
    assert_eq!(held["spent_pico_usd"], 0);
    let ended = subscriber.next("request");
    assert_eq!(ended["what"], "ended", "{ended}");
    assert_eq!(ended["request"], began["request"]);
    assert_eq!(ended["outcome"], "settled");
    assert_eq!(ended["status"], 200);
    let spent = subscriber.next("spend");
    assert_eq!(spent["held_pico_usd"], 0, "{spent}");
    assert_eq!(spent["spent_pico_usd"], ended["charged_pico_usd"]);
    assert_eq!(running.line(), "200");

    let (status, _) = rig.ask(&session, "POST", "/v1/topup", "{\"pico_usd\":7}");
    assert_eq!(status, 200);
    let raised = subscriber.next("spend");
    assert_eq!(raised["cap_pico_usd"], 2_000_000_000_007_u64);
    running.say("[[scenario: error 400]]");
    let refused = subscriber.find("request");
    assert_eq!(refused["what"], "began", "{refused}");
    let free = subscriber.find("request");
    assert_eq!(free["what"], "ended", "{free}");
    running.close_stdin();
    let rest = subscriber.rest();
    assert_eq!(running.finish().code, Some(0));

    let receipt = rig.show(&session);
    let line = &receipt["requests"][0];
    assert_eq!(line["charged_pico_usd"], ended["charged_pico_usd"]);
    assert_eq!(line["held_pico_usd"], began["held_pico_usd"]);
    assert!(ended["charged_pico_usd"].as_u64().unwrap() > 0);
    assert_eq!(receipt["requests"][1]["outcome"], free["outcome"]);
    let charged = |value: &Value| value["charged_pico_usd"].as_u64().unwrap();
    assert_eq!(
        charged(&ended) + charged(&free),
        receipt["spent_pico_usd"].as_u64().unwrap()
    );
    assert!(rest.iter().any(|event| event.data["state"] == "stopping"));
    let end = rest.last().unwrap();
    assert_eq!(end.data["end_reason"], receipt["end_reason"]);
    assert_eq!(end.data["exit_code"], 0);
    assert_eq!(end.data["spent_pico_usd"], receipt["spent_pico_usd"]);
    let numbers: Vec<u64> = rest.iter().map(|event| event.id).collect();
    let counted: Vec<u64> = (numbers[0]..).take(numbers.len()).collect();
    assert_eq!(numbers, counted, "no number is left out");
    subscriber.ended();
}

/// Eight may watch; a ninth is told so, calls are answered all the while, and a place is free when one leaves.
#[test]
fn only_so_many_may_watch() {
    let rig = Rig::new();
    let (mut running, session) = started(&rig);
    let sockets = rig.sockets(&session);
    let mut all: Vec<Subscriber> = (0..8).map(|_| Subscriber::of(&sockets)).collect();
    for one in &all {
        assert_eq!(one.next("status")["session"], session);
    }
    let (status, answer) = rig.ask(&session, "GET", "/v1/events", "");
    assert_eq!(status, 503, "{answer}");
    assert!(answer["error"].as_str().unwrap().starts_with("8 callers"));
    assert_eq!(rig.ask(&session, "GET", "/v1/status", "").0, 200);
    all.pop().unwrap().leave();
    let again = eventually("a free place", || Subscriber::let_in(&sockets));
    all.push(again);
    running.close_stdin();
    for one in all {
        assert_eq!(one.rest().last().unwrap().data["exit_code"], 0);
        one.ended();
    }
    assert_eq!(running.finish().code, Some(0));
}

/// Opens a stream and reads no event of it.
fn deaf(socket: &std::path::Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

/// Who never reads holds up neither a request nor the end of the session.
#[test]
fn a_subscriber_who_never_reads_holds_up_nobody() {
    let rig = Rig::new();
    let (mut running, session) = started(&rig);
    let never_read = deaf(&rig.sockets(&session).join("control.sock"));
    running.say("hello");
    assert_eq!(running.line(), "200");
    let stopped = rig.labproxy(&["session", "stop", &session]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(running.finish().code, Some(143));
    drop(never_read);
}

/// A session that tells what a test says.
struct Told {
    notices: broadcast::Sender<Notice>,
    events: Events,
}

impl Controlled for Told {
    fn call(self: Arc<Self>, _: Call) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        Box::pin(async { Err(Refusal::new(http::StatusCode::NOT_FOUND, "no")) })
    }

    fn watch(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Feed> + Send>> {
        let status: Status = serde_json::from_str(
            r#"{"session":"ses_aaaaaaaaaaaaaaaaaaaaaaaaaa","pid":1,"state":"running","cap_pico_usd":0,
                "spent_pico_usd":0,"held_pico_usd":0,"waiting":0,"agent_pid":null}"#,
        )
        .unwrap();
        let feed = Feed {
            notices: self.notices.subscribe(),
            events: self.events.watch(),
            status,
        };
        Box::pin(async { feed })
    }
}

/// Who does not read loses the oldest events and is told how many; the numbers go on behind them, and the last
/// ones are whole.
#[test]
fn a_slow_subscriber_is_told_how_many_it_missed() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let socket = folder.path().join("control.sock");
    let told = Arc::new(Told {
        notices: broadcast::Sender::new(256),
        events: Events::default(),
    });
    let within = runtime.enter();
    let server = ControlServer::start(&socket, Arc::clone(&told)).unwrap();
    let stream = deaf(&socket);
    assert_eq!(told.notices.receiver_count(), 1);
    // More than the kernel holds of a stream that nobody reads, and what is kept.
    let kernel = std::fs::read_to_string("/proc/sys/net/core/wmem_default").unwrap();
    let many = kernel.trim().parse::<u64>().unwrap() / 128 + 4_000;
    for number in 1..=many {
        let money = Balance {
            cap: PicoUsd::from_pico(number),
            settled: PicoUsd::ZERO,
            held: PicoUsd::ZERO,
            waiting: 0,
            closed: None,
            cap_reached: false,
        };
        told.notices.send(Notice::Money(money)).unwrap();
    }
    let (mut id, mut missed, mut told_so, mut last) = (0, 0, 0, 0);
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if let Some(number) = line.strip_prefix("id: ") {
            id = number.parse::<u64>().unwrap();
        }
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        let data: Value = serde_json::from_str(data).unwrap();
        if let Some(count) = data["events"].as_u64() {
            missed += count;
            told_so += 1;
        } else if let Some(cap) = data["cap_pico_usd"].as_u64().filter(|cap| *cap > 0) {
            assert!(cap > last, "in order");
            last = cap;
        }
        if last == many {
            break;
        }
    }
    assert!(missed > 0 && missed <= many - 256, "{missed} of {many}");
    // The status, a number for every event, also for those that were missed, and the notes of that.
    assert_eq!(id, 1 + many + told_so);
    runtime.block_on(server.close());
    drop(within);
}
