//! Names of what is being made: random, and recognisable when they are left behind.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::super::directory::Directory;
use super::super::entry::Entry;
use super::super::path::Name;
use super::super::step::Step;

const PREFIX: &[u8] = b".labproxy-";
const SUFFIX: &[u8] = b".tmp";
/// Before the digits of a file that somebody changed while it was replaced. Such a file is a
/// user's, so it is no unfinished one.
const ASIDE: &[u8] = b"labproxy-set-aside-";
/// Hexadecimal digits of a name: 128 random bits, which nobody meets by chance.
const DIGITS: usize = 32;

/// Whether a name is one that an applier gives to what it has not finished: left behind by a
/// crash, it is nobody's file and is removed.
pub fn is_unfinished(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .is_some_and(|digits| {
            let hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            digits.len() == DIGITS && digits.iter().all(hexadecimal)
        })
}

/// The steps that remove what was left behind in a tree. Whoever applies to a tree does them first.
pub fn sweep(tree: &Directory) -> Vec<Step> {
    let mut steps = Vec::new();
    tree.walk(&mut |path, entry| {
        let name = path.components().next_back();
        let removable = matches!(entry, Entry::File(_) | Entry::Link(_));
        if removable && name.is_some_and(is_unfinished) {
            steps.push(Step::Remove { path: path.clone() });
        }
    });
    steps
}

/// Gives such names, each another one.
#[derive(Debug)]
pub(super) struct Names {
    seed: [u8; 32],
    given: AtomicU64,
}

impl Names {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            seed: random()?,
            given: AtomicU64::new(0),
        })
    }

    /// For what is being made.
    pub(super) fn next(&self) -> Result<Name, Errno> {
        self.name(PREFIX, SUFFIX)
    }

    /// For what is a user's and has lost its place.
    pub(super) fn aside(&self) -> Result<Name, Errno> {
        self.name(ASIDE, b"")
    }

    fn name(&self, prefix: &[u8], suffix: &[u8]) -> Result<Name, Errno> {
        let given = self.given.fetch_add(1, Ordering::Relaxed);
        let random = blake3::keyed_hash(&self.seed, &given.to_le_bytes()).to_hex();
        let mut bytes = prefix.to_vec();
        bytes.extend(random.bytes().take(DIGITS));
        bytes.extend_from_slice(suffix);
        // Such bytes are a name.
        Name::new(bytes).map_err(|_| Errno::INVAL)
    }
}

#[cfg(target_os = "linux")]
fn random() -> Result<[u8; 32], Errno> {
    let mut seed = [0; 32];
    let filled = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
    if filled == seed.len() {
        Ok(seed)
    } else {
        Err(Errno::IO)
    }
}

#[cfg(not(target_os = "linux"))]
fn random() -> Result<[u8; 32], Errno> {
    use std::io::Read as _;
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut seed))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our own names are known again, and nothing that looks like one is.
    #[test]
    fn a_name_that_is_left_behind_is_known() {
        let names = Names::new().unwrap();
        let (one, other) = (names.next().unwrap(), names.next().unwrap());
        assert_ne!(one, other);
        assert!(is_unfinished(one.as_bytes()));
        let digits = "0123456789abcdef".repeat(2);
        assert!(is_unfinished(format!(".labproxy-{digits}.tmp").as_bytes()));
        for other in [
            format!("labproxy-{digits}.tmp"),
            format!(".labproxy-{digits}"),
            format!(".labproxy-{digits}0.tmp"),
            format!(".labproxy-{}.tmp", digits.to_uppercase()),
            ".labproxy-.tmp".to_owned(),
            ".labproxy-notes.tmp".to_owned(),
        ] {
            assert!(!is_unfinished(other.as_bytes()), "{other}");
        }
    }
}
