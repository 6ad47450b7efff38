//! What these tests do with the workspace: the directory that labproxy is started in.

use std::path::PathBuf;

use serde_json::Value;

use crate::rig::{Done, KEY_VARIABLE, finish};
use crate::sshd::World;

/// A world whose working directory has some files.
pub(crate) fn world() -> World {
    let world = World::new();
    write(&world, "a.txt", "one\n");
    write(&world, "sub/b.txt", "two\n");
    write(&world, "sub/run.sh", "#!/bin/sh\n");
    world
}

/// A path in the workspace here.
pub(crate) fn here(world: &World, inside: &str) -> PathBuf {
    world.rig.path("work").join(inside)
}

/// Writes a file of the workspace here.
pub(crate) fn write(world: &World, inside: &str, text: &str) {
    let path = here(world, inside);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A file of the workspace here; `None` when it is not there.
pub(crate) fn read(world: &World, inside: &str) -> Option<String> {
    std::fs::read_to_string(here(world, inside)).ok()
}

/// Runs a session with the workspace to its end.
pub(crate) fn run(world: &World, options: &[&str], script: &str) -> Done {
    let options = [&["--workspace", "."], options].concat();
    finish(&mut world.start(&options, &["sh", "-c", script]))
}

/// `session resume` of a session; without a script it only brings its work here.
pub(crate) fn resume(world: &World, session: &str, script: Option<&str>) -> Done {
    let url = world.rig.standin.url();
    let credential = format!("env:{KEY_VARIABLE}");
    let mut words = vec!["session", "resume", session, "--upstream", &url];
    words.extend(["--credential", &credential]);
    if let Some(script) = script {
        words.extend(["--", "sh", "-c", script]);
    }
    world.rig.labproxy(&words)
}

/// The line of a session in `session list --json`.
pub(crate) fn listed(world: &World, session: &str) -> Value {
    let all = world.rig.list();
    let one = all.iter().find(|one| one["session"] == session);
    one.unwrap().clone()
}
