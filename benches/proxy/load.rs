//! The load: closed loops of requests, and streams that stay open.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::process::Program;
use crate::wire::{Connection, Exchange};

/// Streams that are being opened at once: proxies bound how many connections may be silent.
const OPENING: usize = 16;

/// Where requests go, and the key they carry.
#[derive(Clone, Debug)]
pub struct Address {
    /// `HOST:PORT`.
    pub authority: String,
    /// The placeholder, or any text for a peer that does not look.
    pub key: String,
}

impl Address {
    /// A Messages request of exactly `body_bytes` bytes of body whose text is `wish` and padding.
    pub fn request(&self, stream: bool, wish: &str, body_bytes: usize) -> Arc<Vec<u8>> {
        let body = |padding: &str| {
            format!(
                concat!(
                    r#"{{"model":"claude-opus-5-5","max_tokens":1024,"stream":{},"#,
                    r#""messages":[{{"role":"user","content":[{{"type":"text","text":"{}{}"}}]}}]}}"#
                ),
                stream, wish, padding
            )
        };
        let short = body("").len();
        let body = body(&"?".repeat(body_bytes.saturating_sub(short)));
        let head = format!(
            concat!(
                "POST /v1/messages HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\n",
                "anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\n",
                "accept: application/json\r\nuser-agent: labproxy-bench/1\r\ncontent-length: {}\r\n\r\n"
            ),
            self.authority,
            self.key,
            body.len()
        );
        Arc::new([head.into_bytes(), body.into_bytes()].concat())
    }
}

/// When a run ends: whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Time.
    pub time: Duration,
    /// Requests.
    pub requests: u64,
}

/// What one run showed.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Requests answered with 200.
    pub requests: u64,
    /// How long the run took.
    pub elapsed: Duration,
    /// Processor time of the program under test, what it did shortly afterwards included.
    pub cpu: Duration,
    /// Times to the first body byte, ascending.
    pub first_byte: Vec<Duration>,
    /// Times to the end of the answer, ascending.
    pub total: Vec<Duration>,
}

impl Run {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// Processor time per request in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }
}

/// The value below which `share` of the ascending `times` lie, in microseconds.
pub fn quantile_us(times: &[Duration], share: f64) -> f64 {
    let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times
        .get(at)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Sends `request` again and again on `connections` keep-alive connections.
pub async fn closed_loop(
    program: Option<&Program>,
    address: &Address,
    request: &Arc<Vec<u8>>,
    connections: usize,
    budget: Budget,
) -> io::Result<Run> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut connection = Connection::open(&address.authority).await?;
        // The first answer on a connection pays for both handshakes.
        checked(connection.exchange(request, || ()).await?)?;
        open.push(connection);
    }
    let left = Arc::new(AtomicU64::new(budget.requests));
    let cpu_before = program.map(Program::cpu).unwrap_or_default();
    let began = Instant::now();
    let deadline = began + budget.time;
    let tasks: Vec<_> = open
        .into_iter()
        .map(|mut connection| {
            let (request, left) = (Arc::clone(request), Arc::clone(&left));
            tokio::spawn(async move {
                let mut done: Vec<Exchange> = Vec::new();
                while Instant::now() < deadline
                    && left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                        .is_ok()
                {
                    done.push(checked(connection.exchange(&request, || ()).await?)?);
                }
                Ok::<_, io::Error>(done)
            })
        })
        .collect();
    let mut run = Run::default();
    for task in tasks {
        for exchange in task.await.map_err(io::Error::other)?? {
            run.requests += 1;
            run.first_byte.push(exchange.first_byte);
            run.total.push(exchange.total);
        }
    }
    run.elapsed = began.elapsed();
    // Settlements are written after the client has its answer: they belong to the bill.
    tokio::time::sleep(Duration::from_millis(150)).await;
    run.cpu = program
        .map(Program::cpu)
        .unwrap_or_default()
        .saturating_sub(cpu_before);
    run.first_byte.sort_unstable();
    run.total.sort_unstable();
    Ok(run)
}

/// Opens `count` streams, calls `all_open` when each has had its first byte, then reads them to
/// their ends.
pub async fn open_streams(
    address: &Address,
    request: &Arc<Vec<u8>>,
    count: u64,
    all_open: impl FnOnce(),
) -> io::Result<()> {
    let open = Arc::new(AtomicU64::new(0));
    let opening = Arc::new(Semaphore::new(OPENING));
    let failed = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (address, request) = (address.clone(), Arc::clone(request));
            let (open, failed) = (Arc::clone(&open), Arc::clone(&failed));
            let opening = Arc::clone(&opening);
            tokio::spawn(async move {
                let answer = async {
                    let turn = opening.acquire().await.map_err(io::Error::other)?;
                    let mut connection = Connection::open(&address.authority).await?;
                    connection
                        .exchange(&request, || {
                            open.fetch_add(1, Ordering::Relaxed);
                            drop(turn);
                        })
                        .await
                };
                let answer = answer.await.and_then(checked);
                failed.fetch_or(answer.is_err(), Ordering::Relaxed);
                answer
            })
        })
        .collect();
    while open.load(Ordering::Relaxed) < count && !failed.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Let what was allocated to get here be given back, and a few events pass.
    tokio::time::sleep(Duration::from_secs(2)).await;
    all_open();
    for task in tasks {
        task.await.map_err(io::Error::other)??;
    }
    Ok(())
}

fn checked(exchange: Exchange) -> io::Result<Exchange> {
    if exchange.status == 200 && exchange.body_bytes > 0 {
        Ok(exchange)
    } else {
        Err(io::Error::other(format!(
            "the answer was {}",
            exchange.status
        )))
    }
}
