//! Secrets: the provider's credential and a launch's placeholder.
//!
//! Neither type has `Debug`, `Display`, `Clone`, `PartialEq` or `Serialize`, and both are wiped when
//! they are dropped. Each has one exit, named after what it is for.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::wire::digits::Digits;

/// The header that carries an API key.
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What kind of credential the provider gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    /// An API key, sent as `x-api-key`.
    ApiKey,
    /// An OAuth access token, sent as `Authorization: Bearer`, with the OAuth beta.
    Oauth,
}

/// Why bytes cannot be a credential. Never holds the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredential {
    /// There are none.
    #[error("it is empty")]
    Empty,
    /// It holds a byte that no header may carry, such as a newline inside.
    #[error("it holds a byte that an HTTP header cannot carry")]
    NotAHeader,
}

/// The provider's credential: the only thing here that is worth stealing.
pub struct Credential {
    kind: CredentialKind,
    bytes: Zeroizing<Vec<u8>>,
}

impl Credential {
    /// Takes the bytes over, without the white space around them.
    ///
    /// # Errors
    /// When nothing is left, or a header could not carry what is left.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the untrimmed copy is wiped here, so that its owner cannot keep it"
    )]
    pub fn new(kind: CredentialKind, bytes: Zeroizing<Vec<u8>>) -> Result<Self, BadCredential> {
        let trimmed = Zeroizing::new(bytes.trim_ascii().to_vec());
        if trimmed.is_empty() {
            return Err(BadCredential::Empty);
        }
        if !trimmed.iter().all(|byte| (0x21..=0x7e).contains(byte)) {
            return Err(BadCredential::NotAHeader);
        }
        Ok(Self {
            kind,
            bytes: trimmed,
        })
    }

    /// Which kind it is.
    pub fn kind(&self) -> CredentialKind {
        self.kind
    }

    /// Sets the one header that carries the credential, marked sensitive.
    pub fn apply(&self, headers: &mut HeaderMap) {
        let (name, value) = match self.kind {
            CredentialKind::ApiKey => (X_API_KEY, HeaderValue::from_bytes(&self.bytes)),
            CredentialKind::Oauth => {
                let token = Zeroizing::new([b"Bearer ", self.bytes.as_slice()].concat());
                (AUTHORIZATION, HeaderValue::from_bytes(&token))
            }
        };
        // `new` admitted visible ASCII only, which every header value may hold.
        if let Ok(mut value) = value {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }

    /// The bytes, for finding them where they must not be and for handing them to a detached
    /// session over a pipe.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }
}

/// The worthless key that one launch's clients show instead of the real one.
pub struct Placeholder {
    text: Zeroizing<String>,
}

impl Placeholder {
    /// 256 random bits, as `lp-` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        use std::fmt::Write as _;

        let mut random = Zeroizing::new([0u8; 32]);
        getrandom::fill(random.as_mut())?;
        let mut text = Zeroizing::new(String::with_capacity(3 + 64));
        text.push_str("lp-");
        // Writing to a string cannot fail.
        let _written = write!(text, "{}", Digits(random.as_ref()));
        Ok(Self { text })
    }

    /// Whether a client showed this placeholder; takes the same time whatever it showed.
    pub fn matches(&self, shown: &[u8]) -> bool {
        self.text.as_bytes().ct_eq(shown).into()
    }

    /// The text, for the agent's environment and settings file.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a type implements a trait, as a constant: the inherent constant wins over the
    /// trait's where its bound holds.
    macro_rules! implements {
        ($type:ty, $($bound:tt)+) => {{
            #[allow(dead_code, reason = "unused where the bound holds")]
            trait Otherwise {
                const HOLDS: bool = false;
            }
            struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
            impl<T: ?Sized> Otherwise for Probe<T> {}
            #[allow(dead_code, reason = "unused where it does not")]
            impl<T: ?Sized + $($bound)+> Probe<T> {
                const HOLDS: bool = true;
            }
            Probe::<$type>::HOLDS
        }};
    }

    macro_rules! tells_nothing {
        ($($type:ty),+) => {$(
            const _: () = {
                assert!(!implements!($type, std::fmt::Debug));
                assert!(!implements!($type, std::fmt::Display));
                assert!(!implements!($type, Clone));
                assert!(!implements!($type, PartialEq));
                assert!(!implements!($type, serde::Serialize));
                assert!(!implements!($type, serde::de::DeserializeOwned));
            };
        )+};
    }

    // This module does not compile when somebody derives one of these for a secret.
    tells_nothing!(Credential, Placeholder);
    const _: () = assert!(implements!(CredentialKind, std::fmt::Debug));
    const _: () = assert!(implements!(CredentialKind, Clone));

    /// Only what a header can carry is a credential, and the white space around it is none of it.
    #[test]
    fn a_credential_is_what_a_header_can_carry() {
        let new = |text: &str| {
            Credential::new(
                CredentialKind::Oauth,
                Zeroizing::new(text.as_bytes().to_vec()),
            )
        };
        assert_eq!(new(" \n").err(), Some(BadCredential::Empty));
        assert_eq!(new("a\nb").err(), Some(BadCredential::NotAHeader));
        let mut headers = HeaderMap::new();
        new(" key\n").unwrap().apply(&mut headers);
        let value = headers.get(AUTHORIZATION).unwrap();
        assert_eq!(value, "Bearer key");
        assert!(value.is_sensitive());
    }
}
