//! The programs under test, each a process of its own on a loopback port.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::load::Address;
use crate::process::Program;

/// One program under test.
#[derive(Debug)]
pub struct Peer {
    /// Its name in the table.
    pub name: &'static str,
    /// The process.
    pub program: Program,
    /// Where it listens.
    pub address: Address,
}

/// This program in another role; it prints its address first.
pub fn own(role: &'static str, upstream: Option<&str>) -> io::Result<Peer> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--role")
        .arg(role)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(upstream) = upstream {
        command.arg("--upstream").arg(upstream);
    }
    let mut program = Program::start(&mut command)?;
    let authority = first_line(&mut program)?;
    Ok(Peer {
        name: role,
        program,
        address: Address {
            authority,
            key: "lp-bench".to_owned(),
        },
    })
}

/// nginx with the plainest configuration that relays streams and reuses connections.
pub fn nginx(binary: &Path, upstream: &str, scratch: &Path) -> io::Result<Peer> {
    let directory = scratch.join("nginx");
    fs::create_dir_all(&directory)?;
    let port = free_port()?;
    let dir = directory.display();
    // Run by root, workers would become `nobody` and could not write below `dir`.
    let user = if rustix::process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let config = format!(
        "daemon off; {user} worker_processes 2; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  upstream api {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://api; proxy_http_version 1.1; proxy_buffering off;
      proxy_set_header Connection \"\"; proxy_set_header Host {upstream};
      proxy_set_header Authorization \"\"; proxy_set_header x-api-key sk-ant-bench-real-key;
    }}
  }}
}}
"
    );
    let path = directory.join("nginx.conf");
    fs::write(&path, config)?;
    let mut command = Command::new(binary);
    command
        .arg("-c")
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut peer = Peer {
        name: "nginx",
        program: Program::start(&mut command)?,
        address: Address {
            authority: format!("127.0.0.1:{port}"),
            key: "lp-bench".to_owned(),
        },
    };
    wait_for_port(&mut peer, Duration::from_secs(10))?;
    Ok(peer)
}

/// LiteLLM's proxy, two workers, no database, no logging of requests.
pub fn litellm(binary: &Path, upstream: &str, scratch: &Path) -> io::Result<Peer> {
    let directory = scratch.join("litellm");
    fs::create_dir_all(&directory)?;
    let port = free_port()?;
    let config = format!(
        "model_list:
  - model_name: claude-opus-5-5
    litellm_params:
      model: anthropic/claude-opus-5-5
      api_base: http://{upstream}
      api_key: sk-ant-bench-real-key
litellm_settings:
  telemetry: false
  drop_params: true
general_settings:
  master_key: sk-lp-bench
"
    );
    let path = directory.join("config.yaml");
    fs::write(&path, config)?;
    let log = fs::File::create(directory.join("log"))?;
    let mut command = Command::new(binary);
    command
        .args(["--host", "127.0.0.1", "--num_workers", "1", "--port"])
        .arg(port.to_string())
        .arg("--config")
        .arg(&path)
        .current_dir(&directory)
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("LITELLM_LOG", "ERROR")
        .env("HOME", &directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut peer = Peer {
        name: "litellm",
        program: Program::start(&mut command)?,
        address: Address {
            authority: format!("127.0.0.1:{port}"),
            key: "sk-lp-bench".to_owned(),
        },
    };
    wait_for_port(&mut peer, Duration::from_mins(2))?;
    Ok(peer)
}

/// labproxy as a user runs it, with no agent, on a fresh ledger below `scratch`.
pub fn labproxy(binary: &Path, upstream: &str, scratch: &Path) -> io::Result<Peer> {
    let directory = scratch.join("labproxy");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    for part in ["home", "config/labproxy", "state", "run"] {
        fs::create_dir_all(directory.join(part))?;
    }
    private(&directory.join("run"))?;
    fs::write(
        directory.join("config/labproxy/config.toml"),
        "[limits]\nmax_connections = 4096\n",
    )?;
    let log = fs::File::create(directory.join("log"))?;
    let mut command = Command::new(binary);
    command
        .args(["session", "start", "--cap", "1000000", "--upstream"])
        .arg(format!("http://{upstream}"))
        .args(["--credential", "env:BENCH_CREDENTIAL"])
        .current_dir(&directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory.join("home"))
        .env("XDG_CONFIG_HOME", directory.join("config"))
        .env("XDG_STATE_HOME", directory.join("state"))
        .env("XDG_RUNTIME_DIR", directory.join("run"))
        .env("BENCH_CREDENTIAL", "sk-ant-bench-real-key")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    let mut program = Program::start(&mut command)?;
    let address = exported(&mut program)?;
    Ok(Peer {
        name: "labproxy",
        program,
        address,
    })
}

/// Reads the two export lines that labproxy prints.
fn exported(program: &mut Program) -> io::Result<Address> {
    let stdout = program
        .child()
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("no stdout"))?;
    let (mut authority, mut key) = (None, None);
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        let value = line
            .split_once('=')
            .map(|(_, value)| value.trim_matches(['\'', '"']));
        if line.contains("ANTHROPIC_BASE_URL=") {
            authority = value
                .and_then(|value| value.strip_prefix("http://"))
                .map(str::to_owned);
        } else if line.contains("ANTHROPIC_API_KEY=") {
            key = value.map(str::to_owned);
        }
        if let (Some(authority), Some(key)) = (&authority, &key) {
            return Ok(Address {
                authority: authority.clone(),
                key: key.clone(),
            });
        }
    }
    Err(io::Error::other(
        "labproxy printed no address; see its log below target/bench",
    ))
}

fn first_line(program: &mut Program) -> io::Result<String> {
    let stdout = program
        .child()
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("no stdout"))?;
    let mut line = String::new();
    BufReader::new(stdout.take(256)).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn wait_for_port(peer: &mut Peer, limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    while std::net::TcpStream::connect(&peer.address.authority).is_err() {
        if !peer.program.alive() || Instant::now() > deadline {
            return Err(io::Error::other(format!("{} did not start", peer.name)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn private(directory: &PathBuf) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
}
