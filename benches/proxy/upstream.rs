//! The upstream of the benchmark: answers the Messages API as fast as a socket allows, with usage.
//!
//! What to answer stands in the request's text, because every proxy passes the body through:
//! `events=N` asks for a stream of N text deltas, `pace_us=M` for M microseconds before each.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::wire::{find, header_value};

/// Serves connections until the process is ended.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // A connection that breaks is the generator's to report.
            drop(connection(stream).await);
        });
    }
}

async fn connection(mut stream: TcpStream) -> io::Result<()> {
    // Grown on demand, so that 1,000 open streams do not blur the memory of the machine.
    let mut buffer: Vec<u8> = Vec::with_capacity(4096);
    loop {
        let head_end = loop {
            if let Some(at) = find(&buffer, b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let length: usize = header_value(&buffer[..head_end], "content-length")
            .and_then(|value| value.parse().ok())
            .unwrap_or(0);
        while buffer.len() < head_end + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let body = &buffer[head_end..head_end + length];
        match number_after(body, b"events=") {
            Some(events) => {
                let pace = number_after(body, b"pace_us=").unwrap_or(0);
                stream_answer(&mut stream, events, Duration::from_micros(pace)).await?;
            }
            None => stream.write_all(json_answer().as_bytes()).await?,
        }
        buffer.drain(..head_end + length);
    }
}

fn number_after(body: &[u8], key: &[u8]) -> Option<u64> {
    let at = find(body, key)? + key.len();
    let digits: String = body[at..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .map(|byte| char::from(*byte))
        .collect();
    digits.parse().ok()
}

fn head(kind: &str, framing: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ndate: {}\r\ncontent-type: {kind}\r\nrequest-id: req_011CSHoEeqs5C35K2UUqR7Fy\r\n{framing}\r\n\r\n",
        httpdate::fmt_http_date(SystemTime::now())
    )
}

fn json_answer() -> String {
    let body = concat!(
        r#"{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","model":"claude-opus-5-5","#,
        r#""content":[{"type":"text","text":"The file has three functions; the second one never closes its handle, which is why the test fails on the third run. Move the close call into the guard and it passes."}],"#,
        r#""stop_reason":"end_turn","stop_sequence":null,"#,
        r#""usage":{"input_tokens":212,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"#,
        r#""cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"#,
        r#""output_tokens":41,"service_tier":"standard"}}"#
    );
    let mut answer = head(
        "application/json",
        &format!("content-length: {}", body.len()),
    );
    answer.push_str(body);
    answer
}

async fn stream_answer(stream: &mut TcpStream, events: u64, pace: Duration) -> io::Result<()> {
    let mut out = head(
        "text/event-stream; charset=utf-8",
        "transfer-encoding: chunked",
    );
    event(
        &mut out,
        "message_start",
        concat!(
            r#"{"type":"message_start","message":{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","#,
            r#""model":"claude-opus-5-5","content":[],"stop_reason":null,"stop_sequence":null,"#,
            r#""usage":{"input_tokens":212,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"#,
            r#""output_tokens":1,"service_tier":"standard"}}}"#
        ),
    );
    event(
        &mut out,
        "content_block_start",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    );
    let mut delta = String::new();
    event(
        &mut delta,
        "content_block_delta",
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"The file has three functions; the second never closes its handle"}}"#,
    );
    let mut last = String::new();
    event(
        &mut last,
        "content_block_stop",
        r#"{"type":"content_block_stop","index":0}"#,
    );
    event(
        &mut last,
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":512}}"#,
    );
    event(&mut last, "message_stop", r#"{"type":"message_stop"}"#);
    last.push_str("0\r\n\r\n");

    stream.write_all(out.as_bytes()).await?;
    if pace.is_zero() {
        // Two dozen events in one write: as they arrive when the network was slower than the model.
        const TOGETHER: u64 = 24;
        let mut left = events;
        while left > 0 {
            let now = left.min(TOGETHER);
            let many = delta.repeat(usize::try_from(now).unwrap_or(1));
            stream.write_all(many.as_bytes()).await?;
            left -= now;
        }
    } else {
        for _ in 0..events {
            tokio::time::sleep(pace).await;
            stream.write_all(delta.as_bytes()).await?;
        }
    }
    stream.write_all(last.as_bytes()).await
}

/// Appends one event as one chunk.
fn event(out: &mut String, name: &str, data: &str) {
    let length = "event: ".len() + name.len() + "\ndata: ".len() + data.len() + "\n\n".len();
    // Writing to a String cannot fail.
    let _ = write!(out, "{length:x}\r\nevent: {name}\ndata: {data}\n\n\r\n");
}
