//! The file that an SDK is given as its CLI: a few lines of `sh` that answer `-v` themselves, so that a
//! probe costs neither a process on the host nor a connection.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::SHIM_COMMAND;
use crate::id::SessionId;
use crate::plain_file::{self, Links};
use crate::quote::quoted;
use crate::report::Failure;

/// How a file of ours begins.
const MARK: &str = "#!/bin/sh\n# labproxy: the agent's CLI of session ";
/// Endings that make the TypeScript SDK run a file with a JavaScript engine.
const SCRIPT_ENDINGS: [&str; 8] = ["js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx"];
/// A longer answer to `--version` is none.
const VERSION_MAX: usize = 100;

/// Where a shim will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimFile(PathBuf);

/// A shim that is there, until it is dropped.
#[derive(Debug)]
pub struct Script {
    path: PathBuf,
    mark: String,
}

impl ShimFile {
    /// Checks that the file can be made: its directory is there, and nothing of somebody else's, or
    /// of a session that runs, is in its place.
    ///
    /// # Errors
    /// Why it cannot be the shim.
    pub fn check(path: &Path) -> Result<Self, Failure> {
        let usage = |why: &str| Failure::usage(format!("--shim {}: {why}", path.display()));
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        if SCRIPT_ENDINGS.contains(&ending) {
            return Err(usage(&format!(
                "an SDK would run a file that ends in .{ending} as JavaScript"
            ))
            .hint("give it a name without an ending"));
        }
        let name = path.file_name().ok_or_else(|| usage("it names no file"))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            Some(_) | None => Path::new("."),
        };
        let folder = fs::canonicalize(folder)
            .map_err(|error| usage("its directory cannot be used").caused_by(&error))?;
        let file = Self(folder.join(name));
        file.refuse_foreign()?;
        Ok(file)
    }

    /// Refuses when something is there that no ended session of ours left.
    fn refuse_foreign(&self) -> Result<(), Failure> {
        let shown = self.0.display();
        match fs::symlink_metadata(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(
                    Failure::usage(format!("--shim {shown} cannot be looked at")).caused_by(&error),
                );
            }
            Ok(meta) => {
                let own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
                if !own || !begins_with(&self.0, MARK.as_bytes()) {
                    return Err(Failure::usage(format!(
                        "--shim {shown} is there already, and is not labproxy's"
                    ))
                    .hint("name another file, or remove it"));
                }
            }
        }
        match socket_of(&self.0) {
            Some(socket) if UnixStream::connect(&socket).is_ok() => Err(Failure::usage(format!(
                "--shim {shown} belongs to a session that runs"
            ))
            .hint("name another file, or end that session")),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes the script, in place of one that an ended session left.
    ///
    /// # Errors
    /// When it cannot be written, or the version is no version.
    pub fn write(
        &self,
        session: &SessionId,
        labproxy: &Path,
        socket: &Path,
        version: &str,
    ) -> Result<Script, Failure> {
        self.refuse_foreign()?;
        let mark = format!("{MARK}{session}\n");
        let text = [
            mark.as_bytes(),
            b"# It goes away when the session ends.\n",
            b"case \"$#:${1-}\" in\n1:-v|1:-V|1:--version) echo ",
            &quoted(version),
            b"; exit 0 ;;\nesac\n",
            b"exec ",
            &quoted(labproxy.as_os_str().as_bytes()),
            b" ",
            SHIM_COMMAND.as_bytes(),
            b" -- ",
            &quoted(socket.as_os_str().as_bytes()),
            b" \"$@\"\n",
        ]
        .concat();
        let failed = |error: std::io::Error| {
            Failure::because(
                format!("the shim {} cannot be written", self.0.display()),
                &error,
            )
        };
        match fs::remove_file(&self.0) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o700)
            .open(&self.0)
            .map_err(failed)?;
        let script = Script {
            path: self.0.clone(),
            mark,
        };
        file.write_all(&text).map_err(failed)?;
        Ok(script)
    }
}

impl Script {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Only its own file goes away, not one that took its place.
impl Drop for Script {
    fn drop(&mut self) {
        if begins_with(&self.path, self.mark.as_bytes()) {
            let _gone_meanwhile = fs::remove_file(&self.path);
        }
    }
}

/// The line that a CLI answered to `--version`: short and printable.
///
/// # Errors
/// What is wrong with it.
pub fn version_line(answer: &[u8]) -> Result<String, Failure> {
    let line = answer
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.trim_ascii();
    let is_printable = line.iter().all(|byte| matches!(byte, b' '..=b'~'));
    match std::str::from_utf8(line) {
        Ok(text) if is_printable && !text.is_empty() && text.len() <= VERSION_MAX => {
            Ok(text.to_owned())
        }
        Ok(_) | Err(_) => Err(Failure::failed(format!(
            "what the agent on the host answers to --version is no version: '{}'",
            crate::escape::escape(line)
        ))),
    }
}

fn begins_with(path: &Path, mark: &[u8]) -> bool {
    let mut start = vec![0; mark.len()];
    // A pipe in the file's place must not be waited for.
    let opened = plain_file::open(path, Links::Refuse);
    opened.is_ok_and(|(mut file, _)| file.read_exact(&mut start).is_ok() && start == mark)
}

/// The socket that a shim of ours speaks to.
fn socket_of(path: &Path) -> Option<PathBuf> {
    let text = fs::read(path).ok()?;
    let last = text
        .trim_ascii_end()
        .split(|byte| *byte == b'\n')
        .next_back()?;
    let mark = format!(" {SHIM_COMMAND} -- '");
    let at = memchr::memmem::rfind(last, mark.as_bytes())?;
    let rest = last.get(at.saturating_add(mark.len())..)?;
    let end = memchr::memmem::rfind(rest, b"' \"$@\"")?;
    let socket = String::from_utf8(rest.get(..end)?.to_vec()).ok()?;
    Some(PathBuf::from(socket.replace("'\\''", "'")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    const VERSION: &str = "2.1.332 (Claude Code)";

    fn session() -> SessionId {
        SessionId::random().unwrap()
    }

    fn run(path: &Path, arguments: &[&str]) -> String {
        let output = Command::new(path).args(arguments).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// The version is answered by the script alone; anything else goes on, word for word.
    #[test]
    fn tu04_a_version_is_answered_without_a_process_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let words = folder.path().join("it's a program");
        fs::write(&words, "#!/bin/sh\nprintf '<%s>' \"$@\"\n").unwrap();
        fs::set_permissions(&words, fs::Permissions::from_mode(0o700)).unwrap();
        let socket = folder.path().join("a 'b'.sock");
        let file = ShimFile::check(&folder.path().join("claude")).unwrap();
        let script = file.write(&session(), &words, &socket, VERSION).unwrap();
        for option in ["-v", "-V", "--version"] {
            assert_eq!(run(script.path(), &[option]), format!("{VERSION}\n"));
        }
        let carried = |words: &str| format!("<{SHIM_COMMAND}><--><{}>{words}", socket.display());
        assert_eq!(run(script.path(), &["-v", "x"]), carried("<-v><x>"));
        assert_eq!(
            run(script.path(), &["", "a b\n'$c"]),
            carried("<><a b\n'$c>")
        );
        let mode = fs::metadata(script.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(socket_of(script.path()).unwrap(), socket);
    }

    /// A file of somebody else's is never touched, one of a running session neither; one that an ended
    /// session left is replaced, and at the end only our own goes away.
    #[test]
    fn only_our_own_file_is_replaced_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claude");
        fs::write(&path, "#!/bin/sh\necho mine\n").unwrap();
        let foreign = ShimFile::check(&path).unwrap_err();
        assert!(foreign.message().contains("not labproxy's"), "{foreign:?}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/bin/sh", &path).unwrap();
        ShimFile::check(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        let socket = folder.path().join("s");
        let file = ShimFile::check(&path).unwrap();
        let write = |socket: &Path| file.write(&session(), Path::new("/x"), socket, VERSION);
        let old = write(&socket).unwrap();
        let new = write(&socket).unwrap();
        drop(old);
        assert!(path.exists(), "a later session's file stays");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let running = write(&socket).unwrap_err();
        assert!(running.message().contains("that runs"), "{running:?}");
        drop(listener);
        drop(new);
        assert!(!path.exists());
        ShimFile::check(&folder.path().join("claude.mjs")).unwrap_err();
        ShimFile::check(&folder.path().join("absent/claude")).unwrap_err();
    }

    /// A version is one short line that can be shown.
    #[test]
    fn a_version_is_a_line() {
        assert_eq!(version_line(b"2.1.332 (Claude Code)\n").unwrap(), VERSION);
        for bad in [&b""[..], b"\n", b"\x1b[2J", "ü".as_bytes(), &[b'1'; 200]] {
            version_line(bad).unwrap_err();
        }
    }
}
