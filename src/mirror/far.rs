//! How a user names the other end of a mirror: a directory of this machine, or `HOST:PATH`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::escape::escape;
use crate::wire::bytes::ByteString;

/// The other end of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Far {
    /// A directory of this machine.
    Here(PathBuf),
    /// A directory of a host.
    Host {
        /// A name of the configuration, or what ssh takes.
        host: String,
        /// Absolute, or relative to the home there.
        path: ByteString,
    },
}

/// Why a text names no other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FarError {
    /// Nothing at all.
    #[error("it is empty; give a directory, or HOST:PATH")]
    Empty,
    /// `:PATH`.
    #[error(
        "there is no host before the ':'; write ./ before the path if it means a directory here"
    )]
    NoHost,
    /// `HOST:`.
    #[error("there is no path after the ':'; a whole home directory cannot be mirrored")]
    NoPath,
    /// A host that is no text.
    #[error("the host before the ':' is no text")]
    HostIsNoText,
}

impl Far {
    /// Reads it as `scp` does: a colon before the first slash ends a host's name, where an IPv6
    /// address stands in brackets; what begins with `/` or `.` is a directory here.
    ///
    /// # Errors
    /// When a part is missing.
    pub fn parse(text: &OsString) -> Result<Self, FarError> {
        let bytes = text.as_bytes();
        let here = || Ok(Self::Here(PathBuf::from(text)));
        match bytes {
            [] => return Err(FarError::Empty),
            [b'/' | b'.', ..] => return here(),
            _ => {}
        }
        let from = match bytes {
            [b'[', ..] => bytes.iter().position(|byte| *byte == b']').unwrap_or(0),
            _ => 0,
        };
        let after = bytes.get(from..).unwrap_or_default();
        let at = after.iter().position(|byte| matches!(byte, b':' | b'/'));
        let Some(colon) = at.filter(|at| after.get(*at) == Some(&b':')) else {
            return here();
        };
        let (host, rest) = bytes.split_at_checked(from + colon).unwrap_or_default();
        let path = rest.strip_prefix(b":").unwrap_or(rest);
        if host.is_empty() {
            return Err(FarError::NoHost);
        }
        if path.is_empty() {
            return Err(FarError::NoPath);
        }
        let host = std::str::from_utf8(host).map_err(|_| FarError::HostIsNoText)?;
        let path = OsString::from_vec(path.to_vec());
        Ok(Self::Host {
            host: host.to_owned(),
            path: ByteString::from(&path),
        })
    }

    /// The directory, when it is one of this machine.
    pub fn here(&self) -> Option<&Path> {
        match self {
            Self::Here(path) => Some(path),
            Self::Host { .. } => None,
        }
    }
}

/// As the user wrote it, without what could drive a terminal.
impl fmt::Display for Far {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(path) => out.write_str(&escape(path.as_os_str().as_bytes())),
            Self::Host { host, path } => {
                write!(
                    out,
                    "{}:{}",
                    escape(host.as_bytes()),
                    escape(path.as_bytes())
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_a_slash_ends_a_host() {
        let far = |text: &str| Far::parse(&OsString::from(text));
        let host = |host: &str, path: &str| {
            Ok(Far::Host {
                host: host.to_owned(),
                path: ByteString::from(path),
            })
        };
        let here = |path: &str| Ok(Far::Here(PathBuf::from(path)));
        assert_eq!(far("gpu1:/data/work"), host("gpu1", "/data/work"));
        assert_eq!(far("me@gpu1:work"), host("me@gpu1", "work"));
        assert_eq!(far("[::1]:work"), host("[::1]", "work"));
        assert_eq!(far("gpu1:a:b/c"), host("gpu1", "a:b/c"));
        for path in ["work", "/a:b", "./a:b", "../x", "a/b:c", "."] {
            assert_eq!(far(path), here(path), "{path}");
        }
        assert_eq!(far(""), Err(FarError::Empty));
        assert_eq!(far(":/x"), Err(FarError::NoHost));
        assert_eq!(far("gpu1:"), Err(FarError::NoPath));
    }

    #[test]
    fn m49_a_name_cannot_drive_a_terminal() {
        let far = Far::parse(&OsString::from("gpu\u{1b}[2J:a\rb")).unwrap();
        assert!(!far.to_string().contains(['\u{1b}', '\r']));
    }
}
