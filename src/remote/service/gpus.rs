//! The GPUs of this machine, as `nvidia-smi` tells them.
//!
//! With a wedged GPU `nvidia-smi` waits in the driver and cannot be killed: it is left alone then,
//! and no second one is started while it is there.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::probe::{PROBE_LIMIT, Probed, run};
use crate::wire::service::{Gpu, Gpus};

/// Held by the `nvidia-smi` that runs: a process that cannot be killed keeps it, whoever started
/// it and has left since.
const LOCK: &str = "nvidia-smi.lock";
/// Most GPUs of one machine: far above real ones.
const GPUS_MAX: usize = 256;

/// Lists them; `workdir` is where the lock stands.
pub(super) fn list(workdir: &Path) -> Gpus {
    list_with("nvidia-smi", workdir)
}

fn list_with(program: &str, workdir: &Path) -> Gpus {
    let lock = match lock(&workdir.join(LOCK)) {
        Ok(Some(lock)) => lock,
        Ok(None) => {
            return Gpus::Unknown {
                why: "an nvidia-smi from before still waits for its GPU".to_owned(),
            };
        }
        Err(error) => {
            return Gpus::Unknown {
                why: format!("{LOCK} cannot be locked: {error}"),
            };
        }
    };
    // The name stands last: it could hold a comma.
    let arguments = ["--query-gpu=uuid,name", "--format=csv,noheader"];
    // The lock is its standard input, which it does not read: it lives exactly as long.
    match run(program, &arguments, Stdio::from(lock), PROBE_LIMIT) {
        Probed::Absent => Gpus::Absent,
        Probed::Failed(why) => Gpus::Unknown { why },
        Probed::Said(text) => parse(&text),
    }
}

/// Takes the lock; `None` when somebody has it.
fn lock(path: &Path) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(File::from(opened))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One line for each GPU. A line that is none makes all unknown: a part of a list is no list.
fn parse(text: &str) -> Gpus {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let gpus: Option<Vec<Gpu>> = lines.iter().map(|line| gpu(line)).collect();
    match gpus {
        Some(gpus) if (1..=GPUS_MAX).contains(&gpus.len()) => Gpus::Here(gpus),
        Some(_) => Gpus::Unknown {
            why: "it printed no list".to_owned(),
        },
        None => Gpus::Unknown {
            why: "it printed something that is no list of GPUs".to_owned(),
        },
    }
}

fn gpu(line: &str) -> Option<Gpu> {
    let (uuid, name) = line.split_once(", ")?;
    let (uuid, name) = (uuid.trim(), name.trim());
    let hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    let is_uuid = uuid
        .strip_prefix("GPU-")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(hex));
    (is_uuid && !name.is_empty()).then(|| Gpu {
        uuid: uuid.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn fake(directory: &Path, script: &str) -> String {
        let path = directory.join("nvidia-smi");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Written from the vendor's documentation, not recorded.
    #[test]
    fn a_list_is_read_whole_or_not_at_all() {
        let two = "GPU-5a8e34c2-0b1d-9f3e-1c2d-aabbccddeeff, NVIDIA A100-SXM4-80GB\n\
                   GPU-00000000-0000-0000-0000-000000000001, Odd, name\n";
        let Gpus::Here(gpus) = parse(two) else {
            panic!("a list")
        };
        assert_eq!(gpus[0].name, "NVIDIA A100-SXM4-80GB");
        assert_eq!(gpus[1].name, "Odd, name");
        for bad in [
            "",
            "\n",
            "No devices were found\n",
            "GPU-5a8e34c2, A100\n[Unknown Error]\n",
            "[N/A], A100\n",
            "GPU-5a8e34c2, \n",
            "GPU-, A100\n",
            "uuid, name\n",
        ] {
            assert!(matches!(parse(bad), Gpus::Unknown { .. }), "{bad:?}");
        }
    }

    /// The program's failure is unknown, its absence is absent, and neither is an empty list.
    #[test]
    fn a_failed_query_is_unknown_and_never_empty() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        let failing = fake(home, "echo 'Failed to initialize NVML'; exit 9");
        assert_eq!(
            list_with(&failing, home),
            Gpus::Unknown {
                why: "exit status: 9: Failed to initialize NVML".to_owned()
            }
        );
        assert_eq!(list_with("/absent/nvidia-smi", home), Gpus::Absent);
        let working = fake(home, "echo \"GPU-0a, $1 $2\"");
        let Gpus::Here(gpus) = list_with(&working, home) else {
            panic!("a list")
        };
        assert_eq!(gpus[0].name, "--query-gpu=uuid,name --format=csv,noheader");
    }

    /// While one hangs no second one is started; when it has gone, one is.
    #[test]
    fn tb72_at_most_one_is_outstanding() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        let started = home.join("started");
        let program = fake(
            home,
            &format!("echo x >> {}\necho GPU-0a, A", started.display()),
        );
        // Stands for one that cannot be killed: it holds the lock as its standard input.
        let held = lock(&home.join(LOCK)).unwrap().unwrap();
        let mut hung = std::process::Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::from(held))
            .spawn()
            .unwrap();
        assert!(matches!(list_with(&program, home), Gpus::Unknown { .. }));
        assert!(!started.exists(), "a second one was started");
        hung.kill().unwrap();
        hung.wait().unwrap();
        assert!(matches!(list_with(&program, home), Gpus::Here(_)));
    }
}
