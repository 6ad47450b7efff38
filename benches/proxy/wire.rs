//! As much HTTP/1.1 as a load generator and its upstream need, and no more, so that most of the two
//! cores is left to the program under test.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Where `needle` begins in `haystack`.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// The value of a header in a raw head, trimmed; `name` in lower case.
pub fn header_value(head: &[u8], name: &str) -> Option<String> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon]
            .eq_ignore_ascii_case(name.as_bytes())
            .then(|| {
                String::from_utf8_lossy(&line[colon + 1..])
                    .trim()
                    .to_owned()
            })
    })
}

/// One request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// The answer's status.
    pub status: u16,
    /// From the first byte written to the first body byte read.
    pub first_byte: Duration,
    /// From the first byte written to the end of the answer.
    pub total: Duration,
    /// Bytes of the answer's body.
    pub body_bytes: usize,
}

/// A keep-alive connection to the program under test.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

enum Framing {
    Length(usize),
    Chunked,
}

impl Connection {
    /// Connects to `HOST:PORT`.
    pub async fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(4096),
        })
    }

    /// Sends a whole request and reads the whole answer; `on_first_byte` is called once.
    pub async fn exchange(
        &mut self,
        request: &[u8],
        on_first_byte: impl FnOnce(),
    ) -> io::Result<Exchange> {
        let began = Instant::now();
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head_end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = &self.buffer[..head_end];
        let status = std::str::from_utf8(head.get(9..12).unwrap_or(b""))
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| io::Error::other("no status line"))?;
        let framing = match header_value(head, "content-length") {
            Some(value) => Framing::Length(value.parse().map_err(io::Error::other)?),
            None => Framing::Chunked,
        };
        self.buffer.drain(..head_end);
        if self.buffer.is_empty() && !matches!(framing, Framing::Length(0)) {
            self.more().await?;
        }
        let first_byte = began.elapsed();
        on_first_byte();
        let body_bytes = match framing {
            Framing::Length(length) => {
                while self.buffer.len() < length {
                    self.more().await?;
                }
                length
            }
            Framing::Chunked => self.chunks().await?,
        };
        Ok(Exchange {
            status,
            first_byte,
            total: began.elapsed(),
            body_bytes,
        })
    }

    /// Reads chunks up to the last one; returns their bytes.
    async fn chunks(&mut self) -> io::Result<usize> {
        let mut at = 0;
        let mut body_bytes = 0;
        loop {
            let line_end = loop {
                if let Some(end) = find(&self.buffer[at..], b"\r\n") {
                    break at + end;
                }
                self.buffer.drain(..at);
                at = 0;
                self.more().await?;
            };
            let digits = String::from_utf8_lossy(&self.buffer[at..line_end]).into_owned();
            let size = usize::from_str_radix(digits.trim(), 16).map_err(io::Error::other)?;
            at = line_end + 2;
            while self.buffer.len() < at + size + 2 {
                self.more().await?;
            }
            at += size + 2;
            body_bytes += size;
            if size == 0 {
                return Ok(body_bytes);
            }
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}
