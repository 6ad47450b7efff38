//! Disks that are full while a session's workspace goes to the host or comes back.

use std::os::unix::fs::PermissionsExt as _;

use crate::gate::{FILES, fill, ledger_holds, money, nothing_is_left, work};
use crate::place::{here, listed, read, world};
use crate::rig::{Done, KEY_VARIABLE, finish};
use crate::small_disk::SmallDisk;
use crate::sshd::World;

/// Less than the tree that comes or goes.
const SMALL: u32 = 12;
/// Far more.
const LARGE: u32 = 200;

fn resume(world: &World, disk: Option<&SmallDisk>, session: &str, script: Option<&str>) -> Done {
    let url = world.rig.standin.url();
    let credential = format!("env:{KEY_VARIABLE}");
    let mut words = vec!["session", "resume", session, "--upstream", &url];
    words.extend(["--credential", &credential]);
    if let Some(script) = script {
        words.extend(["--", "sh", "-c", script]);
    }
    let mut command = world.rig.command(&words);
    match disk {
        Some(disk) => finish(&mut disk.command(&command)),
        None => finish(&mut command),
    }
}

/// The store's disk fills up during the last pull: nothing here is changed, the work stays on the host and is
/// marked, what was asked is charged; with room the next command brings it.
#[test]
fn a_full_store_leaves_the_work_on_the_host() {
    let world = world();
    let store = world.rig.path("state/labproxy/mirrors");
    std::fs::create_dir_all(&store).unwrap();
    for path in ["state/labproxy", "state/labproxy/mirrors"] {
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(world.rig.path(path), mode).unwrap();
    }
    let Some(disk) = SmallDisk::new(&store, SMALL) else {
        return;
    };
    let call = world.rig.path("call").display().to_string();
    let script = format!("{call} hi >/dev/null; head -c 20971520 /dev/urandom >big; exit 3");
    let start = world.start(&["--workspace", "."], &["sh", "-c", &script]);
    let done = finish(&mut disk.command(&start));
    assert_eq!(done.code, Some(3), "{done:?}");
    for told in ["was NOT pulled: ", "the disk is full at ", "free some room"] {
        assert!(done.stderr.contains(told), "{told} {done:?}");
    }
    let session = world.rig.session();
    assert_eq!(work(&world, &session), "unpulled");
    assert!(!here(&world, "big").exists());
    nothing_is_left(&world);
    disk.grow(LARGE);
    let done = resume(&world, Some(&disk), &session, None);
    assert_eq!(done.code, Some(0), "{done:?}");
    let there = world.there(&session).join("workspace/big");
    assert!(std::fs::read(here(&world, "big")).unwrap() == std::fs::read(there).unwrap());
    assert_eq!(work(&world, &session), "pulled");
    assert_eq!(
        money(&world, &session),
        (world.rig.standin.served().pico_usd, 0)
    );
    ledger_holds(&world);
}

/// The host's disk fills up during the push: the session ends before its agent, and with room it goes on.
#[test]
fn a_full_host_ends_the_session_before_its_agent() {
    let mut world = world();
    let there = world.rig.path("there");
    std::fs::create_dir(&there).unwrap();
    std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o700)).unwrap();
    let Some(disk) = SmallDisk::new(&there, SMALL) else {
        return;
    };
    world.stop_sshd();
    world.start_sshd_by(|program| disk.program(program));
    fill(&world);
    let done = finish(&mut world.start(&["--workspace", "."], &["touch", "ran"]));
    assert_eq!(done.code, Some(125), "{done:?}");
    for told in [
        "error: the workspace was not pushed to gpu1: ",
        "No space left on device",
        "nothing of the session is left on gpu1",
    ] {
        assert!(done.stderr.contains(told), "{told} {done:?}");
    }
    let session = world.rig.session();
    assert_eq!(listed(&world, &session)["state"], "ended");
    assert_eq!(work(&world, &session), "unchanged");
    nothing_is_left(&world);
    disk.grow(LARGE);
    let done = resume(&world, None, &session, Some("ls -A | wc -l; touch ran"));
    assert_eq!(done.stdout, (FILES + 2).to_string(), "{done:?}");
    assert_eq!(read(&world, "ran").unwrap(), "");
    assert_eq!(money(&world, &session), (0, 0));
    nothing_is_left(&world);
    ledger_holds(&world);
}
