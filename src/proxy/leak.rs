//! Keeps the credential from coming back: a rolling matcher over a response body.
//!
//! It holds back only bytes at the end of a chunk that could be the beginning of the credential,
//! and gives up before the whole of it has been passed on.

use std::sync::Arc;

use crate::secret::Credential;
use bytes::{Bytes, BytesMut};

/// The body held the whole credential; what came before it has been passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer quotes the credential")]
pub(crate) struct Leak;

/// Watches one body. The pattern is at least one byte long.
pub(crate) struct LeakGuard {
    credential: Arc<Credential>,
    probe: Probe,
    /// How many bytes of the credential the body ended with so far; they are not passed on yet.
    held: usize,
}

impl LeakGuard {
    pub(crate) fn new(credential: Arc<Credential>) -> Self {
        Self {
            probe: Probe::of(credential.expose()),
            credential,
            held: 0,
        }
    }

    /// Takes the next chunk and gives what may be passed on, which may be empty.
    ///
    /// # Errors
    /// When the chunk completes the credential.
    pub(crate) fn pass(&mut self, chunk: Bytes) -> Result<Bytes, Leak> {
        let secret = self.credential.expose();
        if self.held == 0 {
            if self.probe.finds(secret, &chunk) {
                return Err(Leak);
            }
            self.held = prefix_at_end(&chunk, secret);
            if self.held == 0 {
                return Ok(chunk);
            }
            let passed = chunk.len().saturating_sub(self.held);
            return Ok(chunk.slice(..passed));
        }
        let mut joined = BytesMut::with_capacity(self.held.saturating_add(chunk.len()));
        joined.extend_from_slice(secret.get(..self.held).unwrap_or_default());
        joined.extend_from_slice(&chunk);
        if self.probe.finds(secret, &joined) {
            return Err(Leak);
        }
        self.held = prefix_at_end(&joined, secret);
        joined.truncate(joined.len().saturating_sub(self.held));
        Ok(joined.freeze())
    }

    /// The end of the body: what was held back turned out to be harmless.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let held = std::mem::take(&mut self.held);
        let bytes = self.credential.expose().get(..held)?;
        (!bytes.is_empty()).then(|| Bytes::copy_from_slice(bytes))
    }
}

/// Whether `text`, such as a header's value, holds the whole credential.
pub(crate) fn quotes(text: &[u8], credential: &Credential) -> bool {
    let secret = credential.expose();
    secret.len() <= text.len() && Probe::of(secret).finds(secret, text)
}

/// One byte of a secret to look for first: the one that texts have least of. A general substring
/// search would be prepared anew for each chunk, which costs more than looking through it.
#[derive(Clone, Copy)]
struct Probe {
    byte: u8,
    at: usize,
}

impl Probe {
    fn of(secret: &[u8]) -> Self {
        let frequency = |byte: u8| match byte {
            b'J' | b'Q' | b'X' | b'Z' => 0,
            b'A'..=b'Z' => 1,
            b'0'..=b'9' => 2,
            b'a'..=b'z' => 4,
            _ => 3,
        };
        let rarest = secret.iter().enumerate();
        let (at, byte) = rarest
            .min_by_key(|(_, byte)| frequency(**byte))
            .map_or((0, 0), |(at, byte)| (at, *byte));
        Self { byte, at }
    }

    /// Whether `text` holds the whole of the secret that this is the probe of.
    fn finds(self, secret: &[u8], text: &[u8]) -> bool {
        let Some(last) = text.len().checked_sub(secret.len()) else {
            return false;
        };
        // Where the probe can stand if the secret begins at 0, 1, … `last`.
        let places = text.get(self.at..=self.at.saturating_add(last));
        memchr::memchr_iter(self.byte, places.unwrap_or_default()).any(|start| {
            text.get(start..)
                .is_some_and(|text| text.starts_with(secret))
        })
    }
}

/// Length of the longest proper prefix of `secret` that `text` ends with.
fn prefix_at_end(text: &[u8], secret: &[u8]) -> usize {
    let Some((first, _)) = secret.split_first() else {
        return 0;
    };
    let longest = secret.len().saturating_sub(1).min(text.len());
    let tail = text
        .get(text.len().saturating_sub(longest)..)
        .unwrap_or_default();
    // The first position from the left is the longest match.
    memchr::memchr_iter(*first, tail)
        .filter_map(|at| tail.get(at..))
        .find(|end| secret.starts_with(end))
        .map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;
    use crate::secret::CredentialKind;

    fn guard(secret: &[u8]) -> LeakGuard {
        let bytes = Zeroizing::new(secret.to_vec());
        LeakGuard::new(Arc::new(
            Credential::new(CredentialKind::ApiKey, bytes).unwrap(),
        ))
    }

    #[test]
    fn t18_a_credential_split_across_chunks_never_passes_whole() {
        for cut in 1..6 {
            let mut guard = guard(b"aabaac");
            let body = b"xxaabaabaacyy";
            let mut seen = Vec::new();
            let leaked =
                body.chunks(cut)
                    .any(|chunk| match guard.pass(Bytes::copy_from_slice(chunk)) {
                        Ok(passed) => {
                            seen.extend_from_slice(&passed);
                            false
                        }
                        Err(Leak) => true,
                    });
            assert!(leaked, "chunks of {cut}");
            assert!(b"xxaab".starts_with(&seen[..]), "chunks of {cut}: {seen:?}");
        }
    }

    #[test]
    fn only_a_possible_beginning_is_held_back() {
        let mut guard = guard(b"sk-ant-1");
        assert_eq!(guard.pass(Bytes::from_static(b"desk")).unwrap(), "de");
        assert_eq!(
            guard.pass(Bytes::from_static(b"top\n\n")).unwrap(),
            "sktop\n\n"
        );
        assert_eq!(guard.pass(Bytes::from_static(b"sk-a")).unwrap(), "");
        assert_eq!(guard.finish().unwrap(), "sk-a");
        assert_eq!(guard.finish(), None);
    }

    proptest! {
        #[test]
        fn bodies_without_the_credential_pass_byte_for_byte(
            body in "[ab]{0,60}", cuts in prop::collection::vec(1usize..7, 60)
        ) {
            prop_assume!(!body.contains("abaab"));
            let mut guard = guard(b"abaab");
            let mut rest = body.as_bytes();
            let mut seen = Vec::new();
            for cut in cuts {
                let (chunk, after) = rest.split_at(cut.min(rest.len()));
                rest = after;
                seen.extend_from_slice(&guard.pass(Bytes::copy_from_slice(chunk)).unwrap());
            }
            seen.extend_from_slice(&guard.finish().unwrap_or_default());
            prop_assert_eq!(&seen[..], &body.as_bytes()[..body.len() - rest.len()]);
        }
    }
}
