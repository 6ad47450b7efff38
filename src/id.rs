//! Names of sessions and requests: 128 random bits in an alphabet that is safe in a path, a socket
//! name, a container name and a log line.

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

fn random_name(prefix: &str) -> Result<String, getrandom::Error> {
    let mut random = [0u8; RANDOM_CHARACTERS];
    getrandom::fill(&mut random)?;
    let letters = random
        .iter()
        .filter_map(|byte| ALPHABET.get(usize::from(byte % 32)).copied());
    Ok(prefix.chars().chain(letters.map(char::from)).collect())
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
    SessionId, "ses_", "a session id"
);
id!(
    /// One `POST /v1/messages` that a client made.
    RequestId, "req_", "a request id"
);

#[cfg(test)]
mod tests {
    use super::*;

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
