//! Words for a POSIX shell, which takes everything between single quotes as it is.

/// A word that means exactly these bytes, for a program to read.
pub fn quoted(word: impl AsRef<[u8]>) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word.as_ref() {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            other => quoted.push(*other),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// The same of a text.
pub fn quoted_text(text: &str) -> String {
    // What is put around and between is ASCII.
    String::from_utf8_lossy(&quoted(text)).into_owned()
}

/// The same for a person to copy: without quotes where none are needed.
pub fn shown(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-@%+,=:".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        quoted_text(text)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;
    use std::process::Command;

    use super::*;

    /// A shell gives back what was quoted, byte for byte.
    #[test]
    fn a_shell_reads_what_was_quoted() {
        for word in [&b""[..], b"it's", b"'", b"a b\n$(x)`y`\\", b"\xff!*~"] {
            let script = [b"printf %s ".to_vec(), quoted(word)].concat();
            let script = std::ffi::OsString::from_vec(script);
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(output.stdout, word);
        }
        assert_eq!(shown("/a/b-c"), "/a/b-c");
        assert_eq!(shown(""), "''");
        assert_eq!(shown("a b'c"), "'a b'\\''c'");
    }
}
