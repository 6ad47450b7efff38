//! The example of `examples/claude_hooks`: a Claude Code here whose hooks audit what an agent on a host did.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::agents::There;
use crate::rig::{KEY, Run, clients};

/// A session on a host with a shim, which ends with this value.
struct Session {
    process: Running,
    there: There,
}

/// A process that ends, as by Ctrl-C, with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        self.0.wait().unwrap();
    }
}

impl Session {
    fn start() -> Self {
        let there = There::new();
        let rig = &there.rig;
        let config = std::fs::read_to_string(rig.path("config/labproxy/config.toml")).unwrap();
        let tool = "[audit.tool.tests]\ncommand = [\"sh\", \"test.sh\"]\n";
        rig.write("config/labproxy/config.toml", &format!("{config}{tool}"));
        let worker = "exec \"$1\" -p \"Please. [[scenario: bash echo $2 > answer.txt]]\" \
                      --allowedTools Bash < /dev/null\n";
        rig.write("worker.sh", worker);
        // What a failed test says is what the lead does next.
        let again = format!(
            "grep -qx better answer.txt && exit\necho 'Not better. [[scenario: {}]]'\nexit 1\n",
            work(&there, "better")
        );
        rig.write("workspace/test.sh", &again);
        let mut process = Command::new(env!("CARGO_BIN_EXE_labproxy"))
            .args(rig.arguments("2"))
            .args(["--host", "rig", "--workspace", ".", "--shim"])
            .arg(rig.path("shim"))
            .current_dir(rig.path("workspace"))
            .env_clear()
            .envs(rig.environment())
            .env("PATH", path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert!(line.contains("shim"), "it says when it is ready: {line:?}");
        let process = Running(process);
        Self { process, there }
    }

    /// The lead: Claude Code, started by nobody but us, with the example's settings.
    fn lead(&self, scenario: &str) -> Run {
        let rig = &self.there.rig;
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/claude_hooks");
        let mut command = tokio::process::Command::new(clients().join("node_modules/.bin/claude"));
        command
            .args(["-p", &format!("Please. [[scenario: {scenario}]]")])
            .args(["--allowedTools", "Bash", "--settings"])
            .arg(example.join("settings.json"))
            .current_dir(rig.path("workspace"))
            .env_clear()
            .envs(rig.environment())
            .env("PATH", path())
            .env("AUDIT_HOOKS", example)
            .env("ANTHROPIC_BASE_URL", rig.standin.url())
            .env("ANTHROPIC_API_KEY", KEY)
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        rig.finish(command)
    }

    fn verdicts(&self) -> Vec<String> {
        let output = Command::new(env!("CARGO_BIN_EXE_labproxy"))
            .args(["audit", "list", "--json"])
            .current_dir(self.there.rig.path("workspace"))
            .env_clear()
            .envs(self.there.rig.environment())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let audits = list["audits"].as_array().unwrap().iter();
        audits
            .map(|audit| audit["verdict"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Ends it as Ctrl-C does.
    fn end(self) -> There {
        let Self { process, there } = self;
        drop(process);
        there
    }
}

/// Where `labproxy` and `claude` are found.
fn path() -> String {
    let programs: [PathBuf; 2] = [
        clients().join("node_modules/.bin"),
        Path::new(env!("CARGO_BIN_EXE_labproxy"))
            .parent()
            .unwrap()
            .to_owned(),
    ];
    let [claude, labproxy] = programs.map(|folder| folder.display().to_string());
    format!("{claude}:{labproxy}:{}", std::env::var("PATH").unwrap())
}

/// The lead has the worker write this answer.
fn work(there: &There, answer: &str) -> String {
    let (script, shim) = (there.rig.path("worker.sh"), there.rig.path("shim"));
    format!("bash sh {} {} {answer}", script.display(), shim.display())
}

/// A lead that would stop with bad work is sent on with what the audit said, and stops when it is good.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn a_stop_hook_audits_the_work_on_the_host() {
    let session = Session::start();
    let run = session.lead(&work(&session.there, "good"));
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(session.verdicts(), ["failed", "passed"], "{run:#?}");
    let there = session.end();
    let answer = std::fs::read_to_string(there.rig.path("workspace/answer.txt")).unwrap();
    assert_eq!(answer, "better\n");
    there.assert_clean();
}

/// A command that the hook stands before does not run while the work is bad; a lead that is sent on and
/// does no better is let go the second time.
#[test]
#[ignore = "run by 'make clients', which installs the clients"]
fn a_hook_before_a_command_blocks_it() {
    let session = Session::start();
    let rig = &session.there.rig;
    rig.write("workspace/test.sh", "echo no\nexit 1\n");
    let there = session.there.workspace();
    std::fs::write(there.join("test.sh"), "echo no\nexit 1\n").unwrap();
    let run = session.lead("bash touch pushed; git push");
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert!(!rig.path("workspace/pushed").exists(), "{run:#?}");
    // Before the command, at the first stop, before the command that is tried again, at the second stop.
    assert_eq!(session.verdicts(), ["failed"; 4], "{run:#?}");
    session.end().assert_clean();
}
