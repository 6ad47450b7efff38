//! From what a controller asks for to what is started: placeholders replaced, private files made,
//! the environment filled up from the login's.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::wire::bytes::ByteString;
use crate::wire::link::{ExecId, ExecSpec, PrivateFile, StartError};

use super::cgroup::Group;
use super::launch::Plan;
use super::login::Login;
use super::private;

/// What a program is started in.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The session's directory on the host, absolute.
    pub session_directory: &'a Path,
    /// What the login gave.
    pub login: &'a Login,
    /// The control group for programs, where there is one.
    pub group: Option<&'a Group>,
    /// The forwarder's port.
    pub port: u16,
    /// The forwarder's unix socket.
    pub socket: &'a Path,
}

/// What stands for what.
struct Replacements(Vec<(ByteString, Vec<u8>)>);

impl Replacements {
    fn add(&mut self, placeholder: &ByteString, with: &[u8]) {
        if !placeholder.as_bytes().is_empty() {
            self.0.push((placeholder.clone(), with.to_vec()));
        }
    }

    fn apply(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some((first, after)) = rest.split_first() {
            let found = self
                .0
                .iter()
                .find_map(|(old, new)| Some((new, rest.strip_prefix(old.as_bytes())?)));
            if let Some((new, behind)) = found {
                out.extend_from_slice(new);
                rest = behind;
            } else {
                out.push(*first);
                rest = after;
            }
        }
        out
    }

    fn text(&self, text: &ByteString) -> ByteString {
        ByteString::from(std::ffi::OsStr::from_bytes(&self.apply(text.as_bytes())))
    }
}

/// Makes the plan of a launch, and its private files.
///
/// # Errors
/// When the spec makes no sense or its files cannot be made.
pub fn plan(id: ExecId, spec: ExecSpec, around: &Around<'_>) -> Result<Plan, StartError> {
    if spec.argv.is_empty() {
        return Err(StartError::Malformed);
    }
    let mut replacements = Replacements(Vec::new());
    let endpoints = &spec.endpoints;
    replacements.add(&endpoints.port, around.port.to_string().as_bytes());
    replacements.add(&endpoints.socket, around.socket.as_os_str().as_bytes());
    let session = around.session_directory.as_os_str().as_bytes();
    replacements.add(&endpoints.session_directory, session);
    make_files(id, &spec.files, around, &mut replacements)?;
    let mut environment: Vec<(ByteString, ByteString)> = spec
        .environment
        .iter()
        .map(|(name, value)| (name.clone(), replacements.text(value)))
        .collect();
    for name in spec.inherit {
        let given = environment.iter().any(|(given, _)| *given == name);
        if let Some(value) = around.login.variable(name.as_bytes()).filter(|_| !given) {
            environment.push((name, value.clone()));
        }
    }
    let directory = around
        .session_directory
        .join(replacements.text(&spec.directory).as_os_str());
    let workspace = around.session_directory.join("workspace");
    Ok(Plan {
        program: replacements.text(&spec.program),
        argv: spec
            .argv
            .iter()
            .map(|text| replacements.text(text))
            .collect(),
        environment,
        directory: ByteString::from(directory.as_os_str()),
        workspace: ByteString::from(workspace.as_os_str()),
        umask: around.login.umask(),
        terminal: spec.terminal.is_some(),
        group: around.group.cloned(),
        parent: rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs(),
    })
}

fn make_files(
    id: ExecId,
    files: &[PrivateFile],
    around: &Around<'_>,
    replacements: &mut Replacements,
) -> Result<(), StartError> {
    if files.is_empty() {
        return Ok(());
    }
    let folder = private::folder(around.session_directory, id);
    for file in files {
        if !is_plain(&file.name) {
            return Err(StartError::Malformed);
        }
        replacements.add(
            &file.placeholder,
            folder.join(&file.name).as_os_str().as_bytes(),
        );
    }
    let made = write_files(&folder, files, replacements);
    made.map_err(|error| StartError::Exhausted {
        what: format!("private files in {}", folder.display()),
        errno: error.raw_os_error().unwrap_or_default(),
    })
}

fn write_files(folder: &Path, files: &[PrivateFile], names: &Replacements) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(folder)?;
    for file in files {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut opened = options.open(folder.join(&file.name))?;
        opened.write_all(&names.apply(&file.content))?;
    }
    Ok(())
}

/// One component, without anything that a path could mean something by.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !name.is_empty() && name != "." && name != ".." && name.bytes().all(plain)
}
