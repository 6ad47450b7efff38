//! Files that are written to while they are scanned.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use labproxy::tree::content::ContentId;
use labproxy::tree::entry::Entry;
use labproxy::tree::scan::Trouble;

use super::rig::{Tree, beside, file, path, problems};

/// Bytes that are different everywhere.
fn stream(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(u32::to_le_bytes).take(length).collect()
}

/// A small and a large file grow every millisecond: each scan has the first bytes of both, as many
/// as they had at one instant.
#[test]
fn m60_a_file_that_grows_is_read_as_it_was() {
    let tree = Tree::new();
    let all = stream(16 << 20);
    let mut ends = [1_000, 3 << 20];
    for (name, end) in ["small", "large"].iter().zip(ends) {
        tree.write(name, &all[..end]);
    }
    let mut files = ["small", "large"].map(|name| {
        let path = tree.at(name);
        fs::File::options().append(true).open(path).unwrap()
    });
    let append = || {
        for (file, end) in files.iter_mut().zip(&mut ends) {
            let next = *end + 100;
            file.write_all(&all[*end..next]).unwrap();
            *end = next;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let retries = beside(append, || {
        let mut retries = 0;
        for _ in 0..20 {
            let scan = tree.scan_by(2);
            assert_eq!(scan.problems, []);
            for name in ["small", "large"] {
                let found = file(&scan.tree, name);
                let size = usize::try_from(found.size).unwrap();
                assert_eq!(found.content, ContentId::of(&all[..size]), "{name}: {size}");
            }
            retries += scan.effort.file_retries;
        }
        retries
    });
    assert!(retries > 0, "the writer was never met");
}

/// Files that are overwritten in place, whole, again and again: a scan has all of the old bytes, all
/// of the new ones, or says that they change.
#[test]
fn m60_a_file_that_is_overwritten_is_never_torn() {
    let tree = Tree::new();
    let sizes = [("small", 300_000), ("large", 5 << 20)];
    let versions = [b'a', b'b'].map(|byte| vec![byte; 5 << 20]);
    for (name, size) in sizes {
        tree.write(name, &versions[0][..size]);
    }
    let files = sizes.map(|(name, size)| {
        let path = tree.at(name);
        (fs::File::options().write(true).open(path).unwrap(), size)
    });
    let mut round = 0;
    let overwrite = || {
        round += 1;
        for (file, size) in &files {
            file.write_all_at(&versions[round % 2][..*size], 0).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut met = 0;
    beside(overwrite, || {
        for _ in 0..20 {
            let scan = tree.scan_by(2);
            for (name, size) in sizes {
                match scan.tree.find(&path(name)) {
                    Some(Entry::File(found)) => {
                        let one_of = versions.each_ref().map(|all| ContentId::of(&all[..size]));
                        assert!(one_of.contains(&found.content), "{name} is torn");
                    }
                    _ => assert!(problems(&scan).contains(&(name.to_owned(), Trouble::Changing))),
                }
            }
            met += u32::from(scan.effort.file_retries > 0);
        }
    });
    assert!(met > 0, "the writer was never met");
    assert!(
        tree.scan().is_complete(),
        "a file that is left alone is read"
    );
}

/// A file that shrinks and grows is never read as what it never was.
#[test]
fn m60_a_file_that_is_cut_and_written_anew_is_never_torn() {
    let tree = Tree::new();
    let all = stream(400_000);
    tree.write("log", &all);
    let rewrite = || {
        let log = fs::File::create(tree.at("log")).unwrap();
        for part in all.chunks(100_000) {
            (&log).write_all(part).unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    beside(rewrite, || {
        for _ in 0..20 {
            let scan = tree.scan_by(2);
            if let Some(Entry::File(found)) = scan.tree.find(&path("log")) {
                let size = usize::try_from(found.size).unwrap();
                assert_eq!(found.content, ContentId::of(&all[..size]));
            }
        }
    });
}
