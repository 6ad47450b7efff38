//! What runs on the host before the helper does: one line of POSIX shell, sent on standard input.
//!
//! The login shell only sees [`COMMAND`], which every shell reads alike; `sh` then reads one line,
//! which may hold anything, and what follows it on standard input is left to whatever it starts.
//!
//! Answers are lines of `labproxy-NONCE`, a word and its fields, separated by tabs.

use std::fmt::Write as _;

use crate::quote::quoted_text;
use crate::tunnel::host::Workdir;
use crate::tunnel::transport::Role;
use crate::wire::greeting::Nonce;

/// What the login shell runs: no quote inside the quotes, no `!`, no backslash, no new line, so that
/// sh, dash, bash, zsh, ksh, fish, csh and tcsh all hand the same to `sh`.
pub(super) const COMMAND: &str = "exec /bin/sh -c 'IFS= read -r s && eval \"$s\"'";

/// Both scripts begin so. `say` answers; `dir I` sets `d` to the directory of this number, empty
/// when there is none; `kept` is whether it is ours alone; `hash` sets `h` to the SHA-256 of what is
/// open as 9. The path is searched in the usual places, too, while our own commands run.
const COMMON: &str = include_str!("common.sh");

/// Finds the helper by its content and becomes it; else finds a directory for it, asks for it, and
/// waits for a word: `go` looks again, `skip I` tries another directory, `anew NAME` takes the file
/// of this name, which was made for this one start.
const START: &str = include_str!("start.sh");

/// Takes the helper from standard input into directory `I`, proves it, and puts it in place; where
/// nothing can prove it, it keeps a name of its own for one start.
const TAKE: &str = include_str!("take.sh");

/// What both scripts are told.
pub(super) struct Names<'a> {
    /// SHA-256 of the helper, hexadecimal.
    pub(super) digest: &'a str,
    /// Proves that an answer is of this run.
    pub(super) nonce: Nonce,
    /// Where sessions are kept.
    pub(super) workdir: &'a Workdir,
}

/// What the helper is started as.
#[derive(Clone, Copy)]
pub(super) struct Starts {
    pub(super) role: Role,
    /// By `sudo -n`, as root.
    pub(super) by_sudo: bool,
}

/// The line that looks for the helper and becomes it, in this role.
pub(super) fn start(names: &Names<'_>, architecture: &str, starts: Starts) -> String {
    let Starts { role, by_sudo } = starts;
    let (role, sudo) = (role.word(), if by_sudo { "1" } else { "" });
    let own = format!("A={architecture}; R={role}; E={sudo}; S=; ");
    line(names, &own, START)
}

/// The line that takes so many bytes of the helper into the directory of this number.
pub(super) fn take(names: &Names<'_>, directory: u8, length: usize) -> String {
    let own = format!("I={directory}; L={length}; ");
    line(names, &own, TAKE)
}

fn line(names: &Names<'_>, own: &str, script: &str) -> String {
    let Names {
        digest,
        nonce,
        workdir,
    } = names;
    let mut line = format!("D={digest}; N={nonce}; W={}; ", bin(workdir));
    line.push_str(own);
    let parts = COMMON.lines().chain(script.lines()).map(str::trim);
    for part in parts.filter(|part| !part.is_empty() && !part.starts_with('#')) {
        // Writing to a string cannot fail.
        let _written = write!(line, "{part} ");
    }
    line.push('\n');
    line
}

/// `<workdir>/bin` as a shell word; nothing when it is at a home that does not exist.
fn bin(workdir: &Workdir) -> String {
    match workdir.as_str().strip_prefix('~') {
        Some(rest) => format!(
            "${{HOME:+\"$HOME\"{}}}",
            quoted_text(&format!("{rest}/bin"))
        ),
        None => quoted_text(&format!("{}/bin", workdir.as_str().trim_end_matches('/'))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVE: Starts = Starts {
        role: Role::Serve,
        by_sudo: false,
    };

    fn names(workdir: &Workdir) -> Names<'_> {
        Names {
            digest: "0123abcd",
            nonce: Nonce::new([7; 16]),
            workdir,
        }
    }

    /// One word for every shell: see [`COMMAND`].
    #[test]
    fn the_command_holds_nothing_that_shells_read_differently() {
        let inside = COMMAND.split('\'').collect::<Vec<_>>();
        assert_eq!(inside.len(), 3, "one pair of quotes");
        for odd in ['!', '\\', '\n', '`'] {
            assert!(!COMMAND.contains(odd), "{odd:?}");
        }
        assert!(COMMAND.is_ascii());
    }

    #[test]
    fn a_script_is_one_line() {
        let workdir: Workdir = "/o'dd $(touch x)".parse().unwrap();
        for script in [
            start(&names(&workdir), "x86_64", SERVE),
            take(&names(&workdir), 1, 7),
        ] {
            assert_eq!(script.matches('\n').count(), 1);
            assert!(script.ends_with('\n'));
            assert!(script.contains("W='/o'\\''dd $(touch x)/bin'; "));
        }
        assert!(
            start(&names(&Workdir::default()), "x86_64", SERVE)
                .contains("W=${HOME:+\"$HOME\"'/.labproxy/bin'}; ")
        );
    }
}
