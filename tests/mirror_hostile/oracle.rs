//! What must hold at both ends of a mirror, whatever bytes come from the other one. The fuzz targets
//! `mirror_peer` and `mirror_host` check the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Cursor, Seek as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use labproxy::mirror::peer::{Input, Known, Output, Peer, PeerError, Sink, Source, Wanted};
use labproxy::mirror::store::StoreError;
use labproxy::remote::login::Login;
use labproxy::remote::mirror::carry_out;
use labproxy::tree::content::ContentId;
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::Entry;
use labproxy::tree::limits::Limits;
use labproxy::tree::mirror_id::MirrorId;
use labproxy::tree::path::{DEPTH_MAX, Name, RelPath};
use labproxy::wire::bytes::ByteString;
use labproxy::wire::mirror::{Landed, Open, ToMirror};
use labproxy::wire::{delta, frame};

/// Small ones, so that they are met.
const LIMITS: Limits = Limits {
    entries: 1_000,
    file: 1 << 20,
    tree: 4 << 20,
};

/// The bytes of a host, as the controller of a pull and of a push hears them: it ends by an error or
/// with a tree within the limits, and no more comes of a content than was asked for. Gives how far
/// it came.
pub(crate) fn check_peer(bytes: &[u8]) -> u32 {
    let mut peer = Peer::new(
        Box::new(Cursor::new(bytes.to_vec())),
        Box::new(io::sink()),
        LIMITS,
        true,
    );
    let mut steps = 0;
    // Every error is a fine end.
    let _ended = converse(&mut peer, &mut steps);
    steps
}

/// The same conversation with a host that keeps every rule.
#[allow(dead_code, reason = "the fuzz targets have theirs recorded")]
pub(crate) fn converse_fully(input: Box<dyn Input>, output: Box<dyn Output>) {
    let mut peer = Peer::new(input, output, LIMITS, true);
    converse(&mut peer, &mut 0).unwrap();
}

fn converse(peer: &mut Peer, steps: &mut u32) -> Result<(), PeerError> {
    let text = ByteString::from("x");
    peer.open(text.clone(), text, MirrorId::from_random([1; 16]))?;
    *steps += 1;
    let scanned = peer.scan(&mut |_, _| {})?;
    *steps += 1;
    let tree = peer.tree(&scanned, &Known::default())?;
    *steps += 1;
    assert_eq!(tree.hash(), scanned.hash);
    let wanted = check_tree(&tree);
    for (wanted, content) in &wanted {
        if wanted.length > 1 << 16
            && let Some(groups) = peer.groups(*content, wanted.length)?
        {
            assert_eq!(groups.content(), *content);
        }
    }
    let wanted: Vec<Wanted> = wanted.into_iter().map(|(wanted, _)| wanted).collect();
    let files: Vec<RelPath> = wanted.iter().map(|wanted| wanted.path.clone()).collect();
    assert_eq!(peer.glance(&files)?.len(), files.len());
    if let Some(part) = wanted.first()
        && let Some(delta) = peer.delta(part, delta::signature(b"first"))?
        && let Some(made) = delta::apply(b"first", &delta, 5)
    {
        assert_eq!(made.len(), 5);
    }
    let mut counting = Counting {
        wanted: &wanted,
        next: 0,
        came: 0,
    };
    peer.fetch(&wanted, &mut counting)?;
    assert_eq!(counting.next, wanted.len());
    *steps += 1;
    peer.take(true)?;
    let contents = [(ContentId::of(b"abc"), 3), (ContentId::of(b""), 0)];
    let source = &mut |_| {
        Ok(Source {
            bytes: Box::new(Cursor::new(b"abc")),
            older: None,
        })
    };
    peer.stage(&contents, source, &mut |_, _| {})?;
    peer.run(&[], &mut |_, _| {})?;
    *steps += 1;
    let located = peer.locate(true)?;
    assert!(located.root.is_absolute() && located.landing.is_some());
    let files = [Landed {
        path: RelPath::ROOT.join(&Name::new(*b"abc").unwrap()),
        content: ContentId::of(b"abc"),
        size: 3,
    }];
    let unproven = peer.landed(&files, &mut |_, _| {})?;
    assert!(unproven.len() <= files.len());
    *steps += 1;
    peer.unstage()
}

/// A tree is within the limits; gives its files.
fn check_tree(tree: &Directory) -> Vec<(Wanted, ContentId)> {
    assert!(tree.totals().entries <= LIMITS.entries);
    assert!(tree.totals().bytes <= LIMITS.tree);
    let mut wanted = Vec::new();
    tree.walk(&mut |path, entry| {
        assert!(path.depth() <= DEPTH_MAX);
        if let Entry::File(file) = entry {
            assert!(file.size <= LIMITS.file);
            let path = path.clone();
            let (offset, length) = (0, file.size);
            wanted.push((
                Wanted {
                    path,
                    offset,
                    length,
                },
                file.content,
            ));
        }
    });
    wanted
}

struct Counting<'a> {
    wanted: &'a [Wanted],
    next: usize,
    came: u64,
}

impl Sink for Counting<'_> {
    fn take(&mut self, index: usize, bytes: &[u8]) -> Result<(), StoreError> {
        assert_eq!(index, self.next);
        self.came += u64::try_from(bytes.len()).unwrap();
        assert!(self.came <= self.wanted[index].length);
        Ok(())
    }

    fn whole(&mut self, index: usize) -> Result<(), StoreError> {
        assert_eq!(self.came, self.wanted[index].length);
        self.gone(index)
    }

    fn gone(&mut self, index: usize) -> Result<(), StoreError> {
        assert_eq!(index, self.next);
        (self.next, self.came) = (self.next + 1, 0);
        Ok(())
    }
}

/// A host's place: what is beside the root, reached by links from within it, must stay.
pub(crate) struct HostPlace {
    place: tempfile::TempDir,
    login: Login,
    beside: Snapshot,
    /// The root as it was made.
    root: RefCell<Snapshot>,
}

/// Everything below a directory, as it is: kinds, modes, texts of links, bytes.
type Snapshot = BTreeMap<PathBuf, (u32, Vec<u8>)>;

impl HostPlace {
    pub(crate) fn new() -> Self {
        // In memory where there is such a place: each run waits for its file system.
        let memory = tempfile::tempdir_in("/dev/shm");
        let place = memory.or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir_all(place.path().join("beside/inner")).unwrap();
        fs::write(place.path().join("beside/precious"), b"precious").unwrap();
        let beside = snapshot(&place.path().join("beside"));
        Self {
            place,
            login: Login::of_process(),
            beside,
            root: RefCell::default(),
        }
    }

    /// The order that opens the root here; what is checked follows it.
    fn open(&self) -> Vec<u8> {
        let path = |name: &str| ByteString::from(self.place.path().join(name).as_os_str());
        let open = Open {
            root: path("root"),
            workdir: path("work"),
            mark: MirrorId::from_random([1; 16]),
            limits: LIMITS,
        };
        let mut bytes = Vec::new();
        frame::encode(&ToMirror::Open(open), &mut bytes).unwrap();
        bytes
    }

    /// A tree with a link to what is beside; made anew after orders that changed it: a scan waits
    /// for the clock where files are new.
    fn prepare(&self) {
        let _absent = fs::remove_dir_all(self.place.path().join("work"));
        let root = self.place.path().join("root");
        let before = self.root.borrow();
        if !before.is_empty() && snapshot(&root) == *before {
            return;
        }
        drop(before);
        let _absent = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("a"), b"first").unwrap();
        fs::write(root.join("d/b"), b"second").unwrap();
        std::os::unix::fs::symlink("../beside", root.join("out")).unwrap();
        std::os::unix::fs::symlink("../../beside/precious", root.join("d/key")).unwrap();
        *self.root.borrow_mut() = snapshot(&root);
    }

    /// Whether the last orders changed the root.
    #[allow(dead_code, reason = "a fuzz target does not ask")]
    pub(crate) fn has_changed(&self) -> bool {
        snapshot(&self.place.path().join("root")) != *self.root.borrow()
    }

    /// The orders of a controller, whatever they are: they end, nothing but the root and the host's
    /// own state changes, and nothing from beside is told. Gives the bytes of the answers.
    pub(crate) fn check(&self, orders: &[u8]) -> usize {
        self.prepare();
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(&self.open()).unwrap();
        input.write_all(orders).unwrap();
        input.rewind().unwrap();
        let mut output = tempfile::tempfile().unwrap();
        let told = output.try_clone().unwrap();
        // Every refusal is a fine end.
        let _ended = carry_out(input.into(), told.into(), &self.login);
        assert_eq!(snapshot(&self.place.path().join("beside")), self.beside);
        let mut names: Vec<_> = fs::read_dir(self.place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names.retain(|name| name != "root");
        assert_eq!(names, ["beside", "work"]);
        let mut answers = Vec::new();
        output.rewind().unwrap();
        io::Read::read_to_end(&mut output, &mut answers).unwrap();
        // Not in a link's text, which is a path, but as a file's bytes.
        let leaked = answers.windows(9).any(|part| part == b"\x08precious");
        assert!(!leaked);
        answers.len()
    }
}

fn snapshot(path: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let Ok(entries) = fs::read_dir(path) else {
        return found;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let seen = fs::symlink_metadata(&path).unwrap();
        let bytes = if seen.is_dir() {
            found.extend(snapshot(&path));
            Vec::new()
        } else if seen.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_vec()
        } else {
            fs::read(&path).unwrap()
        };
        found.insert(path, (seen.mode(), bytes));
    }
    found
}
