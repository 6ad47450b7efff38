//! Learning the other end's tree: from its root's hash down, listing only what is not known.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Peer, PeerError, Rule, unasked};
use crate::tree::directory::{Directory, Listed, TreeHash, listing_hash};
use crate::tree::entry::{Entry, Seen};
use crate::tree::limits::{Limits, PATHS_MAX};
use crate::tree::path::{DEPTH_MAX, Name, RelPath};
use crate::wire::mirror::{ASKED_BYTES_MAX, ASKED_MAX, FromMirror, Scanned, ToMirror};

/// Directories that need no listing, by hash. Only what the other end has told or was sent may be
/// among them: it learns of each that it is known here.
#[derive(Debug, Default)]
pub struct Known<'a>(HashMap<TreeHash, &'a Directory>);

impl<'a> Known<'a> {
    fn of(trees: &[&'a Directory]) -> Self {
        let mut known = HashMap::new();
        for tree in trees {
            note(tree, &mut known);
        }
        Self(known)
    }

    /// Of whole trees, as far as a tree of this hash is to be learned: when one of them is it,
    /// nothing else is looked for.
    pub fn for_root(hash: TreeHash, trees: &[&'a Directory]) -> Self {
        match trees.iter().find(|tree| tree.hash() == hash) {
            Some(tree) => Self(HashMap::from([(hash, *tree)])),
            None => Self::of(trees),
        }
    }
}

/// Notes a directory and all below it.
fn note<'a>(directory: &'a Directory, known: &mut HashMap<TreeHash, &'a Directory>) {
    // One that was met is noted with all that is in it.
    if known.insert(directory.hash(), directory).is_some() {
        return;
    }
    for (_, entry) in directory.entries() {
        if let Entry::Directory(below) = entry {
            note(below, known);
        }
    }
}

/// Listings that were checked, by the hash that they have: one listing serves every directory of
/// its hash.
type Listings = HashMap<TreeHash, Vec<(Name, Listed)>>;

/// What was taken so far, against the limits.
struct Spent {
    limits: Limits,
    entries: u64,
    /// Bytes of files.
    bytes: u64,
    /// Bytes of all paths, and of the texts of links.
    paths: u64,
}

impl Peer {
    /// The tree that the last scan saw, each directory of it proven by the hash above.
    ///
    /// # Errors
    /// When a listing has not its hash, or the tree is beyond the limits.
    pub fn tree(&mut self, scanned: &Scanned, known: &Known<'_>) -> Result<Directory, PeerError> {
        let mut listings = Listings::new();
        let mut spent = Spent::new(self.limits);
        let mut asked = HashSet::new();
        let mut level = BTreeMap::new();
        if !known.0.contains_key(&scanned.hash) && asked.insert(scanned.hash) {
            level.insert(RelPath::ROOT, scanned.hash);
        }
        let mut depth = 0;
        while !level.is_empty() {
            if depth > DEPTH_MAX {
                return Err(too_deep());
            }
            depth += 1;
            let listed = self.list_level(level, &mut listings, &mut spent)?;
            // What is not asked for is not kept: a host may name a directory a million times.
            level = BTreeMap::new();
            for (parent, hash) in listed {
                for (name, entry) in listings.get(&hash).into_iter().flatten() {
                    if let Listed::Directory { hash, .. } = entry
                        && !known.0.contains_key(hash)
                        && asked.insert(*hash)
                    {
                        level.insert(parent.join(name), *hash);
                    }
                }
            }
        }
        let mut assembly = Assembly {
            listings: &listings,
            known,
            spent: Spent::new(self.limits),
        };
        assembly.directory(scanned.hash, scanned.seen, 0, 0)
    }

    /// Lists the directories of one level; gives them back.
    fn list_level(
        &mut self,
        level: BTreeMap<RelPath, TreeHash>,
        listings: &mut Listings,
        spent: &mut Spent,
    ) -> Result<Vec<(RelPath, TreeHash)>, PeerError> {
        let mut listed = Vec::with_capacity(level.len());
        let mut level = level.into_iter().peekable();
        while level.peek().is_some() {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < ASKED_MAX
                && let Some((path, _)) = level.peek()
                && (batch.is_empty() || bytes + path.as_bytes().len() < ASKED_BYTES_MAX)
            {
                bytes += path.as_bytes().len();
                batch.extend(level.next());
            }
            let directories = batch.iter().map(|(path, _)| path.clone()).collect();
            self.line.say(&ToMirror::List { directories })?;
            for (path, hash) in batch {
                let listing = self.listing(&path, spent)?;
                if listing_hash(&listing) != Some(hash) {
                    return Err(Rule::Listing.into());
                }
                listings.insert(hash, listing);
                listed.push((path, hash));
            }
        }
        Ok(listed)
    }

    fn listing(
        &mut self,
        path: &RelPath,
        spent: &mut Spent,
    ) -> Result<Vec<(Name, Listed)>, PeerError> {
        let mut listing = Vec::new();
        loop {
            let (entries, last) = match self.line.hear()? {
                FromMirror::Listing { entries, last } => (entries, last),
                other => return Err(unasked(other)),
            };
            if entries.is_empty() && !last {
                return Err(Rule::Endless.into());
            }
            for (name, entry) in &entries {
                spent.entry(length_of(path.as_bytes()), name, entry)?;
            }
            listing.extend(entries);
            if last {
                return Ok(listing);
            }
        }
    }
}

/// Puts a tree together from its listings.
struct Assembly<'a> {
    listings: &'a Listings,
    known: &'a Known<'a>,
    spent: Spent,
}

impl Assembly<'_> {
    /// The directory of a hash, whose own path has `depth` names and `path` bytes. One small listing
    /// may stand for many directories: what they come to is counted as they are put together.
    fn directory(
        &mut self,
        hash: TreeHash,
        seen: Seen,
        depth: usize,
        path: u64,
    ) -> Result<Directory, PeerError> {
        if let Some(known) = self.known.0.get(&hash) {
            // A known root is as it was; a known directory may stand anywhere, any number of times.
            if depth > 0 {
                self.known_directory(known, depth, path)?;
            }
            return Ok((*known).clone().with_seen(seen));
        }
        let listing = self.listings.get(&hash).ok_or(Rule::Listing)?;
        if depth >= DEPTH_MAX && !listing.is_empty() {
            return Err(too_deep());
        }
        let mut entries = Vec::with_capacity(listing.len());
        for (name, entry) in listing {
            let below = self.spent.entry(path, name, entry)?;
            let entry = match entry {
                Listed::File(file) => Entry::File(file.clone()),
                Listed::Directory { hash, seen } => {
                    Entry::Directory(self.directory(*hash, *seen, depth + 1, below)?)
                }
                Listed::Link(text) => Entry::Link(text.clone()),
                Listed::Special(kind) => Entry::Special(*kind),
            };
            entries.push((name.clone(), entry));
        }
        Directory::new(entries, seen).map_err(|_| Rule::Listing.into())
    }

    fn known_directory(
        &mut self,
        known: &Directory,
        depth: usize,
        path: u64,
    ) -> Result<(), PeerError> {
        if depth >= DEPTH_MAX && !known.entries().is_empty() {
            return Err(too_deep());
        }
        for (name, entry) in known.entries() {
            let below = self.spent.entry(path, name, &entry.listed())?;
            if let Entry::Directory(directory) = entry {
                self.known_directory(directory, depth + 1, below)?;
            }
        }
        Ok(())
    }
}

impl Spent {
    const fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: 0,
            bytes: 0,
            paths: 0,
        }
    }

    /// Counts an entry of a directory whose path has `parent` bytes; gives the bytes of its own.
    fn entry(&mut self, parent: u64, name: &Name, entry: &Listed) -> Result<u64, PeerError> {
        let limits = self.limits;
        let path = parent.saturating_add(1 + length_of(name.as_bytes()));
        self.entries = self.entries.saturating_add(1);
        self.paths = self.paths.saturating_add(path);
        match entry {
            Listed::File(file) => {
                self.bytes = self.bytes.saturating_add(file.size);
                if file.size > limits.file {
                    let (size, most) = (file.size, limits.file);
                    let text = format!("a file of {size} bytes, and {most} is the most");
                    return Err(PeerError::Limit(text));
                }
            }
            Listed::Link(text) => {
                self.paths = self.paths.saturating_add(length_of(text.as_bytes()));
            }
            Listed::Directory { .. } | Listed::Special(_) => {}
        }
        let within = |has: u64, most: u64, what: &str| {
            let text = || format!("more than {most} {what}");
            (has <= most)
                .then_some(())
                .ok_or_else(|| PeerError::Limit(text()))
        };
        within(self.entries, limits.entries, "entries")?;
        within(self.bytes, limits.tree, "bytes")?;
        within(self.paths, PATHS_MAX, "bytes of paths and links")?;
        Ok(path)
    }
}

fn too_deep() -> PeerError {
    PeerError::Limit(format!("something deeper than {DEPTH_MAX} names"))
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
