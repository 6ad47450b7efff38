//! Names of sessions and requests: 128 random bits in an alphabet that is safe in a path, a socket
//! name, a container name and a log line.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// 26 characters of five bits hold 128 bits.
const RANDOM_CHARACTERS: usize = 26;

/// Why a text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {what}: it starts with '{prefix}' and goes on with 26 of a-z and 2-7")]
pub struct ParseIdError {
    text: String,
    what: &'static str,
    prefix: &'static str,
}

/// Names whose random bytes one system call fetches: a name is needed for every request.
const NAMES_AT_ONCE: usize = 32;

/// Random bytes that no name has used yet; each is given out once.
struct Pool {
    bytes: [u8; NAMES_AT_ONCE * RANDOM_CHARACTERS],
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const {
        RefCell::new(Pool {
            bytes: [0; NAMES_AT_ONCE * RANDOM_CHARACTERS],
            used: NAMES_AT_ONCE * RANDOM_CHARACTERS,
        })
    };
}

impl Pool {
    fn take(&mut self) -> Result<[u8; RANDOM_CHARACTERS], getrandom::Error> {
        if let Some(random) = self.unused() {
            return Ok(random);
        }
        getrandom::fill(&mut self.bytes)?;
        self.used = 0;
        self.unused().ok_or(getrandom::Error::UNEXPECTED)
    }

    fn unused(&mut self) -> Option<[u8; RANDOM_CHARACTERS]> {
        let (random, _) = self.bytes.get(self.used..)?.split_first_chunk()?;
        self.used = self.used.saturating_add(RANDOM_CHARACTERS);
        Some(*random)
    }
}

fn random_name(prefix: &str) -> Result<String, getrandom::Error> {
    let random = POOL.with_borrow_mut(Pool::take)?;
    let letters = random
        .iter()
        .filter_map(|byte| ALPHABET.get(usize::from(byte % 32)).copied());
    let mut name = String::with_capacity(prefix.len().saturating_add(RANDOM_CHARACTERS));
    name.push_str(prefix);
    name.extend(letters.map(char::from));
    Ok(name)
}

fn is_name(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == RANDOM_CHARACTERS && rest.bytes().all(|byte| ALPHABET.contains(&byte))
    })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// A fresh random name.
            ///
            /// # Errors
            /// When the operating system gives no random bytes.
            pub fn random() -> Result<Self, getrandom::Error> {
                random_name($prefix).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                if is_name(text, $prefix) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(ParseIdError { text: text.to_owned(), what: $what, prefix: $prefix })
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// One session: a cap, a ledger account, and the agents that ran under it.
    ///
    /// ```
    /// use labproxy::id::SessionId;
    ///
    /// let id = SessionId::random().unwrap();
    /// assert_eq!(id.as_str().parse::<SessionId>(), Ok(id));
    /// assert!("ses_../../etc/passwd".parse::<SessionId>().is_err());
    /// ```
    SessionId, "ses_", "a session id"
);
id!(
    /// One `POST /v1/messages` that a client made.
    RequestId, "req_", "a request id"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// No two names share random bytes, within one fetch of them and beyond it.
    #[test]
    fn no_name_is_given_out_twice() {
        let names: std::collections::HashSet<String> = (0..=NAMES_AT_ONCE * 3)
            .map(|_| random_name("req_").unwrap())
            .collect();
        assert_eq!(names.len(), NAMES_AT_ONCE * 3 + 1);
    }

    #[test]
    fn ids_read_back_and_nothing_else_does() {
        let id = SessionId::random().unwrap();
        assert_eq!(id.as_str().parse::<SessionId>().unwrap(), id);
        for bad in [
            "",
            "ses_",
            "ses_../../etc/passwd",
            "req_aaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }
}
