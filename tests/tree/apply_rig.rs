//! Trees in directories of their own, contents in memory, and a scan and a plan that are as simple
//! as can be.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use labproxy::tree::apply::{Applied, Apply, Contents, Modes, Why};
use labproxy::tree::content::ContentId;
use labproxy::tree::entry::{File, LinkText, Seen};
use labproxy::tree::path::RelPath;
use labproxy::tree::root::Root;
use labproxy::tree::stamp::{Stamp, Stamps};
use labproxy::tree::step::Step;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    File { bytes: Vec<u8>, executable: bool },
    Link(Vec<u8>),
    Other,
}

pub(crate) type Tree = BTreeMap<RelPath, Node>;

pub(crate) fn file(bytes: &[u8]) -> Node {
    Node::File {
        bytes: bytes.to_vec(),
        executable: false,
    }
}

pub(crate) fn link(text: &str) -> Node {
    Node::Link(text.as_bytes().to_vec())
}

pub(crate) fn tree(nodes: &[(&str, Node)]) -> Tree {
    let nodes = nodes.iter().cloned();
    nodes.map(|(text, node)| (path(text), node)).collect()
}

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

pub(crate) fn described(bytes: &[u8], executable: bool) -> File {
    File {
        size: u64::try_from(bytes.len()).unwrap(),
        executable,
        content: ContentId::of(bytes),
        seen: Seen::default(),
    }
}

/// Contents in memory.
#[derive(Default)]
pub(crate) struct Memory(HashMap<ContentId, Vec<u8>>);

impl Memory {
    pub(crate) fn of(contents: &[&[u8]]) -> Self {
        let contents = contents.iter();
        Self(
            contents
                .map(|bytes| (ContentId::of(bytes), bytes.to_vec()))
                .collect(),
        )
    }

    pub(crate) fn of_tree(tree: &Tree) -> Self {
        let mut memory = Self::default();
        for node in tree.values() {
            if let Node::File { bytes, .. } = node {
                memory.0.insert(ContentId::of(bytes), bytes.clone());
            }
        }
        memory
    }

    /// Gives `bytes` where another content is asked for.
    pub(crate) fn lie(&mut self, of: &[u8], bytes: &[u8]) {
        self.0.insert(ContentId::of(of), bytes.to_vec());
    }
}

impl Contents for Memory {
    fn open(&self, file: &File) -> io::Result<Box<dyn Read + '_>> {
        match self.0.get(&file.content) {
            Some(bytes) => Ok(Box::new(bytes.as_slice())),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Makes a tree with plain calls.
pub(crate) fn make(root: &Path, tree: &Tree) {
    for (at, node) in tree {
        let at = root.join(at.as_os_str());
        match node {
            Node::Directory => fs::create_dir(&at).unwrap(),
            Node::File { bytes, executable } => {
                fs::write(&at, bytes).unwrap();
                let mode = if *executable { 0o755 } else { 0o644 };
                fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
            }
            Node::Link(text) => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(text), &at).unwrap();
            }
            Node::Other => panic!("nothing to make"),
        }
    }
}

/// Everything below a root: what it is, and its stamp.
pub(crate) fn scan(root: &Path) -> (Tree, Stamps) {
    let mut found = Tree::new();
    let mut stamps = Vec::new();
    walk(root, root, &mut found, &mut stamps);
    (found, Stamps::new(stamps))
}

fn walk(root: &Path, here: &Path, found: &mut Tree, stamps: &mut Vec<(RelPath, Stamp)>) {
    for entry in fs::read_dir(here).unwrap() {
        let at = entry.unwrap().path();
        let relative = at.strip_prefix(root).unwrap().as_os_str().as_bytes();
        let relative = RelPath::new(relative).unwrap();
        stamps.push((
            relative.clone(),
            Stamp::of(&rustix::fs::lstat(&at).unwrap()),
        ));
        let seen = at.symlink_metadata().unwrap();
        let node = if seen.is_dir() {
            Node::Directory
        } else if seen.is_symlink() {
            let text = fs::read_link(&at).unwrap();
            Node::Link(text.as_os_str().as_bytes().to_vec())
        } else if seen.is_file() {
            Node::File {
                bytes: fs::read(&at).unwrap(),
                executable: seen.permissions().mode() & 0o100 != 0,
            }
        } else {
            Node::Other
        };
        found.insert(relative, node);
        if seen.is_dir() {
            walk(root, &at, found, stamps);
        }
    }
}

/// The steps from one tree to another: directories, files and links; then deletes; then what had to
/// wait for a delete.
pub(crate) fn plan(now: &Tree, wanted: &Tree) -> Vec<Step> {
    let is_directory = |node: Option<&Node>| matches!(node, Some(Node::Directory));
    let mut first = Vec::new();
    let mut last = Vec::new();
    for (at, node) in wanted {
        let stands = now.get(at);
        if stands == Some(node) {
            continue;
        }
        // Its place, or one above it, is one of another kind.
        let waits = now.iter().any(|(other, stands)| {
            at.is_within(other)
                && is_directory(Some(stands)) != is_directory(wanted.get(other))
                && wanted.contains_key(other)
        });
        let path = at.clone();
        let step = match node {
            Node::Directory => Step::MakeDirectory { path },
            Node::Link(text) => Step::Link {
                path,
                text: LinkText::new(text.as_slice()).unwrap(),
            },
            Node::File { bytes, executable } => match stands {
                Some(Node::File { bytes: same, .. }) if same == bytes => Step::SetExecutable {
                    path,
                    executable: *executable,
                },
                _ => Step::Write {
                    path,
                    file: described(bytes, *executable),
                },
            },
            Node::Other => panic!("nothing to make"),
        };
        if waits {
            last.push(step);
        } else {
            first.push(step);
        }
    }
    for (at, node) in now.iter().rev() {
        let goes = match wanted.get(at) {
            None => true,
            wanted => is_directory(wanted) != is_directory(Some(node)),
        };
        if goes {
            let path = at.clone();
            first.push(if is_directory(Some(node)) {
                Step::RemoveDirectory { path }
            } else {
                Step::Remove { path }
            });
        }
    }
    first.extend(last);
    first
}

pub(crate) fn write(at: &str, bytes: &[u8]) -> Step {
    Step::Write {
        path: path(at),
        file: described(bytes, false),
    }
}

pub(crate) fn remove(at: &str) -> Step {
    Step::Remove { path: path(at) }
}

pub(crate) fn rename(from: &str, to: &str) -> Step {
    Step::Move {
        from: path(from),
        to: path(to),
    }
}

pub(crate) fn copy(from: &str, to: &str, bytes: &[u8]) -> Step {
    Step::Copy {
        from: path(from),
        to: path(to),
        file: described(bytes, false),
    }
}

pub(crate) fn executable(at: &str, executable: bool) -> Step {
    Step::SetExecutable {
        path: path(at),
        executable,
    }
}

pub(crate) fn symlink(at: &str, text: &str) -> Step {
    Step::Link {
        path: path(at),
        text: LinkText::new(text.as_bytes()).unwrap(),
    }
}

pub(crate) fn directory(at: &str) -> Step {
    Step::MakeDirectory { path: path(at) }
}

pub(crate) fn remove_directory(at: &str) -> Step {
    Step::RemoveDirectory { path: path(at) }
}

/// What was kept, and why, as text.
pub(crate) fn kept(applied: &Applied) -> Vec<(&str, Why)> {
    let kept = applied.kept.iter();
    kept.map(|(at, why)| (std::str::from_utf8(at.as_bytes()).unwrap(), why.clone()))
        .collect()
}

/// A tree with every kind of entry, and one that differs from it by every kind of change.
pub(crate) fn before_and_after() -> (Tree, Tree) {
    let before = tree(&[
        ("a", Node::Directory),
        ("a/gone", file(b"1")),
        ("a/kept", file(b"2")),
        ("changed", file(b"3")),
        ("directory-to-link", Node::Directory),
        ("file-to-link", file(b"6")),
        ("link", link("one")),
        ("link-to-directory", link("a")),
        ("link-to-file", link("changed")),
        ("mode", file(b"7")),
        ("to-directory", file(b"4")),
        ("to-file", Node::Directory),
        ("to-file/below", Node::Directory),
        ("to-file/below/deep", file(b"5")),
    ]);
    let large: Vec<u8> = (0..=250).cycle().take(1_500_000).collect();
    let executable = Node::File {
        bytes: b"7".to_vec(),
        executable: true,
    };
    let after = tree(&[
        ("a", Node::Directory),
        ("a/kept", file(b"2")),
        ("changed", file(b"33")),
        ("directory-to-link", link("/nowhere")),
        ("file-to-link", link("to-file")),
        ("link", link("other")),
        ("link-to-directory", Node::Directory),
        ("link-to-directory/x", file(b"")),
        ("link-to-file", file(b"8")),
        ("mode", executable),
        ("new", Node::Directory),
        ("new/new", Node::Directory),
        ("new/new/file", file(b"9")),
        ("to-directory", Node::Directory),
        ("to-directory/below", file(&large)),
        ("to-file", file(b"5")),
    ]);
    (before, after)
}

/// A directory of its own with a root in it, and a place outside the root.
pub(crate) struct Place {
    _directory: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) outside: PathBuf,
}

impl Place {
    pub(crate) fn new(tree: &Tree) -> Self {
        Self::below(&std::env::temp_dir(), tree)
    }

    pub(crate) fn below(above: &Path, tree: &Tree) -> Self {
        let directory = tempfile::tempdir_in(above).unwrap();
        let root = directory.path().join("root");
        let outside = directory.path().join("outside");
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        make(&root, tree);
        Self {
            _directory: directory,
            root,
            outside,
        }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn now(&self) -> Tree {
        scan(&self.root).0
    }

    /// What lies outside the root.
    pub(crate) fn victims(&self) -> Tree {
        scan(&self.outside).0
    }

    /// Applies steps against what stands there now.
    pub(crate) fn apply(&self, memory: &Memory, steps: &[Step]) -> Applied {
        self.apply_after(memory, steps, || ())
    }

    /// Applies steps; what `between` does happens after the scan.
    pub(crate) fn apply_after(
        &self,
        memory: &Memory,
        steps: &[Step],
        between: impl FnOnce(),
    ) -> Applied {
        let (_, stamps) = scan(&self.root);
        let root = Root::open(&self.root).unwrap();
        between();
        let mut apply = Apply::new(&root, &stamps, memory, Modes::SHARED).unwrap();
        apply.run(steps)
    }
}
