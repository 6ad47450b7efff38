//! No secret reaches the host, in whatever an SDK could put it into.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use memchr::memmem::find;

use crate::others::Caller;
use crate::rig::{KEY, World, files_with, until};

/// A piece of a process's memory that is looked at.
const PIECE: u64 = 1 << 20;

/// Every process of the host, by its pid here.
fn processes(world: &World) -> Vec<PathBuf> {
    let space = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
    let own = space(&PathBuf::from(format!("/proc/{}", world.host.init())));
    assert!(own.is_some());
    let entries = fs::read_dir("/proc").unwrap();
    let all = entries.map(|entry| entry.unwrap().path());
    all.filter(|process| space(process) == own).collect()
}

/// Whether a text stands in the memory of a process. One that ends meanwhile holds nothing.
fn memory_holds(process: &Path, needle: &str) -> bool {
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let Ok(memory) = File::open(process.join("mem")) else {
        return false;
    };
    let mut bytes = vec![0; usize::try_from(PIECE).unwrap() + needle.len()];
    maps.lines().any(|line| {
        let (range, mode) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        let mut pieces = (from..to).step_by(usize::try_from(PIECE).unwrap());
        mode.starts_with('r')
            && pieces.any(|at| {
                let most = bytes.len().min(usize::try_from(to - at).unwrap());
                // What the kernel keeps for itself cannot be read.
                let count = memory.read_at(&mut bytes[..most], at).unwrap_or(0);
                find(&bytes[..count], needle.as_bytes()).is_some()
            })
    })
}

/// After a call that the key paid for, with everything logged that can be, the key stands in no
/// argument, variable, memory or file of the host, and in no log here. The placeholder, which must be
/// there, shows that each of these was looked at.
#[test]
fn tu11_the_key_is_nowhere_on_the_host() {
    let world = World::new();
    let caller = Caller::start(&world, &[("LABPROXY_LOG", "trace")]);
    let placeholder = caller.placeholder.clone();
    let own = 30_003;
    let answer = caller.ask(&world, own, &format!("x-api-key: {placeholder}\\r\\n"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    world.host.ask(&format!(
        "echo {placeholder} >/srv/home/bash/.labproxy/control"
    ));

    let (mut environments, mut memories) = (0, 0);
    let all = processes(&world);
    assert!(
        all.len() >= 6,
        "sshd, its login, ours and the agent: {all:?}"
    );
    for process in all {
        for what in ["cmdline", "environ"] {
            let bytes = fs::read(process.join(what)).unwrap_or_default();
            assert_eq!(find(&bytes, KEY.as_bytes()), None, "{}", process.display());
            environments += usize::from(find(&bytes, placeholder.as_bytes()).is_some());
        }
        assert!(!memory_holds(&process, KEY), "{}", process.display());
        memories += usize::from(memory_holds(&process, &placeholder));
    }
    assert!(environments > 0 && memories > 0);
    for folder in ["/srv", "/tmp", "/run", "/var/tmp"] {
        // Of labproxy's kinds of files none is a socket's or a device's content.
        let search = |text: &str| {
            world
                .host
                .ask(&format!("grep -rlsaF -D skip '{text}' {folder}"))
        };
        assert_eq!(search(KEY), "", "{folder}");
        assert!(folder != "/srv" || search(&placeholder).contains("control"));
    }
    let done = caller.end();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains(" INFO "), "{done:?}");
    assert!(!done.stderr.contains(KEY) && !done.stdout.contains(KEY));
    assert_eq!(files_with(&world.path("."), KEY), Vec::<PathBuf>::new());
    assert_eq!(
        world
            .host
            .ask(&format!("grep -rlsaF -D skip '{KEY}' /srv /tmp /run")),
        ""
    );
}

/// While a CLI runs that was handed secrets in every way, none of them stands in a process or file of the
/// host where it could be read by name; the key nowhere at all.
#[test]
fn t05_tu11_no_secret_is_on_the_host() {
    let world = World::new();
    let session = world.waiting(&[]);
    let header = "mcp-secret-4b7a91";
    let servers = format!(r#"{{"mcpServers":{{"a":{{"headers":{{"x":"{header}"}}}}}}}}"#);
    let arguments = [
        "--mcp-config",
        &servers,
        "run",
        "sh",
        "-c",
        "cat \"$MCP\"; exec cat",
    ];
    let mut launch = world.launch(&arguments);
    launch
        .env("ANTHROPIC_API_KEY", KEY)
        .env("OPENAI_API_KEY", KEY)
        .env("NOTES", KEY);
    let shim = launch.spawn().unwrap();
    let home = world.host.file("home/bash");
    let is_there = || !files_with(&home, header).is_empty();
    until("the servers' file is there", is_there);
    for file in files_with(&home, header) {
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&file).unwrap());
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let everything = world
        .host
        .ask("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'");
    assert!(
        everything.contains("CLAUDE_CONFIG_DIR="),
        "the CLI's own is seen"
    );
    assert!(!everything.contains(KEY));
    assert!(!everything.contains(header));
    assert_eq!(files_with(&home, KEY), Vec::<PathBuf>::new());
    let found = world.host.ask(&format!("grep -rl '{KEY}' /tmp /run"));
    assert_eq!(found, "");
    let output = shim.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), servers);
    session.end();
    assert_eq!(files_with(&home, header), Vec::<PathBuf>::new());
}

/// Where the key would have to go along, there is one refusal with the name of what holds it.
#[test]
fn t05_the_key_is_refused_by_name_at_the_shim() {
    let world = World::new();
    let session = world.waiting(&[]);
    let servers = format!(r#"{{"mcpServers":{{"a":{{"headers":{{"x":"{KEY}"}}}}}}}}"#);
    for (arguments, variable, named) in [
        (
            vec!["--mcp-config", &servers, "run", "true"],
            "x",
            "--mcp-config",
        ),
        (vec!["run", "true"], KEY, "CLAUDE_CODE_X"),
        (vec!["run", "echo", KEY], "x", "argument 3"),
    ] {
        let mut launch = world.launch(&arguments);
        let output = launch.env("CLAUDE_CODE_X", variable).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(named) && !stderr.contains(KEY), "{stderr}");
    }
    session.end();
}
