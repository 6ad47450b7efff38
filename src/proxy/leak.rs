//! Keeps the credential from coming back: a rolling matcher over a response body.
//!
//! It holds back only bytes at the end of a chunk that could be the beginning of the credential,
//! and gives up before the whole of it has been passed on.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::memmem;

use crate::secret::Credential;

/// The body held the whole credential; what came before it has been passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer quotes the credential")]
pub(crate) struct Leak;

/// Watches one body. The pattern is at least one byte long.
pub(crate) struct LeakGuard {
    credential: Arc<Credential>,
    /// How many bytes of the credential the body ended with so far; they are not passed on yet.
    held: usize,
}

impl LeakGuard {
    pub(crate) fn new(credential: Arc<Credential>) -> Self {
        Self {
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
            if memmem::find(&chunk, secret).is_some() {
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
        if memmem::find(&joined, secret).is_some() {
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
    memmem::find(text, credential.expose()).is_some()
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
