//! `rsync`: the host's rsync at the other end of a mirror whose contents it moves.
//!
//! It says first which version there is, so that an old one is refused before anything moves. Then
//! it becomes rsync, with the channel as its standard input and output and an environment of two
//! variables: what rsync's own configuration files of the user would add is not read.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::controller::{hear, say};
use super::login::Login;
use super::service::probe::{PROBE_LIMIT, Probed, run};
use crate::wire::bytes::ByteString;
use crate::wire::frame;
use crate::wire::greeting::{Nonce, greeting};
use crate::wire::rsync::{ARGUMENTS_MAX, FromRsync, ToRsync};

/// The program, found in the login's PATH.
const PROGRAM: &str = "rsync";
/// How long a controller may take until it knows what rsync is to do: it reads both trees meanwhile.
const ORDER_LIMIT: Duration = Duration::from_mins(30);
/// What it must be told first: it serves, and begins nothing.
const SERVER: &[u8] = b"--server";

/// Greets, tells rsync's version, and becomes rsync when the controller says so.
///
/// # Errors
/// When it cannot; the channel then ends.
pub fn serve(nonce: Nonce, login: &Login) -> Result<(), String> {
    say(&greeting(nonce))?;
    let mut found = Vec::new();
    frame::encode(&find(), &mut found).map_err(|error| error.to_string())?;
    say(&found)?;
    let Some(order) = hear(ORDER_LIMIT)? else {
        return Ok(());
    };
    let order: ToRsync = frame::decode(&order).map_err(|error| error.to_string())?;
    Err(become_it(&order, login))
}

fn find() -> FromRsync {
    match run(PROGRAM, &["--version"], Stdio::null(), PROBE_LIMIT) {
        Probed::Said(text) => FromRsync::Version(text),
        Probed::Absent => FromRsync::Absent {
            why: "there is none in the PATH of the login".to_owned(),
        },
        Probed::Failed(why) => FromRsync::Absent { why },
    }
}

/// Returns only when it cannot, with the reason.
fn become_it(order: &ToRsync, login: &Login) -> String {
    let directory = order.directory.to_path_buf();
    let serves = order.arguments.first().map(ByteString::as_bytes) == Some(SERVER);
    if !serves || order.arguments.len() > ARGUMENTS_MAX || !directory.is_absolute() {
        return "an order that no rsync of a mirror gets".to_owned();
    }
    let mut rsync = Command::new(PROGRAM);
    rsync
        .args(order.arguments.iter().map(ByteString::as_os_str))
        .current_dir(directory)
        .env_clear()
        .env("LC_ALL", "C");
    if let Some(path) = login.variable(b"PATH") {
        rsync.env("PATH", path.as_os_str());
    } else {
        rsync.env("PATH", OsStr::new("/usr/bin:/bin"));
    }
    let error = rsync.exec();
    format!("rsync cannot be run: {error}")
}
