//! A session that has ended, with its workspace on the host.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::rig::{Done, finish};
use crate::sshd::World;

/// A world, and a session in it whose agent ran this script on the host.
pub(crate) struct Place {
    pub(crate) world: World,
    pub(crate) session: String,
}

impl Place {
    pub(crate) fn new(script: &str) -> Self {
        let world = World::new();
        std::fs::write(world.rig.path("work/a.txt"), "one\n").unwrap();
        let done = finish(&mut world.start(&["--workspace", "."], &["sh", "-c", script]));
        assert_eq!(done.code, Some(0), "{done:?}");
        let session = world.rig.session();
        Self { world, session }
    }

    /// The same with an agent that is still at work.
    pub(crate) fn live(script: &str) -> Self {
        let world = World::new();
        std::fs::write(world.rig.path("work/a.txt"), "one\n").unwrap();
        let session = world.detached(&["--workspace", "."], &["sh", "-c", script]);
        Self { world, session }
    }

    /// A path in the workspace on the host.
    pub(crate) fn there(&self, inside: &str) -> PathBuf {
        let workspace = self.world.there(&self.session).join("workspace");
        workspace.join(inside)
    }

    /// Adds lines to the user's configuration.
    pub(crate) fn configure(&self, lines: &str) {
        let path = self.world.rig.path("config/labproxy/config.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{lines}\n")).unwrap();
    }

    /// `audit run OPTIONS -- TOOL`.
    pub(crate) fn command(&self, options: &[&str], tool: &[&str]) -> Command {
        let words = [&["audit", "run"], options, &["--"], tool].concat();
        self.world.rig.command(&words)
    }

    pub(crate) fn run(&self, options: &[&str], tool: &[&str]) -> Done {
        finish(&mut self.command(options, tool))
    }

    /// Audits with a script, which must come to this status.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str, code: i32) -> Done {
        let done = self.run(&[], &["sh", "-c", script]);
        assert_eq!(done.code, Some(code), "{done:?}");
        done
    }

    pub(crate) fn labproxy(&self, words: &[&str]) -> Done {
        self.world.rig.labproxy(words)
    }

    /// The audits as `audit list` has them.
    pub(crate) fn audits(&self) -> Vec<Value> {
        let done = self.labproxy(&["audit", "list", "--json"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let list: Value = serde_json::from_str(&done.stdout).unwrap();
        list["audits"].as_array().unwrap().clone()
    }

    /// The verdict of the last one.
    pub(crate) fn verdict(&self) -> String {
        let audits = self.audits();
        audits.last().unwrap()["verdict"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}
