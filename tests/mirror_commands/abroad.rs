//! A pull of a hostile tree over a real ssh: every kind, name and mode that an agent can make, and links
//! to all that is not its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::differential::grow;
use crate::host::World;
use crate::trees::{Chance, Node, Tree, read};

const SEEDS: [u64; 3] = [21, 22, 23];

/// What of a tree is mirrored.
fn mirrored(tree: &Tree) -> Tree {
    let kept = tree.iter().filter(|(_, node)| **node != Node::Special);
    kept.map(|(path, node)| (path.clone(), node.clone()))
        .collect()
}

/// The modes of everything but links.
fn modes(root: &Path) -> Vec<u32> {
    let mut modes = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let seen = path.symlink_metadata().unwrap();
        if seen.is_symlink() {
            continue;
        }
        modes.push(seen.permissions().mode() & 0o7777);
        if seen.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            left.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    modes
}

fn plant(world: &World, seed: u64) {
    let far = world.rig.path("far");
    let mut chance = Chance(seed);
    while fs::read_dir(&far).unwrap().count() < 8 {
        grow(&far, 0, &mut chance);
    }
    for (name, to) in [
        ("absolute", "/etc/passwd"),
        ("upwards", "../../../../../etc"),
        ("ssh", "../home/.ssh"),
        ("local", "../local"),
        ("itself", "itself"),
        ("proc", "/proc/self/environ"),
        ("stepwise", "absolute/../../x"),
    ] {
        symlink(to, far.join(name)).unwrap();
    }
    symlink(world.rig.path("victim"), far.join("victim")).unwrap();
    fs::hard_link(world.rig.path("victim/kept"), far.join("hard")).unwrap();
    mknodat(CWD, far.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    // Only root can; it is passed over by everybody.
    let null = makedev(1, 3);
    let _device = mknodat(
        CWD,
        far.join("null"),
        FileType::CharacterDevice,
        Mode::RUSR,
        null,
    );
    world.rig.write("far/suid", "#!/bin/sh\n");
    let mode = fs::Permissions::from_mode(0o6755);
    fs::set_permissions(far.join("suid"), mode).unwrap();
    let deep: String = (0..100)
        .map(|level| format!("far/l{level}/").replace("far/", ""))
        .collect();
    world.rig.write(format!("far/{deep}bottom"), "deep");
    world
        .rig
        .write("far/.git/config", "[core]\n\tfsmonitor = /bin/false\n");
}

/// It comes to the byte; nothing outside of the directory here is read, written or made; modes are
/// ours; what leads out is named, and no name draws on a terminal.
#[test]
fn t33_m48_a_hostile_tree_comes_over_ssh_as_bytes_and_nothing_else() {
    for seed in SEEDS {
        let world = World::new();
        let rig = &world.rig;
        rig.write("local/a", "a");
        rig.write("victim/kept", "kept");
        world.mirror("push", &[]).expect(0);
        plant(&world, seed);
        let before = read(&rig.path("victim"));
        let pulled = world.mirror("pull", &[]).expect(0);
        let drawn = |letter: char| letter.is_control() && letter != '\n';
        assert!(!pulled.stdout.contains(drawn), "seed {seed}");
        let mut wanted = mirrored(&read(&rig.path("far")));
        for waits in [&b".git"[..], b".git/config"] {
            wanted.remove(waits);
        }
        let mut came = read(&rig.path("local"));
        came.remove(&b".git"[..]);
        for path in wanted.keys().chain(came.keys()) {
            let (wanted, came) = (wanted.get(path), came.get(path));
            assert!(wanted == came, "seed {seed}: {}", path.escape_ascii());
        }
        assert_eq!(read(&rig.path("victim")), before);
        let own = [0o600, 0o700];
        let below = fs::read_dir(rig.path("local")).unwrap();
        for entry in below.flatten() {
            let all = modes(&entry.path());
            // The one that was here keeps its own.
            let is_new = entry.file_name() != "a";
            assert!(
                !is_new || all.iter().all(|mode| own.contains(mode)),
                "{all:?}"
            );
        }
        for name in [
            "absolute", "upwards", "ssh", "local", "victim", "proc", "stepwise",
        ] {
            let line = format!("link     {name} leads out");
            assert!(pulled.stdout.contains(&line), "{name}: {}", pulled.stdout);
        }
        world.mirror("verify", &[]).expect(0);
        // Nothing flips: a second pass has nothing to do, either way.
        let again = world.mirror("pull", &["--json"]).expect(0).json();
        assert_eq!(
            (&again["created"], &again["changed"]),
            (&0.into(), &0.into())
        );
    }
}
