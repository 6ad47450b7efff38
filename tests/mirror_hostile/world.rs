//! A mirror with a past: a workspace, a published generation, and much beside it that no lie may
//! reach.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use labproxy::clock::SystemClock;
use labproxy::mirror::error::MirrorError;
use labproxy::mirror::excludes::Frozen;
use labproxy::mirror::far::Far;
use labproxy::mirror::pair::{Ends, Local, Pair};
use labproxy::mirror::peer::{Peer, PeerError, Rule};
use labproxy::mirror::progress::Unwatched;
use labproxy::mirror::pull::{PullOptions, Pulled};
use labproxy::tree::limits::Limits;
use labproxy::tree::mirror_id::MirrorId;
use labproxy::wire::bytes::ByteString;
use labproxy::wire::mirror::RootState;

use super::host::{Heard, Host, Lie, Say, channels};

/// One refused pull must not be slow: what is asked again and again is asked so often.
pub(crate) const ORDERS_MAX: usize = 2_000;

pub(crate) struct World {
    place: tempfile::TempDir,
    pub(crate) limits: Limits,
    /// The orders of the last conversation.
    pub(crate) heard: Mutex<Heard>,
}

/// Everything below a directory: what it is, and its bytes.
type Snapshot = BTreeMap<PathBuf, Vec<u8>>;

impl World {
    /// A mirror that has pulled the files of [`Self::honest`] once.
    pub(crate) fn new() -> Self {
        let world = Self::fresh();
        world.pull(&Self::honest(), &mut |_, _| {}).unwrap();
        assert_eq!(world.generations(), 1);
        world
    }

    /// A mirror that was never used.
    pub(crate) fn fresh() -> Self {
        let place = tempfile::tempdir().unwrap();
        for name in ["local", "beside", "state"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        fs::write(place.path().join("beside/precious"), b"precious").unwrap();
        Self {
            place,
            limits: Limits::default(),
            heard: Mutex::default(),
        }
    }

    pub(crate) fn honest() -> Host {
        Host::of(&[("a", b"first"), ("d/b", b"second"), ("d/c", b"third")])
    }

    pub(crate) fn local(&self) -> PathBuf {
        self.place.path().join("local")
    }

    /// Works with a host that lies; the conversation is over when this returns.
    pub(crate) fn with<T>(
        &self,
        host: &Host,
        lie: &mut Lie<'_>,
        work: impl FnOnce(&mut Pair, &mut Ends<'_>) -> Result<T, MirrorError>,
    ) -> Result<T, MirrorError> {
        let (input, output, orders, wire) = channels();
        let (result, heard) = std::thread::scope(|scope| {
            let serving = scope.spawn(move || host.serve(&orders, wire, lie));
            let result = self.work(Box::new(input), Box::new(output), work);
            (result, serving.join().unwrap())
        });
        assert!(heard.len() < ORDERS_MAX);
        *self.heard.lock().unwrap() = heard;
        result
    }

    pub(crate) fn work<T>(
        &self,
        input: Box<dyn labproxy::mirror::peer::Input>,
        output: Box<dyn labproxy::mirror::peer::Output>,
        work: impl FnOnce(&mut Pair, &mut Ends<'_>) -> Result<T, MirrorError>,
    ) -> Result<T, MirrorError> {
        let mut local = Local::open(&self.local())?;
        let mut pair = self.pair(&local)?;
        let mut peer = Peer::new(input, output, self.limits, true);
        let (root, workdir) = (ByteString::from("far"), ByteString::from("workdir"));
        let state: RootState = peer.open(root, workdir, MirrorId::from_random([1; 16]))?;
        let mut ends = Ends {
            rsync: None,
            peer: &mut peer,
            state: &state,
            local: &mut local,
            progress: &Unwatched,
            clock: &SystemClock,
        };
        work(&mut pair, &mut ends)
    }

    fn pair(&self, local: &Local) -> Result<Pair, MirrorError> {
        let place = self.place.path().join("state/mirror");
        let far = Far::Here(self.place.path().join("far"));
        Pair::open(&place, local, &far, Frozen::default(), self.limits)
    }

    pub(crate) fn pull(&self, host: &Host, lie: &mut Lie<'_>) -> Result<Pulled, MirrorError> {
        let options = PullOptions::default();
        self.with(host, lie, |pair, ends| pair.pull(ends, options))
    }

    /// How many generations there are; each is read, and proven with all its contents.
    pub(crate) fn generations(&self) -> usize {
        let local = Local::open(&self.local()).unwrap();
        let pair = self.pair(&local).unwrap();
        let heads = pair.store().generations().unwrap();
        for head in &heads {
            let (_, tree) = pair.store().load(head.number).unwrap();
            assert!(pair.store().verify(&tree).is_empty());
        }
        heads.len()
    }

    /// Everything but the mirror's own state.
    pub(crate) fn outside(&self) -> Snapshot {
        let mut found = Snapshot::new();
        collect(self.place.path(), &mut found);
        found.retain(|path, _| !path.starts_with(self.place.path().join("state")));
        found
    }

    /// Pulls from a host that lies: the pull fails, nothing that was there is touched, and an honest
    /// pull works after it.
    pub(crate) fn refuses(&self, host: &Host, lie: &mut Lie<'_>) -> MirrorError {
        let (before, generations) = (self.outside(), self.generations());
        let error = self.pull(host, lie).unwrap_err();
        assert_eq!(self.outside(), before);
        assert_eq!(self.generations(), generations);
        self.is_sound();
        error
    }

    /// An honest pull of something new works.
    pub(crate) fn is_sound(&self) {
        let generations = self.generations();
        let text = format!("new {generations}");
        let host = Host::of(&[
            ("a", b"first"),
            ("d/b", b"second"),
            ("d/c", b"third"),
            ("e", text.as_bytes()),
        ]);
        self.pull(&host, &mut |_, _| {}).unwrap();
        assert_eq!(fs::read(self.local().join("e")).unwrap(), text.as_bytes());
        assert_eq!(self.generations(), generations + 1);
    }
}

fn collect(path: &Path, found: &mut Snapshot) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let what = if kind.is_dir() {
            collect(&path, found);
            b"directory".to_vec()
        } else if kind.is_symlink() {
            fs::read_link(&path)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec()
        } else {
            fs::read(&path).unwrap()
        };
        found.insert(path, what);
    }
}

/// The rule that was broken.
pub(crate) fn rule(error: MirrorError) -> Rule {
    match error {
        MirrorError::Peer(PeerError::Rule(rule)) => rule,
        other => panic!("{other:?}"),
    }
}

/// The limit that was met.
pub(crate) fn limit(error: MirrorError) -> String {
    match error {
        MirrorError::Peer(PeerError::Limit(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// A lie that replaces the answers to the orders that `is` picks.
pub(crate) fn instead(
    is: impl Fn(&labproxy::wire::mirror::ToMirror<'_>) -> bool + Send,
    say: impl Fn() -> Vec<Say> + Send,
) -> impl FnMut(&labproxy::wire::mirror::ToMirror<'_>, &mut Vec<Say>) + Send {
    move |order, answers| {
        if is(order) {
            *answers = say();
        }
    }
}
