//! A scripted upstream behind TLS that speaks HTTP/2 frame by frame, so that it can refuse streams
//! and go away exactly as told; with ALPN `http/1.1` it hands over to bytes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// What is done for a stream whose request has arrived whole.
#[derive(Clone)]
pub enum Frames {
    /// 200 with a content type, and the body in these pieces; a cut one has no end.
    Answer {
        kind: &'static str,
        pieces: Vec<Vec<u8>>,
        cut: bool,
    },
    /// `RST_STREAM` with this code.
    Reset(u32),
    /// GOAWAY with this last id and no error, after which the connection is closed.
    GoAway { last: u32 },
    /// The connection is closed without a word.
    Close,
}

/// `REFUSED_STREAM`.
pub const REFUSED: u32 = 7;
/// `INTERNAL_ERROR`.
pub const INTERNAL: u32 = 2;

pub struct H2Upstream {
    pub address: SocketAddr,
    /// The certificate, for `ca_file`.
    pub ca_file: PathBuf,
    _directory: tempfile::TempDir,
    seen: Arc<Mutex<Vec<u32>>>,
    tasks: tokio::task::JoinHandle<()>,
}

impl H2Upstream {
    /// Answers the n-th request (from 0) as `script` says.
    pub async fn start(script: impl Fn(usize) -> Frames + Send + Sync + 'static) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let ca_file = directory.path().join("ca.pem");
        std::fs::write(&ca_file, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<dyn Fn(usize) -> Frames + Send + Sync> = Arc::new(script);
        let shared = seen.clone();
        let tasks = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            let mut connection = 0;
            while let Ok((socket, _)) = listener.accept().await {
                connection += 1;
                let (acceptor, script, seen) = (acceptor.clone(), script.clone(), shared.clone());
                serving.spawn(async move {
                    if let Ok(stream) = acceptor.accept(socket).await {
                        let _ended = serve(stream, &*script, &seen, connection).await;
                    }
                });
            }
        });
        Self {
            address,
            ca_file,
            _directory: directory,
            seen,
            tasks,
        }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// For each request that arrived whole, the number of its connection, from 1.
    pub fn seen(&self) -> Vec<u32> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for H2Upstream {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

async fn serve(
    mut stream: TlsStream<TcpStream>,
    script: &(dyn Fn(usize) -> Frames + Send + Sync),
    seen: &Mutex<Vec<u32>>,
    connection: u32,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    assert_eq!(preface, PREFACE);
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => {
                stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
            }
            PING if flags & ACK == 0 => stream.write_all(&frame(PING, ACK, 0, &payload)).await?,
            DATA | HEADERS if flags & END_STREAM != 0 => {
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(connection);
                    seen.len() - 1
                };
                if !answer(&mut stream, script(number), id).await? {
                    return stream.shutdown().await;
                }
            }
            _ => {}
        }
    }
}

/// Whether the connection goes on.
async fn answer(
    stream: &mut TlsStream<TcpStream>,
    frames: Frames,
    id: u32,
) -> std::io::Result<bool> {
    match frames {
        Frames::Answer { kind, pieces, cut } => {
            // `:status 200` from the static table, then a literal field with a new name.
            let mut block = vec![0x88, 0x00, 12];
            block.extend(b"content-type");
            block.push(u8::try_from(kind.len()).unwrap());
            block.extend(kind.as_bytes());
            stream
                .write_all(&frame(HEADERS, END_HEADERS, id, &block))
                .await?;
            for piece in &pieces {
                stream.write_all(&frame(DATA, 0, id, piece)).await?;
            }
            if cut {
                return Ok(false);
            }
            stream.write_all(&frame(DATA, END_STREAM, id, &[])).await?;
        }
        Frames::Reset(code) => {
            stream
                .write_all(&frame(RST_STREAM, 0, id, &code.to_be_bytes()))
                .await?;
        }
        Frames::GoAway { last } => {
            let payload = [last.to_be_bytes(), 0u32.to_be_bytes()].concat();
            stream.write_all(&frame(GOAWAY, 0, 0, &payload)).await?;
            return Ok(false);
        }
        Frames::Close => return Ok(false),
    }
    stream.flush().await?;
    Ok(true)
}
