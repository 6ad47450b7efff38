//! Keys that ssh would have used but cannot read: encrypted ones, where nobody can be asked.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::said::Line;

/// Private keys have a few KiB.
const KEY_MAX: u64 = 64 * 1024;
/// What an OpenSSH key begins with; its cipher's name follows.
const OPENSSH_MAGIC: &[u8] = b"openssh-key-v1\0";

/// The first key file that ssh tried and that is encrypted.
pub(super) fn encrypted(lines: &[Line]) -> Option<PathBuf> {
    let tried = lines.iter().filter_map(|line| {
        let text = [
            "Server accepts key: ",
            "Offering public key: ",
            "Trying private key: ",
        ]
        .iter()
        .find_map(|begin| line.text.strip_prefix(begin))?;
        // After the path stand the kind of key, its fingerprint and where it is from.
        let path = match text.find(" SHA256:") {
            Some(at) => text.get(..at)?.rsplit_once(' ')?.0,
            None => text,
        };
        (!text.ends_with(" agent")).then(|| PathBuf::from(path))
    });
    tried.into_iter().find(|path| is_encrypted(path))
}

/// Whether a file holds an encrypted private key.
fn is_encrypted(path: &Path) -> bool {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(KEY_MAX).read_to_string(&mut text));
    if read.is_err() {
        return false;
    }
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return true;
    }
    let mut lines = text.lines().map(str::trim);
    if lines.next() != Some("-----BEGIN OPENSSH PRIVATE KEY-----") {
        return false;
    }
    // The cipher's name is in the first line of the key.
    let first = lines.next().unwrap_or_default();
    let whole = first.get(..first.len() / 4 * 4).unwrap_or_default();
    let Ok(bytes) = STANDARD.decode(whole) else {
        return false;
    };
    bytes
        .strip_prefix(OPENSSH_MAGIC)
        .and_then(|rest| rest.split_first_chunk::<4>())
        .is_some_and(|(_, cipher)| !cipher.starts_with(b"none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_is_told_from_a_plain_one() {
        let directory = tempfile::tempdir().unwrap();
        let key = |cipher: &str| {
            let mut bytes = OPENSSH_MAGIC.to_vec();
            bytes.extend([0, 0, 0, u8::try_from(cipher.len()).unwrap()]);
            bytes.extend(cipher.as_bytes());
            bytes.extend([0; 30]);
            let text = STANDARD.encode(bytes);
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{text}\n")
        };
        let cases = [
            (key("none"), false),
            (key("aes256-ctr"), true),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\n".into(), true),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n".into(),
                true,
            ),
            ("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n".into(), false),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\n*\n".into(), false),
            (String::new(), false),
        ];
        let path = directory.path().join("a key");
        for (text, wanted) in cases {
            std::fs::write(&path, &text).unwrap();
            assert_eq!(is_encrypted(&path), wanted, "{text}");
            let line = format!(
                "Server accepts key: {} ED25519 SHA256:x explicit",
                path.display()
            );
            let found = encrypted(&[Line::parse(&line)]);
            assert_eq!(found.is_some(), wanted);
            let agent = format!(
                "Offering public key: {} ED25519 SHA256:x agent",
                path.display()
            );
            assert_eq!(encrypted(&[Line::parse(&agent)]), None);
        }
    }
}
