//! The program for the host: the one that `labproxy` carries, or one beside it for another
//! architecture, whose digest was compiled in.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::ssh::failure::LinkFailure;
use crate::wire::digits::Digits;

/// `labproxy-remote` for this machine's architecture, compressed with zstd.
pub const COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/labproxy-remote.zst"));
/// SHA-256 of the program, hexadecimal: what a host can compute with `sha256sum`.
pub const SHA256: &str = include_str!(concat!(env!("OUT_DIR"), "/labproxy-remote.sha256"));
/// Helpers for other architectures that were built together with this program, as
/// `aarch64=SHA256,…`; set in the environment of the build.
const SIDECARS: Option<&str> = option_env!("LABPROXY_REMOTE_SIDECARS");
/// A helper is smaller; a file that is not one is not read whole.
const SIDECAR_MAX: u64 = 16 << 20;

/// A program for the host whose content is known.
#[derive(Debug)]
pub struct Program {
    architecture: String,
    digest: String,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Carried,
    Read(Vec<u8>),
}

impl Program {
    /// The one that is carried.
    pub fn own() -> Self {
        Self {
            architecture: std::env::consts::ARCH.to_owned(),
            digest: SHA256.to_owned(),
            content: Content::Carried,
        }
    }

    /// The one for another architecture, from beside our own program.
    ///
    /// # Errors
    /// When there is none, or not the one that this program was built with.
    pub fn beside(architecture: &str) -> Result<Self, LinkFailure> {
        let own = std::env::current_exe().unwrap_or_default();
        let folder = own.parent().unwrap_or(Path::new("/"));
        sidecar(architecture, folder, SIDECARS.unwrap_or_default())
    }

    /// As `uname -m` says.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// SHA-256, hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The program itself.
    ///
    /// # Errors
    /// When what is carried cannot be unpacked.
    pub fn bytes(&self) -> Result<Vec<u8>, LinkFailure> {
        match &self.content {
            Content::Read(bytes) => Ok(bytes.clone()),
            Content::Carried => zstd::decode_all(COMPRESSED).map_err(|error| LinkFailure::Here {
                what: "the helper cannot be unpacked".to_owned(),
                why: error.to_string(),
            }),
        }
    }
}

/// `labproxy-remote-ARCHITECTURE` in a folder, when its digest is the one listed.
fn sidecar(architecture: &str, folder: &Path, listed: &str) -> Result<Program, LinkFailure> {
    let none = || LinkFailure::NoHelper {
        architecture: architecture.to_owned(),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if architecture.is_empty() || !architecture.bytes().all(plain) {
        return Err(none());
    }
    let path = folder.join(format!("labproxy-remote-{architecture}"));
    let digest = listed
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .find_map(|(name, digest)| (name == architecture).then_some(digest))
        .ok_or_else(none)?;
    let bytes = read(&path).ok_or_else(none)?;
    if Digits(&Sha256::digest(&bytes)).to_string() != digest {
        return Err(LinkFailure::HelperAltered { path });
    }
    Ok(Program {
        architecture: architecture.to_owned(),
        digest: digest.to_owned(),
        content: Content::Read(bytes),
    })
}

fn read(path: &PathBuf) -> Option<Vec<u8>> {
    let about = std::fs::metadata(path).ok()?;
    (about.is_file() && about.len() <= SIDECAR_MAX)
        .then(|| std::fs::read(path).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is carried is what the digest says.
    #[test]
    fn the_helper_that_is_carried_is_whole() {
        let program = Program::own();
        let bytes = program.bytes().unwrap();
        assert_eq!(Digits(&Sha256::digest(&bytes)).to_string(), SHA256);
        assert_eq!(program.digest(), SHA256);
    }

    /// T28: a helper beside the program is taken only with the content that it was built with.
    #[test]
    fn t28_an_altered_helper_beside_the_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labproxy-remote-aarch64");
        let listed = format!("riscv64=00,aarch64={}", Digits(&Sha256::digest(b"good")));
        let absent = sidecar("aarch64", folder.path(), &listed);
        assert!(matches!(absent, Err(LinkFailure::NoHelper { .. })));
        std::fs::write(&path, "good").unwrap();
        let program = sidecar("aarch64", folder.path(), &listed).unwrap();
        assert_eq!(program.bytes().unwrap(), b"good");
        std::fs::write(&path, "evil").unwrap();
        let altered = sidecar("aarch64", folder.path(), &listed);
        assert!(matches!(altered, Err(LinkFailure::HelperAltered { .. })));
        let unlisted = sidecar("aarch64", folder.path(), "");
        assert!(matches!(unlisted, Err(LinkFailure::NoHelper { .. })));
        let odd = sidecar("../aarch64", folder.path(), &listed);
        assert!(matches!(odd, Err(LinkFailure::NoHelper { .. })));
    }
}
