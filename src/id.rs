//! Names of sessions and requests: 128 random bits in an alphabet that is safe in a path, a socket
//! name, a container name and a log line.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// 26 characters of five bits hold 128 bits.
const RANDOM_CHARACTERS: usize = 26;
/// `ses_` and `req_`.
const PREFIX_CHARACTERS: usize = 4;

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

/// 128 random bits in letters and digits.
fn letters() -> Result<[u8; RANDOM_CHARACTERS], getrandom::Error> {
    let random = POOL.with_borrow_mut(Pool::take)?;
    let letter = |byte: u8| ALPHABET.get(usize::from(byte % 32)).copied();
    Ok(random.map(|byte| letter(byte).unwrap_or_default()))
}

/// A name of that beginning and 128 random bits in letters and digits.
pub(crate) fn random_name(prefix: &str) -> Result<String, getrandom::Error> {
    let letters = letters()?.map(char::from);
    Ok(prefix.chars().chain(letters).collect())
}

/// A prefix of four characters and what is random. In place, since a request's name is copied
/// wherever the request is spoken of.
type Name = [u8; PREFIX_CHARACTERS + RANDOM_CHARACTERS];

fn random_in_place(prefix: &str) -> Result<Name, getrandom::Error> {
    let mut name = [0; PREFIX_CHARACTERS + RANDOM_CHARACTERS];
    for (place, letter) in name.iter_mut().zip(prefix.bytes().chain(letters()?)) {
        *place = letter;
    }
    Ok(name)
}

fn name_of(text: &str, prefix: &str) -> Option<Name> {
    let random = text.strip_prefix(prefix)?;
    let is_name = random.bytes().all(|byte| ALPHABET.contains(&byte));
    text.as_bytes().try_into().ok().filter(|_| is_name)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Name);

        impl $name {
            /// A fresh random name.
            ///
            /// # Errors
            /// When the operating system gives no random bytes.
            pub fn random() -> Result<Self, getrandom::Error> {
                random_in_place($prefix).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                // ASCII only, by the two ways in which a name is made.
                str::from_utf8(&self.0).unwrap_or_default()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.as_str()).finish()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                name_of(text, $prefix).map(Self).ok_or_else(|| ParseIdError {
                    text: text.to_owned(),
                    what: $what,
                    prefix: $prefix,
                })
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
