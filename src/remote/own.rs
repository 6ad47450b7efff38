//! Starting our own program again in another role: without an environment, and with descriptors
//! handed over on purpose only.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::fs::MemfdFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::forward::OWN_PROGRAM;

/// The command that becomes `role`; standard streams are closed to it unless they are set.
pub fn role(role: &str) -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    command
        .arg0("labproxy-remote")
        .arg(role)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Writes a value into memory that another process can be given.
pub fn into_memory<T: Serialize>(value: &T) -> io::Result<OwnedFd> {
    let bytes = postcard::to_extend(value, Vec::new()).map_err(io::Error::other)?;
    let memory = rustix::fs::memfd_create("labproxy", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    io::Write::write_all(&mut file, &bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads such a value.
pub fn from_memory<T: DeserializeOwned>(memory: OwnedFd) -> io::Result<T> {
    let mut bytes = Vec::new();
    File::from(memory).read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}
