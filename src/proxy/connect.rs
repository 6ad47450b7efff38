//! A connection to the upstream: addresses, an optional CONNECT proxy, TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::{self, AddressPolicy};
use super::stream::UpstreamStream;
use super::{ProxySetupError, UpstreamSettings};

/// Resolving, connecting and the TLS handshake together; `design.md` 12.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long one address may take before the next one is tried beside it, as RFC 8305 advises.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// A proxy's answer to CONNECT is a few lines.
const MAX_CONNECT_ANSWER: usize = 8 * 1024;

/// Why no connection was made; nothing of the request has been sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The name did not resolve.
    #[error("'{host}' does not resolve: {source}")]
    Resolve {
        host: String,
        #[source]
        source: io::Error,
    },
    /// Every address is one that must not be used.
    #[error(
        "'{host}' resolves to {address}, a private or local address; `allow_private` permits it"
    )]
    Forbidden { host: String, address: IpAddr },
    /// A connection without TLS would have left this machine.
    #[error("http:// is for loopback addresses only, and '{host}' is at {address}")]
    NotLoopback { host: String, address: IpAddr },
    /// No address took the connection.
    #[error("cannot connect to '{host}': {source}")]
    Tcp {
        host: String,
        #[source]
        source: io::Error,
    },
    /// The proxy did not make a tunnel.
    #[error("the HTTP proxy '{proxy}' {what}")]
    Proxy { proxy: String, what: String },
    /// The TLS handshake failed.
    #[error("TLS with '{host}' failed: {source}")]
    Tls {
        host: String,
        #[source]
        source: io::Error,
    },
    /// It took too long.
    #[error("'{host}' did not answer within {} s", CONNECT_LIMIT.as_secs())]
    Timeout { host: String },
}

impl ConnectError {
    /// Which step failed, for the client: without addresses, which are the user's own business.
    pub(crate) const fn step(&self) -> &'static str {
        match self {
            Self::Resolve { .. } => "its name does not resolve",
            Self::Forbidden { .. } => "its name resolves to a private or local address",
            Self::NotLoopback { .. } => "http:// is for loopback addresses only",
            Self::Tcp { .. } => "it takes no connection",
            Self::Proxy { .. } => "the HTTP proxy made no tunnel",
            Self::Tls { .. } => "the TLS handshake failed",
            Self::Timeout { .. } => "it took too long",
        }
    }
}

/// A fresh connection and what the two sides agreed to speak.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: UpstreamStream,
    pub(crate) http2: bool,
}

/// Makes connections to one origin.
pub(crate) struct Connector {
    host: String,
    port: u16,
    policy: AddressPolicy,
    proxy: Option<HttpProxy>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

struct HttpProxy {
    host: String,
    port: u16,
    /// `Proxy-Authorization`, where the URL has user information.
    authorization: Option<String>,
}

impl Connector {
    /// # Errors
    /// When the URL cannot be used, or the roots cannot be loaded.
    pub(crate) fn new(settings: &UpstreamSettings) -> Result<Self, ProxySetupError> {
        let bad = |what: String| ProxySetupError::Upstream { what };
        let url = &settings.base_url;
        let host = url
            .host()
            .ok_or_else(|| bad(format!("'{url}' names no host")))?;
        let bare = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let (tls, default_port) = match url.scheme_str() {
            Some("https") => {
                let name = ServerName::try_from(bare.clone())
                    .map_err(|_| bad(format!("'{host}' is not a name TLS can check")))?;
                let config = tls_config(settings.ca_file.as_deref())?;
                (Some((TlsConnector::from(Arc::new(config)), name)), 443)
            }
            Some("http") => (None, 80),
            _ => return Err(bad(format!("'{url}' is neither https:// nor http://"))),
        };
        let proxy = settings.http_proxy.as_ref().map(http_proxy).transpose()?;
        if tls.is_none() && proxy.is_some() {
            return Err(bad(
                "http:// is for loopback addresses, without a proxy".to_owned()
            ));
        }
        Ok(Self {
            policy: AddressPolicy::of(host, settings.allow_private),
            host: bare,
            port: url.port_u16().unwrap_or(default_port),
            proxy,
            tls,
        })
    }

    /// Connects, within the limit.
    pub(crate) async fn connect(&self) -> Result<Connected, ConnectError> {
        match tokio::time::timeout(CONNECT_LIMIT, self.connect_unbounded()).await {
            Ok(done) => done,
            Err(_) => Err(self.too_late()),
        }
    }

    /// The error for what took longer than the limit.
    pub(crate) fn too_late(&self) -> ConnectError {
        ConnectError::Timeout {
            host: self.host.clone(),
        }
    }

    async fn connect_unbounded(&self) -> Result<Connected, ConnectError> {
        let tcp = match &self.proxy {
            Some(proxy) => self.tunnel(proxy).await?,
            None => connect_tcp(&self.host, self.port, self.policy).await?,
        };
        let Some((connector, name)) = &self.tls else {
            return self.without_tls(tcp);
        };
        let stream = connector
            .connect(name.clone(), tcp)
            .await
            .map_err(|source| ConnectError::Tls {
                host: self.host.clone(),
                source,
            })?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Connected {
            stream: UpstreamStream::Tls(Box::new(stream)),
            http2,
        })
    }

    /// The rule is judged on the address that was connected to, not on what the name promised.
    fn without_tls(&self, tcp: TcpStream) -> Result<Connected, ConnectError> {
        let host = || self.host.clone();
        let peer = tcp.peer_addr().map_err(|source| ConnectError::Tcp {
            host: host(),
            source,
        })?;
        if !address::is_loopback(peer.ip()) {
            return Err(ConnectError::NotLoopback {
                host: host(),
                address: peer.ip(),
            });
        }
        Ok(Connected {
            stream: UpstreamStream::Plain(tcp),
            http2: false,
        })
    }

    /// Asks the proxy for a tunnel. The proxy resolves the name, so the address policy is its
    /// operator's; TLS still proves who is at the other end.
    async fn tunnel(&self, proxy: &HttpProxy) -> Result<TcpStream, ConnectError> {
        let failed = |what: String| ConnectError::Proxy {
            proxy: format!("{}:{}", proxy.host, proxy.port),
            what,
        };
        let mut tcp = connect_tcp(&proxy.host, proxy.port, AddressPolicy::Any).await?;
        let target = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(authorization) = &proxy.authorization {
            request.push_str("Proxy-Authorization: ");
            request.push_str(authorization);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        tcp.write_all(request.as_bytes())
            .await
            .map_err(|error| failed(format!("did not take the request: {error}")))?;
        // The upstream speaks only after our TLS greeting, so nothing beyond the head can come.
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let byte = tcp
                .read_u8()
                .await
                .map_err(|error| failed(format!("did not answer: {error}")))?;
            answer.push(byte);
            if answer.len() > MAX_CONNECT_ANSWER {
                return Err(failed("answered without an end".to_owned()));
            }
        }
        let status = answer
            .strip_prefix(b"HTTP/1.1 ")
            .or_else(|| answer.strip_prefix(b"HTTP/1.0 "))
            .and_then(|rest| rest.get(..3))
            .map(|digits| String::from_utf8_lossy(digits).into_owned());
        match status {
            Some(status) if status.starts_with('2') => Ok(tcp),
            Some(status) => Err(failed(format!("refused the tunnel with status {status}"))),
            None => Err(failed("does not speak HTTP".to_owned())),
        }
    }
}

fn http_proxy(url: &http::Uri) -> Result<HttpProxy, ProxySetupError> {
    // The URL may hold a password, so no error shows it.
    let bad = |what: &str| ProxySetupError::Upstream {
        what: format!("the HTTP proxy's URL {what}"),
    };
    if url.scheme_str() != Some("http") {
        return Err(bad("must begin with http://"));
    }
    let authority = url.authority().ok_or_else(|| bad("names no host"))?;
    let authorization = authority.as_str().rsplit_once('@').map(|(user, _)| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(percent_decoded(user));
        format!("Basic {encoded}")
    });
    Ok(HttpProxy {
        host: authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned(),
        port: authority.port_u16().unwrap_or(80),
        authorization,
    })
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = match escaped {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    bytes
}

async fn connect_tcp(
    host: &str,
    port: u16,
    policy: AddressPolicy,
) -> Result<TcpStream, ConnectError> {
    let found: Vec<SocketAddr> = match address::literal(host) {
        Some(ip) => vec![SocketAddr::new(ip, port)],
        None => tokio::net::lookup_host((host, port))
            .await
            .map_err(|source| ConnectError::Resolve {
                host: host.to_owned(),
                source,
            })?
            .collect(),
    };
    let usable: Vec<SocketAddr> = found
        .iter()
        .copied()
        .filter(|address| policy.allows(address.ip()))
        .collect();
    match (usable.is_empty(), found.first()) {
        (true, Some(first)) => Err(ConnectError::Forbidden {
            host: host.to_owned(),
            address: first.ip(),
        }),
        _ => race(usable).await.map_err(|source| ConnectError::Tcp {
            host: host.to_owned(),
            source,
        }),
    }
}

/// Connects to the first address that answers; each gets a head start over the next.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        let next = waiting.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            attempts.push(TcpStream::connect(address));
        }
        let head_start = async {
            if is_last {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(NEXT_ADDRESS_AFTER).await;
        };
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Some(Err(error)) => last = error,
                None => return Err(last),
            },
            () = head_start => {}
        }
    }
}

/// The system's roots (or the bundled ones where it has none) and those of `ca_file`.
fn tls_config(ca_file: Option<&Path>) -> Result<rustls::ClientConfig, ProxySetupError> {
    let mut roots = rustls::RootCertStore::empty();
    let (_taken, _ignored) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if let Some(path) = ca_file {
        add_ca_file(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ProxySetupError::Upstream {
            what: format!("TLS cannot be set up: {error}"),
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn add_ca_file(roots: &mut rustls::RootCertStore, path: &Path) -> Result<(), ProxySetupError> {
    let failed = |what: String| ProxySetupError::CaFile {
        path: path.to_owned(),
        what,
    };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(error.to_string()))?;
    if certificates.is_empty() {
        return Err(failed("it holds no certificate".to_owned()));
    }
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}
