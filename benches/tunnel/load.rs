//! The load on the host: connections, events and bulk, one at a time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};

/// Between connections.
const REST: Duration = Duration::from_millis(1);
/// Before each turn of [`What::Lone`]: longer than the forwarder keeps a connection ready.
const PAUSE: Duration = Duration::from_millis(5_500);

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum What {
    /// A connection, a small request and its answer, the end: microseconds each.
    Connections,
    /// The same after a pause, in which everything ends that was ready for the next one.
    Lone,
    /// Events of one stream, a millisecond apart: microseconds from writing to reading each.
    Events,
    /// Bytes to the host: MiB/s.
    Download,
    /// Bytes from the host: MiB/s.
    Upload,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Lone => "lone",
            Self::Events => "events",
            Self::Download => "download",
            Self::Upload => "upload",
        }
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub what: What,
    /// How often; the targets take turns.
    pub turns: u64,
    /// Events or bytes of one turn.
    pub count: u64,
}

/// The moment, the same in every process, ns.
pub fn moment() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A role: works and prints each target's values. Targets take turns, so that whatever else the
/// machine does meets every one alike, and each follows each other one as often: what one leaves
/// behind, such as processes that end, is not always the same target's to bear.
pub fn print(targets: &[String], work: Work) {
    // The first turns find cold caches and threads that are asleep.
    let warm = work.turns / 50;
    let mut values = vec![Vec::new(); targets.len()];
    for turn in 0..warm + work.turns {
        if matches!(work.what, What::Lone) {
            thread::sleep(PAUSE);
        }
        for at in order(targets.len(), turn) {
            let target = &targets[at];
            let done = match work.what {
                What::Connections | What::Lone => connection(target),
                What::Events => events(target, work.count),
                What::Download => download(target, work.count),
                What::Upload => upload(target, work.count),
            };
            let done = done.unwrap();
            if turn >= warm {
                values[at].extend(done);
            }
        }
    }
    println!("{}", serde_json::to_string(&values).unwrap());
}

/// Who is when in a turn: every rotation, forwards and then backwards; of three, every order.
fn order(count: usize, turn: u64) -> Vec<usize> {
    let turn = turn as usize;
    let mut order: Vec<usize> = (0..count).map(|at| (at + turn) % count).collect();
    if turn / count % 2 == 1 {
        order.reverse();
    }
    order
}

/// A connection of either kind.
pub trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

pub fn connect(target: &str) -> io::Result<Box<dyn Stream>> {
    match target.split_once(':').unwrap() {
        ("unix", path) => Ok(Box::new(UnixStream::connect(path)?)),
        (_, port) => {
            let stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
    }
}

/// Sends a request and reads its answer's head and body; gives the body.
pub fn ask(stream: &mut impl Stream, request: &str) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let (length, mut body) = head(stream)?;
    let read = body.len();
    body.resize(length, 0);
    stream.read_exact(&mut body[read..])?;
    Ok(body)
}

/// Reads an answer's head; gives its content-length and what was read of its body.
fn head(stream: &mut impl Stream) -> io::Result<(usize, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = read.split_off(end + 4);
            let head = String::from_utf8(read).map_err(io::Error::other)?;
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            return Ok((length.unwrap_or(0), body));
        }
        let mut part = [0; 4096];
        let length = stream.read(&mut part)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&part[..length]);
    }
}

/// Begins after everything that the one before left to do, on either machine: else each would pay for
/// another.
fn connection(target: &str) -> io::Result<Vec<f64>> {
    thread::sleep(REST);
    let began = Instant::now();
    let mut stream = connect(target)?;
    ask(&mut stream, "GET /small HTTP/1.1\r\n\r\n")?;
    Ok(vec![began.elapsed().as_secs_f64() * 1e6])
}

fn events(target: &str, count: u64) -> io::Result<Vec<f64>> {
    let mut stream = connect(target)?;
    write!(stream, "GET /events/{count} HTTP/1.1\r\n\r\n")?;
    let (_, mut text) = head(&mut stream)?;
    let mut delays = Vec::new();
    let mut part = vec![0; 64 * 1024];
    while delays.len() < count as usize {
        let now = moment();
        while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = text.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event).into_owned();
            if let Some(sent) = event.split("at=").nth(1) {
                let sent: u64 = sent.split(' ').next().unwrap().parse().unwrap();
                delays.push((now - sent) as f64 / 1e3);
            }
        }
        if delays.len() < count as usize {
            let length = stream.read(&mut part)?;
            assert!(length > 0, "the stream ended early");
            text.extend_from_slice(&part[..length]);
        }
    }
    Ok(delays)
}

fn mib_per_second(bytes: u64, began: Instant) -> Vec<f64> {
    vec![bytes as f64 / f64::from(1 << 20) / began.elapsed().as_secs_f64()]
}

fn download(target: &str, bytes: u64) -> io::Result<Vec<f64>> {
    let mut stream = connect(target)?;
    let began = Instant::now();
    write!(stream, "GET /source/{bytes} HTTP/1.1\r\n\r\n")?;
    let (length, body) = head(&mut stream)?;
    let mut left = length - body.len();
    let mut part = vec![0; 256 * 1024];
    while left > 0 {
        let read = stream.read(&mut part)?;
        assert!(read > 0, "the answer ended early");
        left -= read;
    }
    Ok(mib_per_second(bytes, began))
}

fn upload(target: &str, bytes: u64) -> io::Result<Vec<f64>> {
    let mut stream = connect(target)?;
    let began = Instant::now();
    write!(
        stream,
        "POST /sink HTTP/1.1\r\ncontent-length: {bytes}\r\n\r\n"
    )?;
    let part = vec![b'x'; 256 * 1024];
    let mut left = bytes as usize;
    while left > 0 {
        let now = left.min(part.len());
        stream.write_all(&part[..now])?;
        left -= now;
    }
    head(&mut stream)?;
    Ok(mib_per_second(bytes, began))
}
