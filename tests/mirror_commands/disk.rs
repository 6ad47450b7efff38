//! Small disks: the other end's tree, and its staging, on file systems that fill up.

use std::path::Path;
use std::process::Command;

use crate::rig::{Ran, Rig};

/// Runs a shell script with file systems of its own, `$LABPROXY` being the program as the rig's user;
/// nothing when this machine allows no mounts.
fn with_mounts(rig: &Rig, script: &str) -> Option<Ran> {
    let mut unshare = Command::new("unshare");
    // Root here may mount more than root of a new user namespace.
    if !rustix::process::geteuid().is_root() {
        unshare.arg("-r");
    }
    let output = unshare
        .args(["-m", "sh", "-c", script])
        .env_clear()
        .env("HOME", rig.path("home"))
        .env("XDG_RUNTIME_DIR", rig.path("run"))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LABPROXY", env!("CARGO_BIN_EXE_labproxy"))
        .current_dir(rig.path(""))
        .output()
        .unwrap();
    let ran = Ran::of(&output);
    let allowed = !ran.stderr.starts_with("unshare") && !ran.stderr.starts_with("mount");
    allowed.then_some(ran)
}

fn fill(rig: &Rig) {
    for index in 0..40_u8 {
        rig.write(format!("local/f{index}"), vec![index; 200_000]);
    }
}

/// After a push that found the disk full: it says so, each file that is there is whole, and with room
/// the next push finishes.
const SCRIPT: &str = r#"
"$LABPROXY" mirror push local "$FAR" >out 2>err && exit 10
grep -qiE 'no space|disk is full' err || { cat err >&2; exit 11; }
grep -q 'make these writable' err && { cat err >&2; exit 17; }
for file in "$FAR"/f*; do
    [ -e "$file" ] || continue
    cmp -s "$file" "local/${file##*/}" || exit 12
done
mount -o remount,size=64m "$SMALL" || exit 13
"$LABPROXY" mirror push local "$FAR" >out 2>err || { cat err >&2; exit 14; }
diff -r local "$FAR" || exit 15
[ -z "$(find home -name '*.staged')" ] || exit 16
"#;

fn push_to_a_small_disk(small: &str, far: &str) {
    let rig = Rig::new();
    fill(&rig);
    std::fs::create_dir_all(rig.path(Path::new(small))).unwrap();
    let script = format!(
        "export SMALL={small} FAR={far}; mount -t tmpfs -o size=4m,mode=0700 none {small} || exit 9\n{SCRIPT}"
    );
    match with_mounts(&rig, &script) {
        Some(ran) => drop(ran.expect(0)),
        None => eprintln!("not shown here: this machine allows no mount namespace"),
    }
}

#[test]
fn m63_a_full_disk_under_the_hosts_tree_ends_the_push_and_the_next_one_finishes() {
    push_to_a_small_disk("disk", "disk/far");
}

#[test]
fn m63_a_full_disk_under_the_hosts_staging_ends_the_push_and_the_next_one_finishes() {
    push_to_a_small_disk("home/.local/state/labproxy/far", "far");
}
