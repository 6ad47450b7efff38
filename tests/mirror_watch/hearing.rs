//! What a watch hears, and what it never looks at.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use labproxy::mirror::watch::{Heard, Wake, Watch};
use labproxy::tree::path::RelPath;
use labproxy::tree::root::Root;

/// What must be heard is heard within this, on however busy a machine.
const SOON: Duration = Duration::from_mins(1);

fn nothing(_: &RelPath, _: bool) -> bool {
    false
}

/// Ends a wait that lasts too long, so that a test fails and does not hang.
fn at_the_latest(wake: &Arc<Wake>) {
    let wake = Arc::clone(wake);
    std::thread::spawn(move || {
        std::thread::sleep(SOON);
        wake.stop();
    });
}

fn rel(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap()
}

/// The inodes that this process watches.
fn watched() -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for entry in fs::read_dir("/proc/self/fdinfo").unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with("inotify"));
        for word in lines.flat_map(str::split_whitespace) {
            if let Some(inode) = word.strip_prefix("ino:") {
                inodes.insert(u64::from_str_radix(inode, 16).unwrap());
            }
        }
    }
    inodes
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

/// A directory is made and filled before it can be watched: what is in it is heard of all the same.
#[test]
fn m42_files_made_right_after_their_directory_are_heard_of() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path()).unwrap();
    let wake = Arc::new(Wake::default());
    at_the_latest(&wake);
    let mut watch = Watch::start(&root, &nothing, Arc::clone(&wake));
    let wanted: BTreeSet<RelPath> = (0..300).map(|n| rel(&format!("b{n}/x/y/file"))).collect();
    for path in &wanted {
        let path = directory.path().join(path.as_os_str());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "new").unwrap();
    }
    let mut heard = BTreeSet::new();
    while !heard.is_superset(&wanted) {
        match watch.wait(&root, &nothing) {
            Heard::Changed(changed) => match changed.paths() {
                Some(paths) => heard.extend(paths.iter().cloned()),
                None => return,
            },
            Heard::Stopped => panic!("{} paths of 300 were not heard of", {
                wanted.difference(&heard).count()
            }),
        }
    }
    // And what is made later, in a directory that was found so.
    fs::write(directory.path().join("b7/x/y/later"), "new").unwrap();
    assert!(hears_of(&mut watch, &root, "b7/x/y/later"));
}

fn hears_of(watch: &mut Watch, root: &Root, path: &str) -> bool {
    loop {
        match watch.wait(root, &nothing) {
            Heard::Changed(changed) => {
                if changed
                    .paths()
                    .is_none_or(|paths| paths.contains(&rel(path)))
                {
                    return true;
                }
            }
            Heard::Stopped => return false,
        }
    }
}

/// More than is kept name by name is told as everything, and never as what was kept of it.
#[test]
fn m43_a_burst_is_told_as_everything() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path()).unwrap();
    let wake = Arc::new(Wake::default());
    at_the_latest(&wake);
    let mut watch = Watch::start(&root, &nothing, Arc::clone(&wake));
    for number in 0..50_000 {
        fs::write(directory.path().join(format!("f{number}")), "x").unwrap();
    }
    loop {
        match watch.wait(&root, &nothing) {
            Heard::Changed(changed) if changed.paths().is_none() => break,
            Heard::Changed(_) => {}
            Heard::Stopped => panic!("the burst was not heard of as a whole"),
        }
    }
    // Nothing is deaf after it.
    fs::create_dir(directory.path().join("later")).unwrap();
    assert!(hears_of(&mut watch, &root, "later"));
}

/// A directory that becomes a link to one outside: that one is not watched, ever.
#[test]
fn m45_nothing_outside_the_root_is_watched() {
    let top = tempfile::tempdir().unwrap();
    let (inside, outside) = (top.path().join("in"), top.path().join("out"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir_all(outside.join("below")).unwrap();
    let root = Root::open(&inside).unwrap();
    let wake = Arc::new(Wake::default());
    at_the_latest(&wake);
    let mut watch = Watch::start(&root, &nothing, Arc::clone(&wake));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2_000 {
                let path = inside.join(format!("d{}", round % 8));
                fs::create_dir(&path).unwrap();
                fs::remove_dir(&path).unwrap();
                symlink(&outside, &path).unwrap();
                fs::remove_file(&path).unwrap();
            }
            done.store(true, Ordering::Release);
            fs::write(inside.join("end"), "x").unwrap();
        });
        let until = Instant::now() + SOON;
        while !done.load(Ordering::Acquire) && Instant::now() < until {
            watch.wait(&root, &nothing);
            let watched = watched();
            assert!(watched.contains(&inode(&inside)), "the root is watched");
            assert!(!watched.contains(&inode(&outside)), "the link was followed");
            assert!(!watched.contains(&inode(&outside.join("below"))));
        }
    });
}

/// A directory that is moved out of the root is not watched any more; one that is moved within it
/// is heard of by its new name.
#[test]
fn a_moved_directory_is_heard_of_where_it_is() {
    let top = tempfile::tempdir().unwrap();
    let inside = top.path().join("in");
    fs::create_dir_all(inside.join("a/deep")).unwrap();
    fs::create_dir_all(inside.join("b/deep")).unwrap();
    let root = Root::open(&inside).unwrap();
    let wake = Arc::new(Wake::default());
    at_the_latest(&wake);
    let mut watch = Watch::start(&root, &nothing, Arc::clone(&wake));
    fs::rename(inside.join("a"), top.path().join("gone")).unwrap();
    fs::rename(inside.join("b"), inside.join("c")).unwrap();
    assert!(hears_of(&mut watch, &root, "c"));
    fs::write(inside.join("c/deep/file"), "x").unwrap();
    assert!(hears_of(&mut watch, &root, "c/deep/file"));
    let gone = top.path().join("gone");
    let until = Instant::now() + SOON;
    // The old watches end with a thread that is told to.
    while watched().contains(&inode(&gone)) || watched().contains(&inode(&gone.join("deep"))) {
        assert!(Instant::now() < until, "what left the root is watched");
        std::thread::yield_now();
    }
}

/// What is left alone wakes nobody, and is not watched.
#[test]
fn what_is_excluded_wakes_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path();
    fs::create_dir_all(inside.join("build/deep")).unwrap();
    fs::create_dir(inside.join("src")).unwrap();
    let root = Root::open(inside).unwrap();
    let wake = Arc::new(Wake::default());
    at_the_latest(&wake);
    let skip = |path: &RelPath, _: bool| {
        path.components()
            .any(|name| name == b"build" || name.ends_with(b".log"))
    };
    let mut watch = Watch::start(&root, &skip, Arc::clone(&wake));
    assert!(!watched().contains(&inode(&inside.join("build/deep"))));
    fs::write(inside.join("build/deep/object"), "x").unwrap();
    fs::write(inside.join("src/a.log"), "x").unwrap();
    fs::remove_file(inside.join("src/a.log")).unwrap();
    fs::write(inside.join("src/code"), "x").unwrap();
    let Heard::Changed(changed) = watch.wait(&root, &skip) else {
        panic!("the edit was not heard of");
    };
    assert_eq!(changed.paths(), Some(&BTreeSet::from([rel("src/code")])));
}
