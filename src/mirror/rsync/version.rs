//! Which version an rsync is, and whether it is one that may be used.

use std::fmt;

use super::{RsyncError, Where};

/// Longest first line that is repeated, characters.
const LINE_MAX: usize = 100;

/// Three numbers, of which `before` is the release that is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
    /// False for `3.5.0pre1`, which comes before 3.5.0.
    released: bool,
}

impl Version {
    /// The first release in which a hostile other end can no longer write beside the destination,
    /// read other files of this machine, or switch off time-outs: 45 mends in 3.4.0, 3.4.3 and
    /// 3.5.0.
    pub(super) const LOWEST: Self = Self {
        major: 3,
        minor: 5,
        patch: 0,
        released: true,
    };

    /// Reads what `rsync --version` prints: `rsync  version 3.5.0  protocol version 32` first.
    fn read(printed: &str) -> Option<(Self, &str)> {
        let mut words = printed.lines().next()?.split_whitespace();
        if (words.next(), words.next()) != (Some("rsync"), Some("version")) {
            return None;
        }
        let word = words.next()?;
        let text = word.strip_prefix('v').unwrap_or(word);
        let mut parts = text.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let last = parts.next()?;
        let digits = last.find(|letter: char| !letter.is_ascii_digit());
        let (patch, rest) = last.split_at_checked(digits.unwrap_or(last.len()))?;
        let version = Self {
            major,
            minor,
            patch: patch.parse().ok()?,
            released: !["pre", "dev", "-pre", "-dev"]
                .iter()
                .any(|word| rest.starts_with(word)),
        };
        Some((version, word))
    }

    /// Whether what an rsync printed is a version that may be used.
    pub(super) fn check(printed: &str, at: Where) -> Result<(), RsyncError> {
        match Self::read(printed) {
            Some((version, _)) if version >= Self::LOWEST => Ok(()),
            Some((_, found)) => Err(RsyncError::TooOld {
                at,
                found: found.chars().take(LINE_MAX).collect(),
            }),
            None => Err(RsyncError::NoVersion {
                at,
                said: printed
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(LINE_MAX)
                    .collect(),
            }),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The real first lines of several builds: numbers are compared as numbers, a release that is
    /// still to come is none, and another program's line is no version.
    #[test]
    fn only_a_version_that_is_known_to_be_new_is_taken() {
        let line = |version: &str| format!("rsync  version {version}  protocol version 32\nmore");
        for good in ["3.5.0", "v3.5.0", "3.5.2", "3.10.0", "4.0.0", "3.5.0-1+b2"] {
            Version::check(&line(good), Where::Here).unwrap();
        }
        for old in ["3.2.7", "v3.2.3", "3.4.3", "2.6.9", "3.5.0pre1", "3.5.0dev"] {
            let refused = Version::check(&line(old), Where::There).unwrap_err();
            let text = refused.to_string();
            assert!(
                text.contains(old) && text.contains("3.5.0 or newer") && text.contains("other end"),
                "{text}"
            );
        }
        for none in [
            "",
            "\n",
            "Welcome!\nrsync  version 3.5.0  protocol version 32",
            "openrsync: protocol version 29, rsync version 2.6.9 compatible",
            "rsync  version",
            "rsync  version three",
            "rsync  version 3.5",
            "rsync  version 99999999999.1.1",
        ] {
            let refused = Version::check(none, Where::Here).unwrap_err();
            assert!(matches!(refused, RsyncError::NoVersion { .. }), "{none}");
        }
    }
}
