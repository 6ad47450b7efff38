//! A scripted upstream: it records what arrives and answers with bytes, pauses, cuts and resets,
//! exactly as told. It speaks HTTP/1.1 by hand, so that it can also speak it badly.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// One thing the upstream does.
#[derive(Clone)]
pub enum Step {
    /// Writes these bytes at once.
    Bytes(Vec<u8>),
    /// Does nothing for a while.
    Pause(Duration),
    /// Waits until the test says so.
    Wait(Arc<Notify>),
    /// Closes the connection in order.
    Close,
    /// Resets the connection.
    Reset,
    /// Waits until the other side closes, and then tells `Upstream::closed`.
    UntilClosed,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub head: String,
    pub body: Vec<u8>,
}

impl Seen {
    /// Values of a header, in order.
    pub fn header(&self, name: &str) -> Vec<String> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
            .collect()
    }

    /// `POST /v1/messages HTTP/1.1`
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

type Script = Arc<dyn Fn(usize, &Seen) -> Vec<Step> + Send + Sync>;

/// A running scripted upstream; dropping it ends its tasks.
pub struct Upstream {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    count: watch::Receiver<usize>,
    connections: Arc<Mutex<usize>>,
    closed: watch::Receiver<usize>,
    tasks: tokio::task::JoinHandle<()>,
}

impl Upstream {
    /// Answers the n-th request (from 0) with the steps that `script` gives for it.
    pub async fn start(script: impl Fn(usize, &Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script: Script = Arc::new(script);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let (count, counted) = watch::channel(0);
        let (closed, closings) = watch::channel(0);
        let (shared_seen, shared_connections) = (seen.clone(), connections.clone());
        let tasks = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                *shared_connections.lock().unwrap() += 1;
                serving.spawn(serve(
                    socket,
                    script.clone(),
                    shared_seen.clone(),
                    count.clone(),
                    closed.clone(),
                ));
            }
        });
        Self {
            address,
            seen,
            count: counted,
            connections,
            closed: closings,
            tasks,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    /// Waits until `count` requests have arrived whole.
    pub async fn arrived(&self, count: usize) {
        let mut counted = self.count.clone();
        within(counted.wait_for(|seen| *seen >= count))
            .await
            .unwrap();
    }

    /// Waits until `count` connections were seen closed by [`Step::UntilClosed`].
    pub async fn closed(&self, count: usize) {
        let mut closed = self.closed.clone();
        within(closed.wait_for(|seen| *seen >= count))
            .await
            .unwrap();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

/// Waits for what must come soon.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it should have happened within 20 s")
}

async fn serve(
    mut socket: TcpStream,
    script: Script,
    seen: Arc<Mutex<Vec<Seen>>>,
    count: watch::Sender<usize>,
    closed: watch::Sender<usize>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut socket, &mut buffer).await {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        count.send_modify(|count| *count += 1);
        for step in script(number, &request) {
            match step {
                Step::Bytes(bytes) => {
                    if socket.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Step::Pause(time) => tokio::time::sleep(time).await,
                Step::Wait(notify) => notify.notified().await,
                Step::Close => {
                    let _ended = socket.shutdown().await;
                    return;
                }
                Step::Reset => {
                    socket.set_zero_linger().unwrap();
                    return;
                }
                Step::UntilClosed => {
                    let mut rest = [0u8; 256];
                    while matches!(socket.read(&mut rest).await, Ok(length) if length > 0) {}
                    closed.send_modify(|count| *count += 1);
                    return;
                }
            }
        }
    }
}

fn read_request<'a>(
    socket: &'a mut TcpStream,
    buffer: &'a mut Vec<u8>,
) -> Pin<Box<dyn Future<Output = Option<Seen>> + Send + 'a>> {
    Box::pin(async move {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if socket.read_buf(buffer).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        let mut request = Seen {
            head,
            body: Vec::new(),
        };
        let length: usize = request
            .header("content-length")
            .first()
            .map_or(0, |text| text.parse().unwrap());
        while buffer.len() < end + length {
            if socket.read_buf(buffer).await.ok()? == 0 {
                return None;
            }
        }
        request.body = buffer[end..end + length].to_vec();
        buffer.drain(..end + length);
        Some(request)
    })
}

/// A whole response with a length.
pub fn response(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A JSON response.
pub fn json(status: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    response(status, "content-type: application/json\r\n", body)
}

/// The head of a chunked event stream.
pub fn sse_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
      request-id: req_upstream1\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_vec()
}

/// One chunk.
pub fn chunk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    out
}

/// The end of a chunked body.
pub fn last_chunk() -> Vec<u8> {
    b"0\r\n\r\n".to_vec()
}
