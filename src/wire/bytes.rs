//! Byte strings on the wire: arguments, names and paths are bytes, not text.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An argument, a variable's name or value, or a path: any bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteString(#[serde(with = "serde_bytes")] Vec<u8>);

impl ByteString {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the system takes it.
    pub fn into_os_string(self) -> OsString {
        OsString::from_vec(self.0)
    }

    /// As the system takes it.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// As a path.
    pub fn to_path_buf(&self) -> PathBuf {
        PathBuf::from(self.as_os_str())
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for ByteString {
    fn from(text: &T) -> Self {
        Self(text.as_ref().as_bytes().to_vec())
    }
}

/// Foreign bytes are never printed raw.
impl fmt::Debug for ByteString {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "b\"{}\"", self.0.escape_ascii())
    }
}
