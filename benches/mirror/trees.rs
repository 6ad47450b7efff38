//! The trees, and how they change.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::report::Op;

/// Files that are edited, or places in the one large file.
const EDITS: u64 = 100;

/// Which tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Tree {
    /// 20,000 files of 1 to 9 KB in 1,200 directories, random bytes: 100 MB.
    A,
    /// One random file of 1 GiB.
    B,
    /// A git checkout: this repository with its history, or 2,000 files of text.
    C,
}

impl Tree {
    pub const ALL: [Self; 3] = [Self::A, Self::B, Self::C];

    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a: 20,000 files",
            Self::B => "b: 1 GiB file",
            Self::C => "c: git checkout",
        }
    }

    /// Makes it in an empty directory.
    pub fn make(self, root: &Path, quick: bool) {
        let part = if quick { 10 } else { 1 };
        let mut random = Random(7);
        match self {
            Self::A => small_files(root, 1_200 / part, &mut random),
            Self::B => {
                let mut file = File::create(root.join("large")).unwrap();
                let mut bytes = vec![0; 1 << 20];
                for _ in 0..1024 / part {
                    random.fill(&mut bytes);
                    file.write_all(&bytes).unwrap();
                }
            }
            Self::C => checkout(root),
        }
    }

    /// Brings about what an operation is to copy.
    pub fn change(self, root: &Path, op: Op, round: u32) {
        match op {
            Op::Initial | Op::Nothing => {}
            Op::Append => {
                let mut file = OpenOptions::new()
                    .append(true)
                    .open(&files(root)[0])
                    .unwrap();
                let mut bytes = vec![0; 4_096];
                Random(u64::from(round) + 11).fill(&mut bytes);
                file.write_all(&bytes).unwrap();
            }
            Op::Edits => edit(root),
            Op::Rename => {
                let from = match self {
                    Self::A => "left",
                    Self::B => "large",
                    Self::C => "src",
                };
                fs::rename(root.join(from), root.join(format!("{from}-moved"))).unwrap();
            }
        }
    }
}

/// Half of the directories below each of two.
fn small_files(root: &Path, directories: u64, random: &mut Random) {
    let mut bytes = vec![0; 9 << 10];
    let all = 20_000 * directories / 1_200;
    let mut made = 0;
    for number in 0..directories {
        let side = ["left", "right"][usize::from(number >= directories / 2)];
        let directory = root.join(side).join(format!("directory-{number}"));
        fs::create_dir_all(&directory).unwrap();
        while made < all * (number + 1) / directories {
            let length = 1_024 + random.next() as usize % (8 << 10);
            random.fill(&mut bytes[..length]);
            fs::write(directory.join(format!("file-{made}")), &bytes[..length]).unwrap();
            made += 1;
        }
    }
}

/// Files of 100 bytes or so, a hundred in a directory.
pub fn many(root: &Path, count: u64) {
    for number in 0..count {
        let directory = root.join(format!("directory-{}", number / 100));
        if number % 100 == 0 {
            fs::create_dir(&directory).unwrap();
        }
        let text = format!("{number} ").repeat(20);
        fs::write(directory.join(format!("file-{number}")), text).unwrap();
    }
}

fn checkout(root: &Path) {
    let cloned = Command::new("git")
        .args(["clone", "--quiet", "--no-hardlinks"])
        .args([Path::new(env!("CARGO_MANIFEST_DIR")), root])
        .status();
    if cloned.is_ok_and(|status| status.success()) {
        return;
    }
    for number in 0..2_000_u32 {
        let directory = root.join("src").join(format!("part-{}", number % 90));
        fs::create_dir_all(&directory).unwrap();
        let text = format!("pub fn number_{number}() -> u32 {{\n    {number}\n}}\n").repeat(120);
        fs::write(directory.join(format!("file_{number}.rs")), text).unwrap();
    }
}

/// Changes bytes in many places, and lets the files look as old as they were.
fn edit(root: &Path) {
    let files = files(root);
    let count = files.len() as u64;
    for number in 0..EDITS {
        let path = &files[(number * count / EDITS) as usize];
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let about = file.metadata().unwrap();
        let at = if count == 1 {
            number * (about.len() / EDITS)
        } else {
            about.len() / 2
        };
        let mut byte = [0];
        if file.read_at(&mut byte, at).unwrap() == 1 {
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
        let times = FileTimes::new().set_modified(about.modified().unwrap());
        file.set_times(times).unwrap();
    }
}

/// All regular files but git's own, in order.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && entry.file_name() != ".git" {
                todo.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Bytes that nothing packs, the same in each run.
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
    }
}
