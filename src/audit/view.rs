//! A tool's view of a generation: a private copy, proven before the tool sees it and read again
//! when the tool has ended.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};

use super::changes::changes;
use crate::mirror::durable;
use crate::mirror::plan::{self, plan};
use crate::mirror::store::{Store, StoreError, TakenIn};
use crate::report::Failure;
use crate::tree::apply::{Apply, Modes};
use crate::tree::content::ContentId;
use crate::tree::directory::Directory;
use crate::tree::entry::{self, Entry};
use crate::tree::limits::Limits;
use crate::tree::path::RelPath;
use crate::tree::root::Root;
use crate::tree::scan::{self, Scan};
use crate::tree::stamp::Stamps;

/// Paths that are named; more are counted.
const NAMED_MAX: usize = 100;

/// The copy.
#[derive(Debug)]
pub struct View {
    workspace: PathBuf,
    root: Root,
    /// The whole tree as it was before the tool.
    before: Directory,
}

/// What became of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Afterwards {
    /// It is byte for byte what it was.
    Same,
    /// It is not.
    Altered {
        /// Its tree; nothing when it cannot be read whole.
        tree: Option<Directory>,
        /// The first paths that differ.
        paths: Vec<RelPath>,
        /// How many differ.
        count: u64,
    },
}

impl View {
    /// Makes the copy in `directory`, which does not exist, of a tree whose contents are in `store`.
    /// What has no content is left out.
    ///
    /// # Errors
    /// When the disk does not take it, or what is there afterwards is not the tree.
    pub fn make(directory: &Path, store: &Store, tree: &Directory) -> Result<Self, Failure> {
        let shown = directory.display();
        let failed = |error: &dyn std::error::Error| {
            Failure::because(format!("the copy in {shown} cannot be made"), error)
        };
        durable::private_directory(directory).map_err(|error| failed(&error))?;
        let workspace = directory.join("workspace");
        durable::private_directory(&workspace).map_err(|error| failed(&error))?;
        let root = Root::open(&workspace).map_err(|error| failed(&error))?;
        let wanted = tree
            .filtered(&mut |_, entry| !matches!(entry, Entry::Special(_)))
            .plain();
        let steps = plan(&wanted, &Directory::empty(), plan::Options::default()).steps;
        let stamps = Stamps::default();
        let apply = Apply::new(&root, &stamps, store, Modes::PRIVATE);
        let applied = apply.map_err(|error| failed(&error))?.run(&steps);
        if let Some(fatal) = &applied.stopped {
            return Err(Failure::failed(format!(
                "the copy in {shown} cannot be made: {fatal}"
            )));
        }
        let before = read(&root, &workspace, &AtomicBool::new(false))?;
        if !before.is_complete() || before.tree.plain().hash() != wanted.hash() {
            let mut failure =
                Failure::failed(format!("the copy in {shown} is not what was pulled"));
            for (path, why) in applied.failed.iter().take(NAMED_MAX) {
                failure = failure.problem(format!("{}: {why}", text(path)));
            }
            return Err(failure.hint("labproxy audit verify reads what is stored again"));
        }
        Ok(Self {
            workspace,
            root,
            before: before.tree,
        })
    }

    /// Where it is.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The tree that it was made of, as far as it was copied.
    pub const fn before(&self) -> &Directory {
        &self.before
    }

    /// Takes the contents of `tree`, which the copy has now, into `store`.
    ///
    /// # Errors
    /// When one is no longer what it was when the copy was read again, or the disk is full.
    pub fn keep(&self, tree: &Directory, store: &Store) -> Result<(), Failure> {
        let mut files: Vec<(RelPath, entry::File)> = Vec::new();
        let mut seen: HashSet<ContentId> = HashSet::new();
        tree.walk(&mut |path, entry| {
            if let Entry::File(file) = entry
                && seen.insert(file.content)
            {
                files.push((path.clone(), file.clone()));
            }
        });
        for (path, file) in files {
            let kept = self.keep_one(&path, &file, store);
            kept.map_err(|error| {
                let path = text(&path);
                Failure::because(format!("{path} of the copy cannot be stored"), &error)
            })?;
        }
        Ok(())
    }

    fn keep_one(&self, path: &RelPath, file: &entry::File, store: &Store) -> io::Result<()> {
        if store.has(&file.content).map_err(io::Error::other)? {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.root.open_at(path, flags, Mode::empty())?;
        let content = fs::File::from(opened).take(file.size);
        let taken = store.take_in(file.content, file.size, content);
        match taken.map_err(io::Error::other)? {
            TakenIn::Whole => Ok(()),
            TakenIn::Another => Err(io::Error::other(StoreError::NotTheContent(file.content))),
            TakenIn::Unreadable(error) => Err(error),
        }
    }

    /// Reads everything again, until `cancel` is set.
    ///
    /// # Errors
    /// When it was, or the copy's own directory is gone.
    pub fn compare(&self, cancel: &AtomicBool) -> Result<Afterwards, Failure> {
        let after = read(&self.root, &self.workspace, cancel)?;
        if after.is_complete() && after.tree.hash() == self.before.hash() {
            return Ok(Afterwards::Same);
        }
        let mut paths = Vec::new();
        let mut count = 0_u64;
        let mut note = |path: &RelPath| {
            count = count.saturating_add(1);
            if paths.len() < NAMED_MAX {
                paths.push(path.clone());
            }
        };
        if after.is_complete() {
            changes(&self.before, &after.tree, &mut |path, _| note(path));
        } else {
            for problem in &after.problems {
                note(&problem.path);
            }
        }
        Ok(Afterwards::Altered {
            tree: after.is_complete().then_some(after.tree),
            paths,
            count,
        })
    }
}

fn read(root: &Root, path: &Path, cancel: &AtomicBool) -> Result<Scan, Failure> {
    let counters = scan::Progress::default();
    let options = scan::Options {
        limits: Limits::default(),
        threads: scan::processors(),
        skip: None,
        progress: &counters,
        cancel,
    };
    scan::scan(root, path, options).map_err(|error| {
        Failure::because(
            format!("the copy in {} cannot be read", path.display()),
            &error,
        )
    })
}

/// A path of a tree as text.
pub fn text(path: &RelPath) -> String {
    if path.is_root() {
        return ".".to_owned();
    }
    crate::escape::escape(path.as_bytes())
}
