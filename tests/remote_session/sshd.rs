//! A session test's world with a host in it: a sshd of this user on loopback.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::rig::{Rig, eventually};
use crate::server;

/// The host's name in the configuration.
pub(crate) const HOST: &str = "gpu1";

pub(crate) struct World {
    pub(crate) rig: Rig,
    port: u16,
    sshd: Option<Child>,
}

impl World {
    pub(crate) fn new() -> Self {
        let rig = Rig::new();
        // Free now; nothing else takes this very port before sshd does.
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        std::fs::create_dir(rig.path("ssh")).unwrap();
        server::configure(HOST, ("127.0.0.1", port), &rig.path("ssh"));
        // Where the configured directory cannot be used, this one is, and nothing is left on the machine.
        std::fs::create_dir(rig.path("there-run")).unwrap();
        let config = rig.path("ssh/sshd_config");
        let own = std::fs::read_to_string(&config).unwrap();
        let run = rig.path("there-run").display().to_string();
        std::fs::write(config, format!("SetEnv XDG_RUNTIME_DIR={run}\n{own}")).unwrap();
        let write = |name: &str, text: String| std::fs::write(rig.path(name), text).unwrap();
        let at = |name: &str| rig.path(name).display().to_string();
        std::fs::create_dir(rig.path("config/labproxy")).unwrap();
        write(
            "config/labproxy/config.toml",
            format!(
                "[host.{HOST}]\nssh_config = \"{}\"\nworkdir = \"{}\"\n",
                at("ssh/ssh_config"),
                at("there")
            ),
        );
        let mut world = Self {
            rig,
            port,
            sshd: None,
        };
        world.start_sshd();
        world
    }

    pub(crate) fn start_sshd(&mut self) {
        self.start_sshd_by(|program| Command::new(program));
    }

    /// The same by `command`, another way to start programs.
    pub(crate) fn start_sshd_by(&mut self, command: impl Fn(&str) -> Command) {
        let sshd = server::run(
            |program| {
                let mut command = command(program);
                command.stdout(Stdio::null()).stderr(Stdio::null());
                command
            },
            &self.rig.path("ssh"),
        );
        self.sshd = Some(sshd);
        eventually("sshd", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    /// The server that takes connections.
    pub(crate) fn sshd_pid(&self) -> u32 {
        self.sshd.as_ref().unwrap().id()
    }

    /// The server as it is with this line more in its configuration, and the host with one in ours.
    pub(crate) fn reconfigure(&mut self, sshd: &str, host: &str) {
        self.stop_sshd();
        for (file, line) in [
            ("ssh/sshd_config", sshd),
            ("config/labproxy/config.toml", host),
        ] {
            let path = self.rig.path(file);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, format!("{text}{line}\n")).unwrap();
        }
        self.start_sshd();
    }

    /// No further connection is taken; those that are there stay.
    pub(crate) fn stop_sshd(&mut self) {
        if let Some(mut sshd) = self.sshd.take() {
            sshd.kill().unwrap();
            sshd.wait().unwrap();
        }
    }

    /// Everything on the host outlives a lost link for so long.
    pub(crate) fn lease(&self, lease: &str) {
        let config = self.rig.path("config/labproxy/config.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("[session]\nlease = \"{lease}\"\n{text}")).unwrap();
    }

    /// `session start` on the host.
    pub(crate) fn start(&self, options: &[&str], agent: &[&str]) -> Command {
        self.rig
            .start(&[options, &["--host", HOST]].concat(), agent)
    }

    /// A detached session with this agent: its name.
    pub(crate) fn detached(&self, options: &[&str], agent: &[&str]) -> String {
        let options = [options, &["--detach"]].concat();
        let done = crate::rig::finish(&mut self.start(&options, agent));
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    }

    /// A session's directory on the host.
    pub(crate) fn there(&self, session: &str) -> PathBuf {
        self.rig.path("there").join("sessions").join(session)
    }

    /// A number that an agent wrote into a file of its workspace.
    pub(crate) fn number(&self, session: &str, file: &str) -> i32 {
        let path = self.there(session).join("workspace").join(file);
        eventually("a number", || {
            let text = std::fs::read_to_string(&path).ok()?;
            text.strip_suffix('\n')?.parse().ok()
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop_sshd();
    }
}
