//! Starts on a host that are interrupted.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;

use crate::rig::{eventually, kill};
use crate::sshd::World;

/// Command lines of processes that name this folder or have a file of it open, but for sshd's.
fn users_of(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let open = std::fs::read_dir(entry.path().join("fd"));
        let has_open = open.into_iter().flatten().flatten().any(|file| {
            std::fs::read_link(file.path()).is_ok_and(|target| target.starts_with(folder))
        });
        let is_named = line.contains(folder.to_str().unwrap());
        let is_own = entry.file_name() == std::process::id().to_string().as_str();
        if (is_named || has_open) && !is_own && !line.contains("sshd") {
            found.push(line);
        }
    }
    found
}

/// An interrupt at any step of a start ends labproxy, its ssh and all that it began on the host, before
/// an agent runs; nothing is spent.
#[test]
fn t39_an_interrupt_at_each_step_of_a_start_on_a_host_leaves_nothing() {
    let world = World::new();
    for phase in ["connect", "put", "attach", "forward"] {
        let mut command = world.start(&[], &["sh", "-c", "touch ran; exec sleep 1000"]);
        // A process group of its own is not the foreground of any terminal.
        command.env("LABPROXY_LOG", "info").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut labproxy = command.stderr(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(labproxy.id()).unwrap();
        let stderr = BufReader::new(labproxy.stderr.take().unwrap());
        let (mut told, mut is_sent) = (String::new(), false);
        let begins = format!("phase begins phase=\"{phase}\"");
        // Until labproxy and all that have its stderr are gone.
        for line in stderr.lines() {
            let line = line.unwrap();
            if line.contains(&begins) && !is_sent {
                kill("INT", pid);
                is_sent = true;
            }
            told += &(line + "\n");
        }
        assert!(is_sent, "{phase} did not begin: {told}");
        let status = labproxy.wait().unwrap();
        assert_ne!(status.code(), Some(0), "{phase}: {told}");
        assert!(!told.contains("panicked"), "{told}");
        eventually("the end of all", || {
            // Both sides of the test have their files in one folder.
            let left = users_of(world.rig.path("there").parent().unwrap());
            left.is_empty().then_some(())
        });
        let sessions = std::fs::read_dir(world.rig.path("there/sessions"));
        for session in sessions.into_iter().flatten().flatten() {
            assert!(!session.path().join("workspace/ran").exists(), "{phase}");
        }
    }
    assert_eq!(world.rig.arrived(), 0);
}
