//! A small disk of a test's own: a tmpfs in a mount namespace that only programs started in it see.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The namespace, and the directory that is the disk there.
pub(crate) struct SmallDisk {
    /// It keeps the namespace until its input ends.
    keeper: Child,
    directory: PathBuf,
}

impl SmallDisk {
    /// Makes a disk of so many MiB at this directory, which is there; `None`, said aloud, where this machine
    /// or this user may not mount.
    pub(crate) fn new(directory: &Path, mib: u32) -> Option<Self> {
        let script = format!(
            "mount -t tmpfs -o size={mib}m,mode=0700 none \"$0\" && echo mounted && read end"
        );
        let mut keeper = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut output = BufReader::new(keeper.stdout.take().unwrap());
        output.read_line(&mut said).unwrap();
        let disk = Self {
            keeper,
            directory: directory.to_owned(),
        };
        if said == "mounted\n" {
            return Some(disk);
        }
        eprintln!("not shown here: this machine allows no mount namespace");
        None
    }

    /// A program that sees the disk, in the test's working directory.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-m", "-t", &self.keeper.id().to_string(), program]);
        command
    }

    /// A command as it is, but that it sees the disk.
    pub(crate) fn command(&self, command: &Command) -> Command {
        let mut inside = self.program("sh");
        // Entering a namespace leaves the working directory.
        inside.args(["-c", "cd \"$0\" && exec \"$@\""]);
        inside.arg(command.get_current_dir().unwrap());
        inside.arg(command.get_program()).args(command.get_args());
        inside.env_clear();
        for (name, value) in command.get_envs() {
            inside.env(name, value.unwrap());
        }
        inside
    }

    /// Makes it larger.
    pub(crate) fn grow(&self, mib: u32) {
        let mut mount = self.program("mount");
        mount.args(["-o", &format!("remount,size={mib}m")]);
        assert!(mount.arg(&self.directory).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}
