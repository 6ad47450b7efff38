//! The yardstick: the smallest honest hyper proxy. It swaps the key header and relays; it prices,
//! checks and records nothing.

use std::io;

use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

type Body = BoxBody<Bytes, hyper::Error>;

/// Serves connections until the process is ended; `upstream` is `HOST:PORT`.
pub async fn serve(listener: TcpListener, upstream: String) -> io::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let client = client.clone();
        let upstream = upstream.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let client = client.clone();
                let upstream = upstream.clone();
                async move { Ok::<_, hyper::Error>(relay(&client, &upstream, request).await) }
            });
            // A connection that breaks is the generator's to report.
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(served);
        });
    }
}

async fn relay(
    client: &Client<HttpConnector, Incoming>,
    upstream: &str,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let Ok(uri) = Uri::builder()
        .scheme("http")
        .authority(upstream)
        .path_and_query(path)
        .build()
    else {
        return bad_gateway();
    };
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.remove(HOST);
    headers.remove(AUTHORIZATION);
    headers.insert(
        HeaderName::from_static("x-api-key"),
        HeaderValue::from_static("sk-ant-bench-real-key"),
    );
    match client.request(request).await {
        Ok(response) => response.map(BodyExt::boxed),
        Err(_) => bad_gateway(),
    }
}

fn bad_gateway() -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
