//! The host side: everything that `labproxy-remote` does. No async runtime, no TLS, nothing secret.
//!
//! `supervise` and `attach` ([`entry`]) are what ssh runs: they greet, find or start the session's
//! supervisor, and become a [`pipe`] to it. The [`guard`] starts the [`supervisor`] and each ends
//! everything when the other dies. The supervisor owns the programs ([`exec`]), which start through
//! [`launch`], keeps what they write in a [`spool`] until the controller has it, and looks after
//! the forwarder ([`forward`]). `serve` ([`service`]) answers questions about the machine;
//! `mirror` ([`mirror`]) is the host's end of a mirror, and `rsync` ([`rsync`]) becomes the host's
//! rsync where a mirror's contents are moved by it.

pub mod cgroup;
pub mod clock;
pub mod controller;
pub mod directory;
pub mod entry;
pub mod escapes;
pub mod exec;
pub mod forward;
pub mod guard;
pub mod handover;
pub mod installed;
pub mod kill;
pub mod launch;
pub mod launches;
pub mod link;
pub mod login;
pub mod mirror;
pub mod output;
pub mod own;
pub mod pipe;
pub mod place;
pub mod private;
pub mod reading;
pub mod record;
pub mod rsync;
pub mod service;
pub mod spec;
pub mod spool;
pub mod stdin;
pub mod supervisor;
pub mod sweep;
pub mod terminal;
pub mod workspace;

use std::ffi::OsString;
use std::io::Write as _;

use crate::wire::greeting::{Nonce, VERSION};

use self::login::Login;

/// The status of every failure of our own.
const FAILED: u8 = 125;
/// The status of a command line that is none.
const USAGE: u8 = 2;

/// Runs the role that the arguments name; gives the exit status.
pub fn main(arguments: &[OsString]) -> u8 {
    let _held = installed::hold();
    let login = Login::take();
    let words: Option<Vec<&str>> = arguments.iter().skip(1).map(|word| word.to_str()).collect();
    match words.as_deref() {
        Some(["version"]) => version(),
        Some(["supervise", nonce]) => greeted(nonce, |nonce| entry::supervise(nonce, &login)),
        Some(["attach", nonce]) => greeted(nonce, |nonce| entry::attach(nonce, &login)),
        Some(["serve", nonce]) => greeted(nonce, |nonce| service::serve(nonce, &login)),
        Some(["mirror", nonce]) => greeted(nonce, |nonce| mirror::serve(nonce, &login)),
        Some(["rsync", nonce]) => greeted(nonce, |nonce| rsync::serve(nonce, &login)),
        Some(["guard"]) => guard::main(),
        Some(["supervisor"]) => supervisor::main(),
        Some(["launch"]) => launch::main(),
        Some(["look"]) => escapes::main(&login),
        Some([forward::ROLE]) => forward::run(),
        _ => {
            tell(
                "labproxy-remote: its roles are version, serve NONCE, mirror NONCE, rsync NONCE, \
                 supervise NONCE, attach NONCE",
            );
            USAGE
        }
    }
}

fn version() -> u8 {
    let line = format!(
        "labproxy-remote {} wire {VERSION}",
        env!("CARGO_PKG_VERSION")
    );
    u8::from(writeln!(std::io::stdout(), "{line}").is_err())
}

fn greeted(nonce: &str, role: impl FnOnce(Nonce) -> Result<(), String>) -> u8 {
    installed::remove_unused();
    let done = match nonce.parse() {
        Ok(nonce) => role(nonce),
        Err(error) => {
            tell(&format!("labproxy-remote: {error}"));
            return USAGE;
        }
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            tell(&format!("labproxy-remote: {why}"));
            FAILED
        }
    }
}

/// Writes a line to standard error: a person's terminal through ssh, or the session's log.
fn tell(line: &str) {
    // Without anybody to read it there is nobody to tell.
    let _unread = writeln!(std::io::stderr(), "{}", line.escape_debug());
}
