//! The same trees by labproxy and by rsync, with flags under which rsync is an oracle: they agree on
//! every byte, and on what is refused. Any version of rsync does for that: what is compared is what
//! one run into an empty place leaves, not its guards or its speed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::rig::Rig;
use crate::trees::{Chance, Node, Tree, at, read};

/// Seeds that once failed, then fresh ones.
const SEEDS: [u64; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// Names that programs get wrong.
const NAMES: [&[u8]; 19] = [
    b"plain",
    b"A",
    b"a",
    b"-rf",
    b" ",
    b"new\nline",
    b"tab\t",
    b"\xff\xfe",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"...",
    b".hidden",
    b"back\\slash",
    b"*",
    b"\x1b[2J",
    b"#0",
    b"'quoted\"",
    b"C1\x9b",
    b"%s%n",
];

fn name(chance: &mut Chance) -> Vec<u8> {
    match chance.below(20) {
        0 => vec![b'x'; 255],
        1 => (0..8)
            .map(|_| b"\x01\x7f\xf0ab "[usize::try_from(chance.below(6)).unwrap()])
            .collect(),
        _ => chance.pick(&NAMES).to_vec(),
    }
}

/// Fills a directory with what is hard to read, to name and to send.
pub(crate) fn grow(root: &Path, depth: u64, chance: &mut Chance) {
    for _ in 0..chance.below(9) {
        let path = at(root, &name(chance));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match chance.below(12) {
            0..=2 if depth < 6 => {
                fs::create_dir(&path).unwrap();
                grow(&path, depth + 1, chance);
                let modes = [0o755, 0o700, 0o1777, 0o2755];
                let mode = fs::Permissions::from_mode(*chance.pick(&modes));
                fs::set_permissions(&path, mode).unwrap();
            }
            3 => {
                let texts = [
                    "/etc/passwd",
                    "..",
                    ".",
                    "../../../..",
                    "a",
                    "nowhere",
                    "\u{1b}[2J",
                ];
                symlink(chance.pick(&texts), &path).unwrap();
            }
            4 => {
                mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
            }
            5 => {
                // Its path may be too long for a socket: then there is none.
                drop(UnixListener::bind(&path));
            }
            6 => {
                let file = fs::File::create(&path).unwrap();
                file.set_len(300_000 + chance.below(200_000)).unwrap();
            }
            7 => {
                let other = fs::read_dir(root)
                    .unwrap()
                    .flatten()
                    .find(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
                if let Some(other) = other {
                    fs::hard_link(other.path(), &path).unwrap();
                }
            }
            _ => {
                let most = *chance.pick(&[0, 1, 100, 70_000]);
                fs::write(&path, chance.bytes(most)).unwrap();
                let modes = [0o644, 0o600, 0o755, 0o444, 0o4755, 0o2711, 0o500];
                let mode = fs::Permissions::from_mode(*chance.pick(&modes));
                fs::set_permissions(&path, mode).unwrap();
            }
        }
    }
}

fn rsync(from: &Path, to: &Path) {
    let status = Command::new("rsync")
        .args([
            "-a",
            "--checksum",
            "--delete-after",
            "--no-inc-recursive",
            "--no-D",
            "-S",
        ])
        .arg(format!("{}/", from.display()))
        .arg(to)
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
}

#[track_caller]
fn assert_same(one: &Tree, other: &Tree, what: &str) {
    for path in one.keys().chain(other.keys()) {
        assert!(
            one.get(path) == other.get(path),
            "{what}: {}",
            path.escape_ascii()
        );
    }
}

/// Pushed, pulled again elsewhere, and copied by rsync: three trees that are one.
#[test]
fn m48_m50_m51_m54_hostile_trees_are_what_rsync_makes_of_them() {
    for seed in SEEDS {
        let rig = Rig::new();
        let mut chance = Chance(seed);
        while fs::read_dir(rig.path("local")).unwrap().count() < 6 {
            grow(&rig.path("local"), 0, &mut chance);
        }
        let source = read(&rig.path("local"));
        rig.push("");
        rsync(&rig.path("local"), &rig.path("oracle"));
        let (far, oracle) = (read(&rig.path("far")), read(&rig.path("oracle")));
        assert_same(&far, &oracle, &format!("seed {seed}"));
        let files: Tree = source
            .iter()
            .filter(|(_, node)| **node != Node::Special)
            .map(|(path, node)| (path.clone(), node.clone()))
            .collect();
        assert_same(&far, &files, &format!("seed {seed}, the source"));
        let (copy, back) = (rig.path("oracle"), rig.path("back"));
        let words = [
            "mirror".as_ref(),
            "pull".as_ref(),
            back.as_os_str(),
            copy.as_os_str(),
        ];
        rig.run(words).expect(0);
        assert_same(&read(&back), &oracle, &format!("seed {seed}, pulled"));
        // A second pass finds nothing to do, whatever the modes are: they do not flip.
        let pushed = rig.push("--json").json();
        assert_eq!(
            (&pushed["created"], &pushed["changed"]),
            (&0.into(), &0.into())
        );
    }
}

/// A second pass over edits agrees too: contents with the old time and size, modes, kinds that change.
#[test]
fn m56_m61_edits_that_hide_are_found_as_rsync_finds_them() {
    for seed in SEEDS {
        let rig = Rig::new();
        let mut chance = Chance(seed ^ 0x61);
        for index in 0..30 {
            rig.write(
                format!("local/d{}/f{index}", index % 3),
                chance.bytes(9_000),
            );
        }
        rig.push("");
        rsync(&rig.path("local"), &rig.path("oracle"));
        for index in 0..30 {
            let path = rig.path(format!("local/d{}/f{index}", index % 3));
            let before = fs::metadata(&path).unwrap();
            let mut bytes = fs::read(&path).unwrap();
            match chance.below(5) {
                0 => {
                    if let Some(first) = bytes.first_mut() {
                        *first ^= 1;
                    }
                    fs::write(&path, bytes).unwrap();
                    let file = fs::File::options().append(true).open(&path).unwrap();
                    file.set_modified(before.modified().unwrap()).unwrap();
                }
                1 => fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap(),
                2 => {
                    fs::remove_file(&path).unwrap();
                    symlink("f0", &path).unwrap();
                }
                3 => {
                    fs::remove_file(&path).unwrap();
                    fs::create_dir(&path).unwrap();
                    fs::write(path.join("in"), bytes).unwrap();
                }
                _ => {}
            }
        }
        rig.push("--allow-deletes");
        fs::remove_dir_all(rig.path("oracle")).unwrap();
        rsync(&rig.path("local"), &rig.path("oracle"));
        let (far, oracle) = (read(&rig.path("far")), read(&rig.path("oracle")));
        assert_same(&far, &oracle, &format!("seed {seed}"));
    }
}
