//! What rsync is told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use super::shell::SHELL_COMMAND;
use super::way::SILENCE;
use crate::tree::path::RelPath;

/// What holds for each run. Nothing of it deletes, follows a link, or makes anything but files and
/// the directories above them.
const ALWAYS: [&str; 12] = [
    // Exactly the files of a list, each behind a NUL: names are bytes.
    "--files-from=-",
    "--from0",
    // Directories are made as they are needed, and not as the sender says.
    "--no-implied-dirs",
    // Options and names go over the channel, where no shell reads them.
    "--secluded-args",
    // Every file is sent, also when its time and size are those of another version.
    "--ignore-times",
    "--perms",
    "--chmod=D0700,F0600",
    "--sparse",
    "--no-inc-recursive",
    // For the number of bytes that were sent.
    "--stats",
    "--no-human-readable",
    // What passes is counted.
    "--no-compress",
];

/// Where the host stands in its arguments: its name means nothing, there is one at the other end.
pub(super) const HOST: &str = "x";

/// All arguments for moving the listed files from one directory into another.
pub(super) fn arguments(from: Place<'_>, into: Place<'_>, basis: Option<&Path>) -> Vec<OsString> {
    let mut all: Vec<OsString> = std::iter::once("rsync")
        .chain(ALWAYS)
        .map(OsString::from)
        .collect();
    all.push(format!("--timeout={}", SILENCE.as_secs()).into());
    if let Some(basis) = basis {
        let mut option = OsString::from("--copy-dest=");
        option.push(basis);
        all.push(option);
    }
    for place in [from, into] {
        if let Place::Host(shell) = place {
            all.extend(["-e".into(), shell.to_owned()]);
        }
    }
    all.extend([from, into].map(Place::argument));
    all
}

/// A directory that rsync reads or writes.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// Its working directory.
    Here,
    /// Another directory of this machine.
    Local(&'a Path),
    /// The working directory of the rsync that this command, as rsync reads it, leads to.
    Host(&'a OsStr),
}

impl Place<'_> {
    fn argument(self) -> OsString {
        match self {
            Self::Here => "./".into(),
            Self::Local(path) => {
                let mut path = path.as_os_str().to_owned();
                path.push("/");
                path
            }
            Self::Host(_) => format!("{HOST}:./").into(),
        }
    }
}

/// The command that stands for ssh: it leads to a socket of this process.
pub(super) fn shell(own: &Path, socket: &Path) -> OsString {
    let words = [
        quoted(own.as_os_str()),
        SHELL_COMMAND.into(),
        "--".into(),
        quoted(socket.as_os_str()),
    ];
    words.join(OsStr::new(" "))
}

/// A word as rsync reads it in a command: in quotes, and a quote inside of them twice.
fn quoted(word: &OsStr) -> OsString {
    let mut bytes = vec![b'\''];
    for byte in word.as_bytes() {
        bytes.push(*byte);
        if *byte == b'\'' {
            bytes.push(b'\'');
        }
    }
    bytes.push(b'\'');
    OsString::from_vec(bytes)
}

/// The list of files, as `--files-from` reads it. `./` keeps a name from being taken for a comment.
pub(super) fn list<'a>(files: impl Iterator<Item = &'a RelPath>) -> Vec<u8> {
    let mut list = Vec::new();
    for path in files {
        list.extend_from_slice(b"./");
        list.extend_from_slice(path.as_bytes());
        list.push(0);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing that deletes or goes on over an error is ever said, and nothing that follows links,
    /// makes them, or makes devices.
    #[test]
    fn m35_rsync_is_told_nothing_that_destroys() {
        let shell = shell(Path::new("/a b/lab'proxy"), Path::new("/run/s"));
        assert_eq!(shell, "'/a b/lab''proxy' __rsync-shell -- '/run/s'");
        let local = Place::Local(Path::new("/w"));
        let basis = Some(Path::new("/far"));
        let runs = [
            arguments(Place::Host(&shell), Place::Here, None),
            arguments(Place::Here, Place::Host(&shell), basis),
            arguments(local, Place::Here, None),
            arguments(Place::Here, local, basis),
        ];
        for run in &runs {
            for word in run {
                let word = word.to_str().unwrap();
                let name = word.split('=').next().unwrap();
                let banned = ["del", "remove", "force", "ignore-errors", "link", "device"];
                assert!(!banned.iter().any(|bad| name.contains(bad)), "{word}");
                let banned = ["--archive", "--recursive", "--inplace", "--trust-sender"];
                assert!(!banned.contains(&name), "{word}");
                let is_short = name.starts_with('-') && !name.starts_with("--");
                assert!(!is_short || name == "-e", "{word}");
            }
            assert!(run.contains(&"--files-from=-".into()));
            assert!(run.contains(&"--timeout=60".into()));
        }
        let ends = |run: &[OsString]| run[run.len() - 2..].to_vec();
        assert_eq!(ends(&runs[0]), ["x:./", "./"]);
        assert_eq!(ends(&runs[1]), ["./", "x:./"]);
        assert_eq!(ends(&runs[2]), ["/w/", "./"]);
        assert_eq!(ends(&runs[3]), ["./", "/w/"]);
        assert!(runs[1].contains(&"--copy-dest=/far".into()));
    }

    #[test]
    fn m48_a_list_has_any_name() {
        let paths = [&b"#a"[..], b"d/-x\n\xff", b";"].map(|path| RelPath::new(path).unwrap());
        assert_eq!(list(paths.iter()), b"./#a\0./d/-x\n\xff\0./;\0");
    }
}
