//! The far end of everything, in the controller's place: answers as asked in the path.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::load::{Stream, moment};
use crate::sessions::THROUGH;

/// Bytes of an event, as real ones have.
const EVENT: usize = 180;

/// A role: serves at a unix socket, or at a port that it prints, until its standard input ends.
pub fn serve(socket: Option<&Path>) {
    // A connection that breaks is the load's to report.
    if let Some(socket) = socket {
        let listener = UnixListener::bind(socket).unwrap();
        println!("there");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(|| drop(connection(stream)));
            }
        });
    } else {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(|| {
                    stream.set_nodelay(true)?;
                    connection(stream)
                });
            }
        });
    }
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn connection(mut stream: impl Stream) -> io::Result<()> {
    let mut read = Vec::new();
    let mut part = vec![0; 256 * 1024];
    loop {
        let end = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            match stream.read(&mut part)? {
                0 => return Ok(()),
                length => read.extend_from_slice(&part[..length]),
            }
        };
        let body = read.split_off(end);
        let head = String::from_utf8_lossy(&read).into_owned();
        read = Vec::new();
        let path = head.split(' ').nth(1).unwrap_or_default();
        match path.strip_prefix('/').unwrap_or_default().split_once('/') {
            Some(("events", count)) => events(&mut stream, count.parse().unwrap())?,
            Some(("source", bytes)) => source(&mut stream, bytes.parse().unwrap())?,
            _ if path == "/sink" => {
                let length = head.split("content-length: ").nth(1);
                let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
                let mut left = length.unwrap_or(0) - body.len();
                while left > 0 {
                    let most = left.min(part.len());
                    left -= match stream.read(&mut part[..most])? {
                        0 => return Ok(()),
                        length => length,
                    };
                }
                small(&mut stream)?;
            }
            _ if path == "/v1/models" => source(&mut stream, THROUGH)?,
            _ => small(&mut stream)?,
        }
    }
}

fn small(stream: &mut impl Stream) -> io::Result<()> {
    let body = "x".repeat(300);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes())
}

fn events(stream: &mut impl Stream, count: u64) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
    for _ in 0..count {
        thread::sleep(Duration::from_millis(1));
        let mut event = format!("data: at={} ", moment());
        let padding = EVENT.saturating_sub(event.len() + 2);
        // Writing to a String cannot fail.
        let _ = write!(event, "{}\n\n", "x".repeat(padding));
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        stream.write_all(chunk.as_bytes())?;
    }
    stream.write_all(b"0\r\n\r\n")
}

fn source(stream: &mut impl Stream, bytes: usize) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n")?;
    let part = vec![b'x'; 256 * 1024];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(part.len());
        stream.write_all(&part[..now])?;
        left -= now;
    }
    Ok(())
}
