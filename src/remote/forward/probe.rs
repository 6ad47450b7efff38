//! Asking through the whole chain: forwarder, ssh, controller, proxy, and back.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::refusal::LINK_HEADER;

/// What is asked: no key, no body, and a path that agents' own clients ask for.
const REQUEST: &[u8] = b"HEAD /api/hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// Longest answer: a head.
const ANSWER_MAX: usize = 64 * 1024;
/// How long a probe may take.
pub const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The near end takes no connection.
    #[error("the socket takes no connection: {0}")]
    Connect(#[source] io::Error),
    /// It broke on the way.
    #[error("the connection broke before an answer: {0}")]
    Broken(#[source] io::Error),
    /// No answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// It was closed without an answer: nothing listens at the far end.
    #[error("the connection was closed without an answer")]
    Closed,
    /// Something else than a proxy answered.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// The forwarder answered for itself.
    #[error("no link is up, or it closed the request unanswered")]
    NoLink,
}

/// An answer that came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// The proxy's status: any shows that the way is open.
    pub status: u16,
    /// How long it took.
    pub took: Duration,
}

/// Asks through a forwarder.
#[derive(Debug, Clone, Copy)]
pub struct Prober {
    port: u16,
}

impl Prober {
    /// For what listens on this port of 127.0.0.1: a forwarder, or a link's ssh.
    pub const fn new(port: u16) -> Self {
        Self { port }
    }

    /// Asks, and waits for the answer at most `limit`.
    ///
    /// # Errors
    /// When no answer of the proxy came.
    pub fn probe(self, limit: Duration) -> Result<Passed, ProbeError> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        ask(stream.map_err(ProbeError::Connect)?, limit)
    }
}

/// Asks through the socket that a link's ssh listens on, past the forwarder.
///
/// # Errors
/// When no answer of the proxy came.
pub fn through_socket(socket: &Path, limit: Duration) -> Result<Passed, ProbeError> {
    ask(
        UnixStream::connect(socket).map_err(ProbeError::Connect)?,
        limit,
    )
}

/// A stream whose reads and writes can be limited.
trait Limited: Read + Write {
    fn limit(&self, limit: Duration) -> io::Result<()>;
}

impl Limited for TcpStream {
    fn limit(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))?;
        self.set_read_timeout(Some(limit))
    }
}

impl Limited for UnixStream {
    fn limit(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))?;
        self.set_read_timeout(Some(limit))
    }
}

fn ask(mut stream: impl Limited, limit: Duration) -> Result<Passed, ProbeError> {
    let began = Instant::now();
    stream.limit(limit).map_err(ProbeError::Broken)?;
    stream.write_all(REQUEST).map_err(ProbeError::Broken)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") && answer.len() < ANSWER_MAX {
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(ProbeError::Silent(limit));
        }
        stream.limit(left).map_err(ProbeError::Broken)?;
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(0) if answer.is_empty() => return Err(ProbeError::Closed),
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(part.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ProbeError::Silent(limit));
            }
            Err(error) => return Err(ProbeError::Broken(error)),
        }
    }
    let status = status(&answer).ok_or(ProbeError::NotHttp)?;
    if answer
        .split(|byte| *byte == b'\n')
        .any(|line| line.starts_with(LINK_HEADER.as_bytes()))
    {
        return Err(ProbeError::NoLink);
    }
    Ok(Passed {
        status,
        took: began.elapsed(),
    })
}

/// The status of an answer's head.
fn status(answer: &[u8]) -> Option<u16> {
    let after = answer.strip_prefix(b"HTTP/1.")?;
    let digits = after.get(2..5)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn only_a_status_line_has_a_status() {
        assert_eq!(status(b"HTTP/1.1 404 Not Found\r\n\r\n"), Some(404));
        for bad in [
            &b""[..],
            b"HTTP/1.1",
            b"HTTP/1.1 4",
            b"SSH-2.0-OpenSSH_9.2\r\n",
        ] {
            assert_eq!(status(bad), None);
        }
    }
}
