//! Edits on either side, pushes and pulls, by chance, against a naive copy.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::rig::Rig;
use crate::trees::{Chance, Node, read};

/// Seeds that once failed, then fresh ones.
const SEEDS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const STEPS: u64 = 14;

/// Files only: directories are there when files are in them.
type Files = BTreeMap<String, Vec<u8>>;

fn files(root: &Path) -> Files {
    let tree = read(root).into_iter();
    tree.filter_map(|(path, node)| match node {
        Node::File { bytes, .. } => Some((String::from_utf8(path).unwrap(), bytes)),
        Node::Directory | Node::Link(_) | Node::Special => None,
    })
    .collect()
}

/// Makes a directory have exactly these files.
fn write(root: &Path, files: &Files) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    for (path, bytes) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn edit(files: &mut Files, chance: &mut Chance) {
    for _ in 0..=chance.below(3) {
        let path = format!(
            "{}/f{}",
            chance.pick(&["a", "a/b", "c", "d/e/f"]),
            chance.below(3)
        );
        match chance.below(4) {
            0 => drop(files.remove(&path)),
            1 => {
                // A rename, which takes the content along.
                if let Some(bytes) = files.remove(&path) {
                    files.insert(format!("moved/f{}", chance.below(3)), bytes);
                }
            }
            _ => drop(files.insert(path, chance.bytes(3))),
        }
    }
}

/// What a naive person expects of a push: the other end must be as both ends last were.
fn push(here: &Files, far: &Files, agreed: Option<&(Files, Files)>) -> bool {
    agreed.map_or_else(|| far.is_empty(), |(_, last)| far == last) || far == here
}

/// Of a pull: nothing that was edited here may be lost.
fn pull(here: &Files, far: &Files, agreed: Option<&(Files, Files)>) -> bool {
    let Some((old, _)) = agreed else {
        return here.is_empty() || here == far;
    };
    let paths = here.keys().chain(old.keys());
    paths
        .into_iter()
        .all(|path| here.get(path) == old.get(path) || here.get(path) == far.get(path))
}

#[test]
fn edits_pushes_and_pulls_agree_with_a_naive_copy() {
    for seed in SEEDS {
        let rig = Rig::new();
        let (local, other) = (rig.path("local"), rig.path("far"));
        let mut chance = Chance(seed);
        let mut here = Files::from([("keep".to_owned(), b"k".to_vec())]);
        let mut far = Files::new();
        let mut agreed: Option<(Files, Files)> = None;
        write(&local, &here);
        let mut done = [0_u32; 2];
        for step in 0..STEPS {
            let (what, goes) = match chance.below(7) {
                0 | 1 => {
                    edit(&mut here, &mut chance);
                    write(&local, &here);
                    continue;
                }
                2 if other.exists() => {
                    edit(&mut far, &mut chance);
                    write(&other, &far);
                    continue;
                }
                3 | 4 if other.exists() => ("pull", pull(&here, &far, agreed.as_ref())),
                _ => ("push", push(&here, &far, agreed.as_ref())),
            };
            let ran = rig.mirror(what, "--allow-deletes");
            let label = format!("seed {seed}, step {step}: {what}: {}", ran.stderr);
            assert_eq!(ran.code, i32::from(!goes), "{label}");
            if goes {
                let tree = if what == "push" {
                    here.clone()
                } else {
                    far.clone()
                };
                (here, far) = (tree.clone(), tree.clone());
                agreed = Some((tree.clone(), tree));
            }
            done[usize::from(goes)] += 1;
            assert_eq!(files(&local), here, "{label}");
            if other.exists() {
                assert_eq!(files(&other), far, "{label}");
            }
        }
        assert!(done[1] > 0, "seed {seed}: nothing ever went through");
    }
}
