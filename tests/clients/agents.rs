//! Claude Code on a host behind a real sshd, by itself and under the Claude Agent SDKs for Python and
//! TypeScript, which run here: calls reach the stand-in through the tunnel.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use serde_json::Value;

use crate::rig::{KEY, Rig, Run, clients};
use crate::sshd::Host;

/// The CLI in the Python package.
const PYTHONS: &str = "venv/lib/python3.11/site-packages/claude_agent_sdk/_bundled/claude";
/// The CLI in the npm package.
const NPMS: &str = "node_modules/@anthropic-ai/claude-agent-sdk-linux-x64/claude";

/// A host, and a user here who may use it.
pub(crate) struct There {
    pub(crate) rig: Rig,
    pub(crate) host: Host,
}

impl There {
    pub(crate) fn new() -> Self {
        let there = Self {
            rig: Rig::new(),
            host: Host::start(),
        };
        let config = there.host.file("ssh_config").display().to_string();
        there.rig.write(
            "config/labproxy/config.toml",
            &format!(
                "[pricing]\nallow_stale = true\n[host.rig]\nssh = \"tested\"\nuser = \"tbash\"\n\
                 ssh_config = \"{config}\"\n"
            ),
        );
        there
    }

    /// The CLI of an SDK is on the host already, as an earlier session would have left it.
    fn with_cli(self, program: &str) -> Self {
        let program = clients().join(program);
        let sum = std::process::Command::new("sha256sum")
            .arg(&program)
            .output();
        let sum = String::from_utf8(sum.unwrap().stdout).unwrap();
        let digest = sum.split(' ').next().unwrap();
        let home = self.host.file("home/bash");
        let bin = home.join(".labproxy/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let kept = bin.join(format!("claude-{digest}"));
        std::fs::copy(&program, &kept).unwrap();
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o700)).unwrap();
        let owner = std::fs::metadata(&home).unwrap();
        for path in [&home.join(".labproxy"), &bin, &kept] {
            std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        self
    }

    /// Runs a script of an SDK under a session whose shim is its last word but these.
    fn run(&self, script: &[&str], words: &[&str], more: &[(&str, &str)]) -> Run {
        let shim = self.rig.path("shim").display().to_string();
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_labproxy"));
        command
            .args(self.rig.arguments("2"))
            .args(["--host", "rig", "--shim", &shim, "--"])
            .args(script)
            .arg(&shim)
            .args(words)
            .current_dir(self.rig.path("workspace"))
            .env_clear()
            .envs(self.rig.environment())
            .envs(more.iter().copied());
        self.rig.finish(command)
    }

    /// Runs Claude Code on the host, as a user types it: with its name on `PATH`.
    fn claude(&self, words: &[&str]) -> Run {
        let named = clients().join("node_modules/.bin");
        let path = format!("{}:{}", named.display(), std::env::var("PATH").unwrap());
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_labproxy"));
        command
            .args(self.rig.arguments("2"))
            .args(["--host", "rig", "--", "claude"])
            .args(words)
            .current_dir(self.rig.path("workspace"))
            .env_clear()
            .envs(self.rig.environment())
            .env("PATH", path);
        self.rig.finish(command)
    }

    fn python(&self, words: &[&str], more: &[(&str, &str)]) -> (Run, Value) {
        let interpreter = clients().join("venv/bin/python").display().to_string();
        let script = format!("{}/tests/clients/agent.py", env!("CARGO_MANIFEST_DIR"));
        told(self.run(&[&interpreter, &script], words, more))
    }

    fn typescript(&self, words: &[&str]) -> (Run, Value) {
        let script = format!("{}/tests/clients/agent.mjs", env!("CARGO_MANIFEST_DIR"));
        let folder = clients().display().to_string();
        // The project that the script belongs to.
        let packages = self.rig.path("workspace/node_modules");
        std::os::unix::fs::symlink(clients().join("node_modules"), packages).unwrap();
        told(self.run(&["node", &script, &folder], words, &[]))
    }

    /// The session's workspace on the host.
    pub(crate) fn workspace(&self) -> PathBuf {
        let sessions = self.host.file("home/bash/.labproxy/sessions");
        let mut all = std::fs::read_dir(sessions).unwrap();
        let session = all.next().unwrap().unwrap().path();
        assert!(all.next().is_none(), "one session was here");
        session.join("workspace")
    }

    /// A file of it.
    fn workspace_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.workspace().join(name)).unwrap()
    }

    /// The bill is exact, the key is nowhere, and nothing of the session runs on the host.
    fn assert_exact(&self, run: &Run, answers: usize) {
        self.rig.assert_exact(run, answers);
        self.assert_clean();
    }

    /// The key is nowhere on the host, and nothing of a session runs there.
    pub(crate) fn assert_clean(&self) {
        let found = self.host.ask(&format!(
            "grep -rl --exclude='claude-*' '{KEY}' /srv/home /tmp /run"
        ));
        assert_eq!(found, "");
        self.host.assert_quiet();
    }
}

fn told(run: Run) -> (Run, Value) {
    assert_eq!(run.code, Some(0), "{run:#?}");
    let last = run.stdout.lines().last().unwrap();
    let told = serde_json::from_str(last).unwrap();
    (run, told)
}

/// `session start --host HOST -- claude -p`: the CLI of this machine is sent and works there as it would
/// here. Its answer, its status and its bill come back; its file is in the workspace of the host.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn claude_code_writes_a_file_on_a_host() {
    let there = There::new();
    let prompt = "Please. [[scenario: write-file hello.txt]]";
    let run = there.claude(&["-p", prompt, "--permission-mode", "acceptEdits"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_ne!(run.stdout.trim(), "", "{run:#?}");
    assert_eq!(run.receipt["agent"]["exit_code"], 0, "{run:#?}");
    let written = there.workspace_file("hello.txt");
    assert_eq!(written, "Written by an agent that never saw the key.\n");
    assert!(!there.rig.path("workspace/hello.txt").exists());
    there.assert_exact(&run, 2);
}

/// A turn with a tool, from Python, with the CLI sent first: the file is on the host, the SDK saw the CLI there.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn the_python_agent_sdk_runs_a_tool_on_a_host() {
    let there = There::new();
    let prompt = "Please. [[scenario: write-file hello.txt]]";
    let (run, told) = there.python(&["turn", prompt], &[("OPENAI_API_KEY", KEY)]);
    assert_eq!(told["is_error"], false, "{told:#} {run:#?}");
    assert_eq!(told["version"], "2.1.332", "{told:#}");
    assert!(
        told["cwd"].as_str().unwrap().ends_with("/workspace"),
        "{told:#}"
    );
    let written = there.workspace_file("hello.txt");
    assert_eq!(written, "Written by an agent that never saw the key.\n");
    assert!(!there.rig.path("workspace/hello.txt").exists());
    there.assert_exact(&run, 2);
}

/// The same from TypeScript.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn the_typescript_agent_sdk_runs_a_tool_on_a_host() {
    let there = There::new().with_cli(NPMS);
    let (run, told) = there.typescript(&["Please. [[scenario: write-file hello.txt]]"]);
    assert_eq!(told["is_error"], false, "{told:#} {run:#?}");
    assert_eq!(told["version"], "2.1.332", "{told:#}");
    let written = there.workspace_file("hello.txt");
    assert_eq!(written, "Written by an agent that never saw the key.\n");
    there.assert_exact(&run, 2);
}

/// A tool of the SDK's own process is called by the CLI on the host.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn a_tool_of_the_sdks_process_is_called_from_the_host() {
    let there = There::new().with_cli(PYTHONS);
    let prompt = "Please. [[scenario: tool mcp__here__where {}]]";
    let (run, told) = there.python(&["turn", prompt], &[]);
    assert_eq!(told["is_error"], false, "{told:#} {run:#?}");
    assert_eq!(told["servers"][0]["status"], "connected", "{told:#}");
    let messages = there.rig.messages();
    assert!(messages.len() >= 2, "{messages:#?}");
    assert_eq!(told["called"], 1, "{told:#}");
    there.assert_exact(&run, 2);
}

/// The key in a server's header, in the SDK's options: the SDK's user gets one error, and nothing is on the
/// host.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn t05_the_key_in_an_mcp_header_is_refused() {
    let there = There::new().with_cli(PYTHONS);
    let (run, told) = there.python(&["header", KEY], &[]);
    assert_ne!(told["error"], Value::Null, "{told:#}");
    assert!(
        run.stderr
            .contains("--mcp-config holds the provider's credential"),
        "{run:#?}"
    );
    assert_eq!(there.rig.messages().len(), 0);
    there.assert_clean();
}

/// An SDK that closes its client in the middle of a turn: the CLI on the host is gone with it.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn an_sdk_that_closes_early_leaves_nothing() {
    let there = There::new().with_cli(PYTHONS);
    let (run, told) = there.python(&["close"], &[]);
    assert_eq!(told["closed"], true, "{told:#}");
    assert_eq!(run.receipt["end_reason"], "agent_exit", "{run:#?}");
    there.host.assert_quiet();
}
