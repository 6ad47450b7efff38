//! What kind of machine this is.

use std::path::Path;
use std::process::Stdio;

use super::probe::{PROBE_LIMIT, Probed, run};
use crate::remote::cgroup::Group;
use crate::remote::directory;
use crate::remote::login::Login;
use crate::wire::bytes::ByteString;
use crate::wire::link::Refusal;
use crate::wire::service::Machine;

/// The type of a cgroup v2 file system (`CGROUP2_SUPER_MAGIC`).
const CGROUP2: i64 = 0x6367_7270;
/// The type of the directory in which v1's controllers are mounted (`TMPFS_MAGIC`).
const TMPFS: i64 = 0x0102_1994;

/// Describes it. The directory of sessions is made, as a session would.
///
/// # Errors
/// When sessions cannot be kept in `workdir`.
pub(super) fn describe(workdir: &ByteString, login: &Login) -> Result<Machine, String> {
    let (sessions, _opened) = directory::sessions(workdir, login).map_err(|why| unfit(&why))?;
    let workdir = sessions.parent().unwrap_or(&sessions);
    let architecture = rustix::system::uname();
    Ok(Machine {
        user: user(),
        uid: rustix::process::getuid().as_raw(),
        architecture: architecture.machine().to_string_lossy().into_owned(),
        free_bytes: free_bytes(workdir),
        cgroup_version: cgroup_version(),
        cgroup_delegated: has_own_group(),
        workdir: ByteString::from(workdir.as_os_str()),
    })
}

fn unfit(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Directory { path, why } => {
            format!("{}: {why}", path.as_os_str().to_string_lossy())
        }
        other => format!("{other:?}"),
    }
}

/// The login user's name: the account may be in a directory service that only programs of this
/// machine can ask.
fn user() -> Option<String> {
    match run("id", &["-un"], Stdio::null(), PROBE_LIMIT) {
        Probed::Said(text) => {
            let name = text.trim_end().to_owned();
            (!name.is_empty() && !name.contains(char::is_whitespace)).then_some(name)
        }
        Probed::Absent | Probed::Failed(_) => None,
    }
}

/// Bytes that this user can still write there.
fn free_bytes(workdir: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(workdir).ok()?;
    about.f_bavail.checked_mul(about.f_frsize)
}

/// 1 or 2; `None` when neither is mounted.
fn cgroup_version() -> Option<u8> {
    let about = rustix::fs::statfs("/sys/fs/cgroup").ok()?;
    #[allow(
        clippy::useless_conversion,
        reason = "the type's width differs between architectures"
    )]
    match i64::try_from(about.f_type).ok()? {
        CGROUP2 => Some(2),
        TMPFS => Some(1),
        _ => None,
    }
}

/// Whether a session's programs would get a control group.
fn has_own_group() -> bool {
    let group = Group::make();
    if let Some(group) = &group {
        group.remove();
    }
    group.is_some()
}
