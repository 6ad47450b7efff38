//! Links die and come again: nothing is lost, nothing comes twice, and only one link counts.

use std::time::{Duration, Instant};

use labproxy::wire::link::{ExecEnd, ExecId, Refusal, ToHost, WINDOW};

use crate::client::{Client, Open, shell, spec};
use crate::rig::{Host, exists, until};

/// The next link of a session.
fn again(host: &Host, link: u64) -> Client {
    let open = Open {
        role: "attach",
        link,
        must_live: true,
        ..Open::default()
    };
    Client::connect(host, &open)
}

/// Random numbers that are the same every time: a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A program's input and output go on exactly over links that are cut at random places; its pid
/// stays.
#[test]
fn links_cut_at_random_places_lose_and_repeat_nothing() {
    let host = Host::new();
    let mut numbers = Numbers(7);
    let input: Vec<u8> = (0..3_000_000).map(|_| numbers.below(256) as u8).collect();
    let mut client = Client::new(&host);
    let exec = client.start(1, &spec(&["cat"]));
    let (mut sent, mut link, mut cuts) = (0_usize, 1, 0);
    let mut cut_at = numbers.below(100_000);
    loop {
        let progress = client.execs[&exec].clone();
        if sent < input.len() && sent as u64 - progress.taken < WINDOW / 4 {
            let part = &input[sent..input.len().min(sent + 10_007)];
            client.send(&ToHost::Stdin {
                exec,
                offset: sent as u64,
                bytes: part.into(),
            });
            sent += part.len();
            if sent == input.len() {
                let length = sent as u64;
                client.send(&ToHost::StdinEnd { exec, length });
            }
        } else if progress.is_whole() {
            break;
        } else {
            let message = client.next(crate::rig::PATIENCE).expect("a live link");
            client.take(&message);
        }
        if client.execs[&exec].stdout.len() as u64 >= cut_at && cuts < 20 {
            cuts += 1;
            cut_at += 1 + numbers.below(200_000);
            link += 1;
            let mut next = again(&host, link);
            next.execs = client.execs.clone();
            let states = next.attach();
            assert_eq!(states.len(), 1);
            assert!(states[0].started);
            sent = states[0].stdin as usize;
            // The old one is cut without a word, by its death.
            client = next;
        }
    }
    assert_eq!(cuts, 20);
    let done = &client.execs[&exec];
    assert!(
        done.stdout == input,
        "{} of {}",
        done.stdout.len(),
        input.len()
    );
    assert_eq!(done.end(), ExecEnd::Exited(0));
    client.end(100);
}

/// What a program writes while no link is there waits for the next one, with its end.
#[test]
fn output_waits_for_the_next_link() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let script = "echo first; while [ ! -e go ]; do sleep 0.01; done; \
                  head -c 20000000 /dev/zero; touch wrote; exit 9";
    let exec = client.start(1, &shell(script));
    client.pump(|client| client.execs[&exec].stdout == b"first\n");
    let execs = client.execs.clone();
    drop(client);
    std::fs::write(host.workspace().join("go"), "").unwrap();
    // More than a window: without a link the host takes what there is room for.
    until("all is written", || exists(&host.workspace().join("wrote")));
    let mut client = again(&host, 2);
    client.execs = execs;
    client.attach();
    let done = client.wait(exec);
    assert_eq!(done.stdout.len(), 6 + 20_000_000);
    assert_eq!(done.end(), ExecEnd::Exited(9));
    // Nothing but what is asked for is told again.
    drop(client);
    let mut client = again(&host, 3);
    assert!(client.attach().is_empty());
    client.end(100);
}

/// A later link takes the place of an earlier one, which is told; an earlier one never does.
#[test]
fn the_newest_link_wins() {
    let host = Host::new();
    let mut first = Client::new(&host);
    let mut second = again(&host, 5);
    second.attach();
    assert_eq!(first.refusal(), Refusal::Replaced);
    let mut late = again(&host, 3);
    assert_eq!(late.refusal(), Refusal::Replaced);
    // Another controller with the same session's name begins at 1.
    let mut other = Client::connect(&host, &Open::default());
    let pid = host.supervisor().pid.unsigned_abs();
    assert_eq!(other.refusal(), Refusal::Busy { pid });
    assert_eq!(second.run(1, &shell("echo on"), b"").stdout, b"on\n");
    second.end(100);
}

/// A link to a session that is gone says so at once, whoever asks.
#[test]
fn tb15_a_missing_supervisor_is_said_at_once() {
    let host = Host::new();
    let began = Instant::now();
    assert_eq!(again(&host, 2).refusal(), Refusal::NoSupervisor);
    let mut client = Client::new(&host);
    client.end(0);
    drop(client);
    assert_eq!(again(&host, 2).refusal(), Refusal::NoSupervisor);
    let must_live = Open {
        must_live: true,
        link: 3,
        ..Open::default()
    };
    let mut third = Client::connect(&host, &must_live);
    assert_eq!(third.refusal(), Refusal::NoSupervisor);
    assert!(began.elapsed() < Duration::from_secs(10));
    // The next session of that name begins at once.
    let mut next = Client::new(&host);
    assert_eq!(next.run(1, &shell("echo new"), b"").stdout, b"new\n");
    next.end(0);
}

/// A launch that a new link does not name is ended and forgotten.
#[test]
fn t27_a_launch_that_nobody_knows_is_ended() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let exec = client.start(1, &spec(&["sleep", "600"]));
    client.pump(|client| client.execs[&exec].pid.is_some());
    let pid = client.execs[&exec].pid.unwrap();
    let stamp = labproxy::processes::ProcessStamp::of(pid as i32).unwrap();
    let mut next = again(&host, 2);
    assert!(next.attach().is_empty());
    until("it is ended", || !stamp.is_alive());
    next.end(0);
}

/// A spec that came in part is gone on with.
#[test]
fn a_spec_goes_on_where_it_was_cut() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let bytes = postcard::to_extend(&shell("echo whole"), Vec::new()).unwrap();
    let exec = ExecId(1);
    let part = bytes[..20].into();
    client.send(&ToHost::Spec {
        exec,
        offset: 0,
        part,
    });
    client.of(exec);
    // An answer shows that the part has arrived.
    client.run(2, &shell("true"), b"");
    let mut next = again(&host, 2);
    next.execs = client.execs.clone();
    let states = next.attach();
    assert_eq!((states[0].spec, states[0].started), (20, false));
    next.send(&ToHost::Spec {
        exec,
        offset: 10,
        part: bytes[10..].into(),
    });
    let length = bytes.len() as u64;
    next.send(&ToHost::Start { exec, length });
    assert_eq!(next.wait(exec).stdout, b"whole\n");
    next.end(0);
}

/// Heartbeats come; a controller that says nothing for 15 s has no link any more.
#[test]
fn a_silent_controller_loses_its_link() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let began = Instant::now();
    let mut beats = 0;
    while client.next(Duration::from_secs(10)).is_some() {
        beats += 1;
    }
    let passed = began.elapsed();
    assert!(
        passed >= Duration::from_secs(14) && beats >= 5,
        "{passed:?} {beats}"
    );
    let mut next = again(&host, 2);
    next.attach();
    next.end(0);
}
