//! Secrets that a push must not carry to a host: files whose names say that they hold one, and the
//! bytes of the configured credential in any file.

use std::collections::BTreeSet;
use std::io::{self, Read};

use crate::tree::directory::Directory;
use crate::tree::entry::Entry;
use crate::tree::path::RelPath;

/// Bytes read at once while contents are searched.
const BUFFER: usize = 64 * 1024;

/// How a name is compared, ASCII letters of either case.
#[derive(Debug, Clone, Copy)]
enum Is {
    /// The last name is this.
    Named(&'static str),
    /// The last name begins so.
    Begins(&'static str),
    /// The last name ends so.
    Ends(&'static str),
    /// The last two names are these.
    In(&'static str, &'static str),
}

/// Names that say that a file holds a secret, and what it is. Public halves and templates are none:
/// [`PUBLIC`].
const NAMES: [(Is, &str); 36] = [
    (
        Is::Named(".env"),
        "keys of the services that the program uses",
    ),
    (
        Is::Begins(".env."),
        "keys of the services that the program uses",
    ),
    (
        Is::Ends(".env"),
        "keys of the services that the program uses",
    ),
    (Is::Ends(".pem"), "a private key, or a certificate with one"),
    (Is::Ends(".key"), "a private key"),
    (Is::Ends(".p12"), "a private key with its certificate"),
    (Is::Ends(".pfx"), "a private key with its certificate"),
    (Is::Ends(".jks"), "a store of private keys"),
    (Is::Ends(".keystore"), "a store of private keys"),
    (Is::Ends(".kdbx"), "a password database"),
    (Is::Ends(".ppk"), "a private ssh key"),
    (Is::Begins("id_rsa"), "a private ssh key"),
    (Is::Begins("id_dsa"), "a private ssh key"),
    (Is::Begins("id_ecdsa"), "a private ssh key"),
    (Is::Begins("id_ed25519"), "a private ssh key"),
    (Is::Named(".netrc"), "passwords of servers"),
    (Is::Named("_netrc"), "passwords of servers"),
    (Is::Named(".git-credentials"), "passwords of git servers"),
    (Is::Named(".pgpass"), "passwords of databases"),
    (Is::Named(".my.cnf"), "passwords of databases"),
    (Is::Named(".pypirc"), "a token that publishes packages"),
    (
        Is::Named(".npmrc"),
        "a token that publishes packages, where it has one",
    ),
    (
        Is::Named(".yarnrc.yml"),
        "a token that publishes packages, where it has one",
    ),
    (Is::Named(".htpasswd"), "hashes of passwords"),
    (Is::Named("credentials.json"), "a token of a cloud account"),
    (
        Is::Named("client_secret.json"),
        "a secret of an application at a cloud",
    ),
    (Is::Begins("service-account"), "a key of a cloud account"),
    (
        Is::Named("application_default_credentials.json"),
        "a token of a cloud account",
    ),
    (Is::In(".aws", "credentials"), "keys of a cloud account"),
    (Is::In(".docker", "config.json"), "passwords of registries"),
    (Is::In(".kube", "config"), "a token of a cluster"),
    (
        Is::In(".cargo", "credentials.toml"),
        "a token that publishes packages",
    ),
    (
        Is::In(".cargo", "credentials"),
        "a token that publishes packages",
    ),
    (Is::In("gh", "hosts.yml"), "a token of a code host"),
    (
        Is::In(".claude", ".credentials.json"),
        "a token of a model provider",
    ),
    (Is::In(".codex", "auth.json"), "a token of a model provider"),
];

/// Ends of names that look like one of [`NAMES`] and hold what is public.
const PUBLIC: [&str; 6] = [
    ".pub",
    ".example",
    ".sample",
    ".template",
    ".dist",
    ".defaults",
];

/// A file that a push does not carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    /// Which.
    pub path: RelPath,
    /// What such a file holds.
    pub holds: &'static str,
}

impl std::fmt::Display for SecretName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.as_bytes().escape_ascii();
        write!(
            out,
            "{path} usually holds {}; exclude it, or say --allow-secret {path}",
            self.holds
        )
    }
}

/// Files and symlinks of a tree whose names say that they hold a secret, but those that were
/// allowed by their paths. What is excluded must be gone from the tree before.
pub fn secret_names(tree: &Directory, allowed: &BTreeSet<RelPath>) -> Vec<SecretName> {
    let mut found = Vec::new();
    tree.walk(&mut |path, entry| {
        if let Entry::File(_) | Entry::Link(_) = entry
            && let Some(holds) = what_it_holds(path)
            && !allowed.contains(path)
        {
            found.push(SecretName {
                path: path.clone(),
                holds,
            });
        }
    });
    found
}

fn what_it_holds(path: &RelPath) -> Option<&'static str> {
    let mut names = path.components().rev().map(<[u8]>::to_ascii_lowercase);
    let name = names.next()?;
    if PUBLIC.iter().any(|end| name.ends_with(end.as_bytes())) {
        return None;
    }
    let above = names.next().unwrap_or_default();
    let found = NAMES.iter().find(|(is, _)| match is {
        Is::Named(whole) => name == whole.as_bytes(),
        Is::Begins(start) => name.starts_with(start.as_bytes()),
        Is::Ends(end) => name.ends_with(end.as_bytes()),
        Is::In(directory, whole) => above == directory.as_bytes() && name == whole.as_bytes(),
    });
    found.map(|(_, holds)| *holds)
}

/// Whether a content holds one of the secrets, wherever it stands: also where it begins in one read
/// and ends in another. An empty secret is nowhere.
///
/// # Errors
/// When the content cannot be read to its end.
pub fn holds_secret<S: AsRef<[u8]>>(mut content: impl Read, secrets: &[S]) -> io::Result<bool> {
    let secrets: Vec<_> = secrets
        .iter()
        .map(AsRef::as_ref)
        .filter(|secret| !secret.is_empty())
        .map(memchr::memmem::Finder::new)
        .collect();
    let longest = secrets.iter().map(|finder| finder.needle().len()).max();
    let Some(longest) = longest else {
        return Ok(false);
    };
    // What is kept of the last read is one byte short of the longest secret.
    let mut buffer = vec![0; BUFFER.saturating_add(longest)];
    let mut kept = 0;
    loop {
        let Some(free) = buffer.get_mut(kept..) else {
            return Ok(false);
        };
        let read = match content.read(free) {
            Ok(0) => return Ok(false),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let filled = kept.saturating_add(read);
        let seen = buffer.get(..filled).unwrap_or_default();
        if secrets.iter().any(|finder| finder.find(seen).is_some()) {
            return Ok(true);
        }
        kept = filled.min(longest.saturating_sub(1));
        buffer.copy_within(filled.saturating_sub(kept)..filled, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes a read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(out.len());
            self.0.read(&mut out[..length])
        }
    }

    #[test]
    fn t14_a_secret_is_found_across_reads() {
        let secret = b"sk-test-0123456789".as_slice();
        for before in [0, 1, 7, BUFFER - 9, BUFFER + 3, 3 * BUFFER - 1] {
            let text = [&vec![b's'; before][..], secret, b"after"].concat();
            let other = b"elsewhere and much longer than the other".as_slice();
            assert!(
                holds_secret(&text[..], &[other, secret]).unwrap(),
                "{before}"
            );
            for step in [1, 5, 17] {
                let slow = Slow(&text, step);
                assert!(
                    before > 100 || holds_secret(slow, &[secret]).unwrap(),
                    "{before} {step}"
                );
            }
            let cut = &text[..before + secret.len() - 1];
            assert!(!holds_secret(cut, &[secret]).unwrap(), "{before}");
        }
        assert!(!holds_secret(&b"anything"[..], &[b""]).unwrap());
        assert!(!holds_secret::<&[u8]>(&b"anything"[..], &[]).unwrap());
    }

    #[test]
    fn t14_a_content_that_cannot_be_read_is_not_clean() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        assert!(holds_secret(Broken, &[b"x"]).is_err());
    }
}
