//! Who is let in, to what, and what the upstream is shown.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use labproxy::ledger::Entry;
use labproxy::proxy::credential::CredentialSource;
use labproxy::secret::{Credential, CredentialKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::rig::{Reply, Rig, Setup, answer, ask, error, key, price};
use crate::upstream::{Step, Upstream, json, within};

async fn fine() -> Upstream {
    Upstream::start(|_, seen| {
        vec![Step::Bytes(if seen.line().contains("count_tokens") {
            json("200 OK", r#"{"input_tokens":7}"#)
        } else {
            json("200 OK", answer(10, 20))
        })]
    })
    .await
}

/// What comes back for raw bytes, as text.
async fn raw(rig: &Rig, request: &str) -> String {
    let mut socket = TcpStream::connect(rig.address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let length = within(socket.read(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// A wrong or missing placeholder is a 401 that no client repeats, and nothing reaches the upstream;
/// the right one works afterwards as often as one likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x12_a_wrong_placeholder_is_refused_and_locks_nobody_out() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    for (name, value) in [
        ("x-api-key", "sk-ant-real-looking".to_owned()),
        ("authorization", "Bearer nonsense".to_owned()),
        ("authorization", rig.placeholder.clone()),
        ("x-nothing", String::new()),
    ] {
        let mut client = rig.client().await;
        let request = Request::post("/v1/messages")
            .header(name, value)
            .body(Full::new(Bytes::from(ask(100, false))))
            .unwrap();
        let reply = Reply::read(client.send(request).await).await;
        assert_eq!(reply.status, 401);
        assert_eq!(reply.error().0, "authentication_error");
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    }
    assert_eq!(rig.proxy.counters().unauthenticated, 4);
    assert_eq!(upstream.connections(), 0);
    let mut client = rig.client().await;
    for _ in 0..20 {
        assert_eq!(client.post(ask(100, false)).await.status, 200);
    }
    assert_eq!(rig.spent().await, 20 * price(10, 20));
}

/// Claude Code's bearer works as well as an SDK's key, also over the unix socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a01_a_bearer_and_the_unix_socket_work_too() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let mut socket = UnixStream::connect(&rig.socket).await.unwrap();
    let body = ask(100, false);
    let request = format!(
        "POST /v1/messages?beta=true HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        rig.placeholder,
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer_text = String::new();
    within(socket.read_to_string(&mut answer_text))
        .await
        .unwrap();
    assert!(
        answer_text.starts_with("HTTP/1.1 200 OK\r\n"),
        "{answer_text}"
    );
    assert!(answer_text.ends_with(&answer(10, 20)));
    let seen = upstream.seen().remove(0);
    assert_eq!(seen.line(), "POST /v1/messages?beta=true HTTP/1.1");
    assert_eq!(seen.header("authorization"), Vec::<String>::new());
}

/// An OAuth token goes out as the only credential, with the beta it needs and the client's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a01_a03_an_oauth_token_is_the_only_credential() {
    let upstream = fine().await;
    let token = Credential::new(
        CredentialKind::Oauth,
        b"sk-ant-oat01-canary".to_vec().into(),
    );
    let setup = Setup {
        credential: Some(CredentialSource::Given(token.unwrap())),
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    let mut client = rig.client().await;
    let mut request = client.request(Method::POST, "/v1/messages", ask(100, false));
    let betas = "claude-code-20250219,interleaved-thinking-2025-05-14";
    request
        .headers_mut()
        .insert("anthropic-beta", betas.parse().unwrap());
    assert_eq!(client.send(request).await.status(), 200);
    let seen = upstream.seen().remove(0);
    assert_eq!(seen.header("authorization"), ["Bearer sk-ant-oat01-canary"]);
    assert_eq!(seen.header("x-api-key"), Vec::<String>::new());
    let sent = seen.header("anthropic-beta").join(",");
    assert!(sent.starts_with(betas), "{sent}");
    assert!(sent.contains("oauth-2025-04-20"), "{sent}");
}

/// Betas come out as they went in, and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a05_betas_and_the_version_come_out_as_they_went_in() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let mut client = rig.client().await;
    let mut request = client.request(Method::POST, "/v1/messages", ask(100, false));
    let betas = "a-2026-01-01,b-2026-01-02,c-2026-01-03,d-2026-01-04,e-2026-01-05,f-2026-01-06";
    request
        .headers_mut()
        .insert("anthropic-beta", betas.parse().unwrap());
    assert_eq!(client.send(request).await.status(), 200);
    let seen = upstream.seen().remove(0);
    assert_eq!(seen.header("anthropic-beta"), [betas]);
    assert_eq!(seen.header("anthropic-version"), ["2023-06-01"]);
}

/// Odd paths, other hosts, upgrades and unlisted queries are refused and never forwarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x01_x02_x16_a08_a15_odd_targets_never_reach_the_upstream() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    for (target, status) in [
        ("/v1/messages/../files", 400),
        ("/v1/%6dessages", 400),
        ("/v1/messages%2fbatches", 400),
        ("/v1/messages/%2e%2e/files", 400),
        ("//v1/messages", 400),
        ("/v1//messages", 400),
        ("/v1/messages;x", 400),
        ("/V1/messages", 400),
        ("/v1/messages?key=sk-ant-x", 400),
        ("/v1/messages?model=x", 400),
        ("/v1/messages/", 403),
        ("/v1/messages/batches", 403),
        ("/v1/files", 403),
        ("/v1/proxy/messages", 403),
        ("/v1/complete", 403),
        ("/", 403),
        ("http://evil.example/v1/messages", 400),
    ] {
        let request = format!(
            "POST {target} HTTP/1.1\r\nhost: evil.example\r\nx-api-key: {}\r\n\
             x-upstream-url: http://evil.example\r\ncontent-length: 2\r\n\r\n{{}}",
            rig.placeholder
        );
        let text = raw(&rig, &request).await;
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status} ")),
            "{target}: {text}"
        );
        assert!(text.contains("x-should-retry: false"), "{target}: {text}");
    }
    let upgrade = format!(
        "GET /v1/responses HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\n\r\n",
        rig.placeholder
    );
    assert!(raw(&rig, &upgrade).await.starts_with("HTTP/1.1 426 "));
    let connect = format!(
        "CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\nx-api-key: {}\r\n\r\n",
        rig.placeholder
    );
    assert!(raw(&rig, &connect).await.starts_with("HTTP/1.1 400 "));
    assert_eq!(upstream.connections(), 0);
    assert_eq!(rig.spent().await, 0);
}

/// Nothing that a client sends changes the host, and hop-by-hop headers and cookies stay here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x01_x02_x17_t10_only_listed_headers_pass_and_the_host_is_a_constant() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let mut client = rig.client().await;
    let mut request = client.request(Method::POST, "/v1/messages", ask(100, false));
    let headers = request.headers_mut();
    headers.insert("host", "evil.example".parse().unwrap());
    headers.insert("connection", "x-app, keep-alive".parse().unwrap());
    for name in [
        "x-app",
        "cookie",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "proxy-authorization",
        "te",
        "x-http-method-override",
        "idempotency-key",
        "x-goog-api-key",
        "anthropic-secret-mode",
    ] {
        headers.insert(name, "1".parse().unwrap());
    }
    headers.insert(
        "user-agent",
        "claude-cli/2.1.332 (external, sdk-cli)".parse().unwrap(),
    );
    headers.insert("x-stainless-lang", "js".parse().unwrap());
    assert_eq!(client.send(request).await.status(), 200);
    let seen = upstream.seen().remove(0);
    let mut names: Vec<_> = seen
        .head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, _)| name.to_owned())
        .collect();
    names.sort();
    let expected = [
        "accept-encoding",
        "anthropic-version",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-api-key",
        "x-stainless-lang",
    ];
    assert_eq!(names, expected);
    assert_eq!(seen.header("host"), [upstream.address.to_string()]);
}

/// Probes are answered here, without a key, and so is nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_here() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    for path in ["/", "/api/hello"] {
        let text = raw(&rig, &format!("HEAD {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    }
    let text = raw(&rig, "HEAD /v1/messages HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
    assert_eq!(upstream.connections(), 0);
}

/// `count_tokens` and the models' list pass, cost nothing, and leave no entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a11_a13_counts_and_models_are_forwarded_and_free() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let mut client = rig.client().await;
    let body = r#"{"model":"claude-haiku-4-5","messages":[{"role":"user","content":"hi"}]}"#;
    let request = client.request(Method::POST, "/v1/messages/count_tokens?beta=true", body);
    let reply = Reply::read(client.send(request).await).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.body[..]),
        (200, &br#"{"input_tokens":7}"#[..])
    );
    assert_eq!(client.get("/v1/models?limit=1000").await.status, 200);
    assert_eq!(client.get("/v1/models/claude-haiku-4-5").await.status, 200);
    let lines: Vec<_> = upstream
        .seen()
        .iter()
        .map(|seen| seen.line().to_owned())
        .collect();
    assert_eq!(
        lines,
        [
            "POST /v1/messages/count_tokens?beta=true HTTP/1.1",
            "GET /v1/models?limit=1000 HTTP/1.1",
            "GET /v1/models/claude-haiku-4-5 HTTP/1.1",
        ]
    );
    assert_eq!(rig.proxy.counters().free, 3);
    let entries = rig.entries().await;
    assert!(matches!(entries[..], [Entry::Opened { .. }]), "{entries:?}");
    assert_eq!(rig.spent().await, 0);
}

/// Each kind of refusal: its status, its type, its text, `x-should-retry: false`, one entry, and not
/// a byte to the upstream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t07_refused_bodies_never_reach_the_upstream() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let plain = ask(100, false);
    let with = |extra: &str| plain.replacen('{', &format!("{{{extra},"), 1);
    for (body, status, kind, says) in [
        (
            with(r#""speed":"fast""#),
            400,
            "invalid_request_error",
            "Fast mode is not enabled",
        ),
        (with(r#""new_key":1"#), 402, "billing_error", "labproxy:"),
        (with(r#""fallbacks":[]"#), 402, "billing_error", "labproxy:"),
        (
            with(r#""container":"c""#),
            402,
            "billing_error",
            "labproxy:",
        ),
        (
            with(r#""mcp_servers":[{}]"#),
            402,
            "billing_error",
            "labproxy:",
        ),
        (
            with(r#""max_tokens":1"#),
            400,
            "invalid_request_error",
            "labproxy:",
        ),
        (
            plain.replace("haiku-4-5", "haiku-99"),
            402,
            "billing_error",
            "has no price",
        ),
        (
            plain.replace("100", "\"100\""),
            400,
            "invalid_request_error",
            "labproxy:",
        ),
        (
            plain.replace("100", "1e2"),
            400,
            "invalid_request_error",
            "labproxy:",
        ),
        (
            "\u{feff}{}".to_owned(),
            400,
            "invalid_request_error",
            "labproxy:",
        ),
        (String::new(), 400, "invalid_request_error", "labproxy:"),
    ] {
        let reply = rig.post(body.clone()).await;
        assert_eq!(reply.status.as_u16(), status, "{body}");
        let (found, text) = reply.error();
        assert_eq!(found, kind, "{body}");
        assert!(
            text.starts_with(says) || text.contains(says),
            "{body}: {text}"
        );
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        assert_eq!(reply.header("retry-after"), None);
    }
    assert_eq!(upstream.connections(), 0);
    let ends = rig.ends().await;
    assert_eq!(ends.len(), 11);
    assert!(ends.iter().all(|end| matches!(end, Entry::Refused { .. })));
    assert_eq!(rig.proxy.counters().refused, 11);
    assert_eq!(rig.spent().await, 0);
}

/// A real key in the environment of labproxy is not what an upstream gets that no credential was
/// named for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t19_an_unnamed_upstream_gets_a_worthless_key() {
    let upstream = fine().await;
    let setup = Setup {
        credential: Some(CredentialSource::Dummy),
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    assert_eq!(rig.post(ask(100, false)).await.status, 200);
    let seen = upstream.seen().remove(0);
    assert_eq!(seen.header("x-api-key"), ["labproxy-dummy-credential"]);
}

/// An upstream that refuses the real credential: the client sees the provider's own error and does
/// not repeat it; nothing is charged; the counter tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_401_is_relayed_as_final_and_counted() {
    let body = error("authentication_error", "invalid x-api-key");
    let sent = body.clone();
    let upstream =
        Upstream::start(move |_, _| vec![Step::Bytes(json("401 Unauthorized", &sent))]).await;
    let setup = Setup {
        credential: Some(key("sk-ant-revoked")),
        ..Setup::default()
    };
    let rig = Rig::with(&upstream.url(), setup).await;
    let reply = rig.post(ask(100, false)).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.body[..]),
        (401, body.as_bytes())
    );
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert_eq!(rig.spent().await, 0);
    assert_eq!(rig.proxy.counters().credential_refused, 1);
    assert_eq!(upstream.seen().len(), 1);
}

/// Threat 10, X05: of 200 random headers none reaches the upstream, each of 200 random queries is
/// refused before any connection, and the placeholder never leaves this machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_x05_random_headers_and_queries_never_reach_the_upstream() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut word = || {
        let letters = (0..4 + (state >> 60)).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b'a' + ((state >> 33) % 26) as u8)
        });
        letters.collect::<String>()
    };
    let mut client = rig.client().await;
    for _ in 0..200 {
        let reply = client
            .get(&format!("/v1/models?{}={}", word(), word()))
            .await;
        assert_eq!(reply.status, 400);
        let target = format!("/v1/messages?beta=true&{}={}", word(), word());
        let request = client.request(Method::POST, &target, ask(100, false));
        assert_eq!(client.send(request).await.status(), 400);
    }
    assert_eq!(upstream.connections(), 0);
    for prefix in ["", "x-", "anthropic-", "x-anthropic-", "cf-"] {
        let mut request = client.request(Method::POST, "/v1/messages", ask(100, false));
        for _ in 0..40 {
            let name = format!("{prefix}{}-{}", word(), word());
            let name = http::HeaderName::try_from(name).unwrap();
            request.headers_mut().insert(name, word().parse().unwrap());
        }
        assert_eq!(client.send(request).await.status(), 200);
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 5);
    for request in seen {
        let names = request
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        let mut names: Vec<_> = names.map(|(name, _)| name).collect();
        names.sort_unstable();
        let listed = [
            "accept-encoding",
            "anthropic-version",
            "content-length",
            "content-type",
            "host",
            "x-api-key",
        ];
        assert_eq!(names, listed);
        assert!(!request.head.contains(&rig.placeholder));
    }
}

/// P19, P20: batches and background requests are refused, and no `GET` ever changes the ledger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p19_p20_batches_background_and_polling_cost_nothing() {
    let upstream = fine().await;
    let rig = Rig::new(&upstream.url()).await;
    let mut client = rig.client().await;
    for path in ["batches", "batches/b", "msgbatch_1", "batches/b/results"] {
        let target = format!("/v1/messages/{path}");
        assert_eq!(client.get(&target).await.status, 403, "{target}");
        let request = client.request(Method::POST, &target, ask(100, false));
        assert_eq!(client.send(request).await.status(), 403, "{target}");
    }
    let entries = rig.entries().await;
    assert!(matches!(entries[..], [Entry::Opened { .. }]), "{entries:?}");
    let background = ask(100, false).replacen('{', r#"{"background":true,"#, 1);
    let reply = rig.post(background).await;
    assert_eq!(reply.status, 402);
    assert!(reply.error().1.contains("background"));
    assert_eq!(upstream.connections(), 0);
    assert_eq!(rig.spent().await, 0);
}
