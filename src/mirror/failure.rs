//! Why a mirror did not do what it was asked: what was found, one line each, and what helps.

use std::error::Error as _;

use rustix::io::Errno;

use super::copy_in::CopyInError;
use super::error::{Class, End, MirrorError};
use super::pair::NAMED_MAX;
use super::peer::PeerError;
use super::rsync::RsyncError;
use super::store::StoreError;
use crate::escape::escape;
use crate::report::{Failure, FailureKind};
use crate::tree::path::RelPath;
use crate::tree::root::RootError;
use crate::tree::scan::Trouble;

/// A failure, with what was found, what caused it, and the remedy.
pub fn failure(error: &MirrorError) -> Failure {
    let text = error.to_string();
    let failure = match error.source() {
        // Most sentences end with it.
        Some(cause) if !text.contains(&cause.to_string()) => {
            Failure::new(kind(error), text).caused_by(cause)
        }
        Some(_) | None => Failure::new(kind(error), text),
    };
    remedy(error, listed(error, failure))
}

/// What is wrong with what the user gave, and what did not work.
const fn kind(error: &MirrorError) -> FailureKind {
    match error.class() {
        Class::Wrong => FailureKind::Usage,
        Class::Lost | Class::Edit | Class::Decide => FailureKind::Failed,
    }
}

fn listed(error: &MirrorError, failure: Failure) -> Failure {
    let with_why = |(path, why): &(RelPath, String)| format!("{}: {why}", shown(path));
    match error {
        MirrorError::Incomplete {
            problems, count, ..
        } => list(failure, problems.iter().map(with_why), *count),
        MirrorError::Changing(paths)
        | MirrorError::Credential(paths)
        | MirrorError::NotHeld(paths)
        | MirrorError::Edited(paths) => list(failure, paths.iter().map(shown), 0),
        MirrorError::CopyIn(CopyInError::Refused { refusals, .. }) => {
            let lines = refusals.first.iter();
            let lines = lines.map(|(name, why)| format!("{}: {why}", escape(name)));
            list(failure, lines, refusals.count)
        }
        MirrorError::CopyIn(CopyInError::Clashes(paths)) => {
            let count = u64::try_from(paths.len()).unwrap_or(u64::MAX);
            list(failure, paths.iter().take(NAMED_MAX).map(shown), count)
        }
        MirrorError::CopyIn(CopyInError::Unfit(found)) => {
            let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
            let lines = found.iter().take(NAMED_MAX);
            let lines = lines.map(|(path, why)| format!("{}: {why}", shown(path)));
            list(failure, lines, count)
        }
        MirrorError::FarChanged { paths, count } | MirrorError::NotEqual { paths, count } => {
            list(failure, paths.iter().map(shown), *count)
        }
        MirrorError::Secrets(found) => {
            let lines = found
                .iter()
                .map(|secret| format!("{}: {}", shown(&secret.path), secret.holds));
            list(failure, lines, 0)
        }
        MirrorError::Partly {
            failed,
            failed_count,
            kept,
            stopped,
            ..
        } => {
            let failure = list(failure, failed.iter().map(with_why), *failed_count);
            let left = kept.iter().map(|kept| format!("left: {}", with_why(kept)));
            list(failure, left.chain(stopped.clone()), 0)
        }
        MirrorError::Rsync(RsyncError::Ended { said, .. }) => {
            list(failure, said.iter().map(String::clone), 0)
        }
        MirrorError::Rsync(RsyncError::Unproven { paths, count, said }) => {
            let failure = list(failure, paths.iter().map(shown), *count);
            list(failure, said.iter().map(String::clone), 0)
        }
        MirrorError::Rsync(RsyncError::Link(link)) => {
            let problems = link.problems().iter().chain(link.causes());
            list(failure, problems.cloned(), 0)
        }
        MirrorError::Rsync(_)
        | MirrorError::Root { .. }
        | MirrorError::Disk { .. }
        | MirrorError::LocalReplaced
        | MirrorError::FarMissing
        | MirrorError::FarOfAnother
        | MirrorError::FarReplaced
        | MirrorError::NotEmpty(_)
        | MirrorError::CopyIn(_)
        | MirrorError::Brake(_)
        | MirrorError::Pattern(_)
        | MirrorError::Peer(_)
        | MirrorError::Store(_)
        | MirrorError::State(_)
        | MirrorError::Journal(_) => failure,
    }
}

/// Adds lines; `all` is how many there are when only the first ones are given.
fn list(mut failure: Failure, lines: impl Iterator<Item = String>, all: u64) -> Failure {
    let mut named: u64 = 0;
    for line in lines {
        failure = failure.problem(line);
        named = named.saturating_add(1);
    }
    match all.checked_sub(named) {
        Some(more) if more > 0 => failure.problem(format!("and {more} more")),
        Some(_) | None => failure,
    }
}

fn remedy(error: &MirrorError, failure: Failure) -> Failure {
    match error {
        MirrorError::Root {
            error: RootError::Missing,
            ..
        } => failure.hint("name a directory that is there; only a pull makes the directory here"),
        MirrorError::Incomplete { end, problems, .. } => of_incomplete(*end, problems, failure),
        MirrorError::Changing(_) => {
            failure.hint("stop what writes them at the other end, and run this again")
        }
        MirrorError::LocalReplaced => failure
            .hint("mount or move the directory back that was mirrored")
            .hint("or mirror the one that is there now with another, empty directory"),
        MirrorError::FarReplaced => failure
            .hint("mount or move the directory back that was mirrored")
            .hint("or push to another path there, which is absent or empty"),
        MirrorError::FarMissing => failure.hint("check the path, or push first"),
        MirrorError::FarOfAnother => {
            failure.hint("name another directory there: one directory is one mirror's")
        }
        MirrorError::NotEmpty(end) => {
            let failure = failure
                .hint("name a directory that is absent or empty, or empty this one yourself");
            match end {
                End::Local => failure,
                End::Far => failure.hint(
                    "push --force overwrites the other end, and first saves it as a generation",
                ),
            }
        }
        MirrorError::FarChanged { .. } => failure
            .hint("pull first, which brings the changes here")
            .hint("or push --force, which saves what is there as a generation and overwrites it"),
        MirrorError::Secrets(_) => failure.hint(
            "--allow-secret PATH pushes one all the same; --exclude PATTERN at the first push, or a \
             .labproxyignore, leaves it out",
        ),
        MirrorError::Credential(_) => failure.hint(
            "take it out of these files, or exclude them: whoever is on the host could use it",
        ),
        MirrorError::NotHeld(_) => {
            failure.hint("labproxy mirror status LOCAL HOST:PATH lists what is held back")
        }
        MirrorError::Edited(_) => failure
            .hint("move your edits elsewhere, or push them, and run this again")
            .hint("the generation has what the other end has; nothing of it is lost"),
        MirrorError::CopyIn(error) => copy_in_remedy(error, failure),
        MirrorError::NotEqual { .. } => failure
            .hint("something writes there: stop it, then pull, or push --force")
            .hint("nothing is agreed on until a push ends well"),
        MirrorError::Partly {
            failed, stopped, ..
        } => of_partly(!failed.is_empty(), stopped.is_some(), failure),
        MirrorError::Rsync(error) => of_rsync(error, failure),
        MirrorError::Store(StoreError::Generation { .. })
        | MirrorError::Peer(PeerError::Store(StoreError::Generation { .. })) => failure
            .hint("rename that file, with .damaged behind its name, and pull: the tree is published anew"),
        MirrorError::Peer(PeerError::Silent | PeerError::Ended | PeerError::Broken(_)) => {
            failure.hint("run this again: it goes on where it was cut off")
        }
        MirrorError::Root { .. }
        | MirrorError::Disk { .. }
        | MirrorError::Brake(_)
        | MirrorError::Pattern(_)
        | MirrorError::Peer(_)
        | MirrorError::Store(_)
        | MirrorError::State(_)
        | MirrorError::Journal(_) => failure,
    }
}

fn of_partly(some_failed: bool, is_stopped: bool, failure: Failure) -> Failure {
    match (some_failed, is_stopped) {
        (true, _) => failure.hint("make these writable, and run this again"),
        (false, false) => failure.hint("run this again"),
        // It says itself what helps.
        (false, true) => failure,
    }
}

fn of_incomplete(end: End, problems: &[(RelPath, String)], failure: Failure) -> Failure {
    if end == End::Far && is_for_want_of_right(problems) {
        return failure.hint(
            "nothing was published or changed: log in as root, or set sudo = true of the host in \
             the configuration, to read and change what is another user's there",
        );
    }
    let changing = Trouble::Changing.to_string();
    if problems.iter().all(|(_, why)| *why == changing) {
        // That says itself what helps.
        return failure.hint("nothing was changed");
    }
    failure.hint("nothing was changed: make these readable, or exclude them at the first push")
}

fn of_rsync(error: &RsyncError, failure: Failure) -> Failure {
    match error {
        RsyncError::Absent { .. } | RsyncError::TooOld { .. } | RsyncError::NoVersion { .. } => {
            failure
                .hint("leave out --engine rsync: labproxy moves the files itself, and needs no rsync")
                .hint(
                    "or put a newer rsync first in the PATH there; an older one lets a hostile \
                     other end write beside the destination, so that there is no flag for it",
                )
        }
        RsyncError::Unproven { .. } => failure.hint(
            "nothing of the other end's tree was changed; stop what writes these files, and push again",
        ),
        RsyncError::Ended { .. } | RsyncError::Silent | RsyncError::TooMuch => {
            failure.hint("leave out --engine rsync: labproxy then moves the files itself")
        }
        RsyncError::Link(link) => link.hints().iter().fold(failure, Failure::hint),
        RsyncError::Answer(_) | RsyncError::Here { .. } => failure,
    }
}

fn copy_in_remedy(error: &CopyInError, failure: Failure) -> Failure {
    match error {
        CopyInError::Unreadable { .. } => failure
            .hint("nothing was changed: give a tar archive (plain, gzip or zstd) or a directory"),
        CopyInError::Refused { .. } => failure.hint(
            "nothing was changed: leave these out, or make plain files of them, and run this again",
        ),
        CopyInError::Clashes(_) => failure.hint(
            "nothing was changed: --replace replaces them, --to PATH puts everything elsewhere",
        ),
        CopyInError::Unfit(_) => failure
            .hint("nothing was changed: --to PATH puts everything elsewhere; or leave these out"),
        CopyInError::Staging(_) => {
            failure.hint("nothing was changed: make room, and run this again")
        }
        CopyInError::Twice(_) => failure,
    }
}

/// Whether something was not read because the login may not.
fn is_for_want_of_right(problems: &[(RelPath, String)]) -> bool {
    let no_right = [Errno::ACCESS, Errno::PERM].map(|errno| {
        let errno = errno.raw_os_error();
        Trouble::Unreadable { errno }.to_string()
    });
    problems.iter().any(|(_, why)| no_right.contains(why))
}

fn shown(path: &RelPath) -> String {
    if path.is_root() {
        return ".".to_owned();
    }
    escape(path.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::state::StateError;

    /// What the system says is told, once.
    #[test]
    fn a_failure_has_its_cause() {
        let refused = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let state = StateError::Io {
            what: "written",
            path: "/state/mirror.json".into(),
            source: refused(),
        };
        let failure = failure(&state.into());
        assert_eq!(failure.message(), "/state/mirror.json cannot be written");
        assert_eq!(failure.causes(), [refused().to_string()]);
        let failure = super::failure(&PeerError::Here(refused()).into());
        assert!(failure.message().ends_with(&refused().to_string()));
        assert!(failure.causes().is_empty());
    }

    /// Who is told to stop a writer is not told to change rights, nor is who has to make room.
    #[test]
    fn a_remedy_fits_what_was_found() {
        let path = RelPath::new(b"f").unwrap();
        let incomplete = |why: Trouble| MirrorError::Incomplete {
            end: End::Local,
            problems: vec![(path.clone(), why.to_string())],
            count: 1,
        };
        let hints = |error: &MirrorError| failure(error).hints().join("; ");
        assert_eq!(hints(&incomplete(Trouble::Changing)), "nothing was changed");
        let errno = Errno::ACCESS.raw_os_error();
        let unreadable = hints(&incomplete(Trouble::Unreadable { errno }));
        assert!(unreadable.contains("make these readable"), "{unreadable}");
        let partly = |failed, stopped| MirrorError::Partly {
            end: End::Far,
            failed,
            failed_count: 0,
            kept: Vec::new(),
            stopped,
        };
        let full = partly(Vec::new(), Some("the disk is full".to_owned()));
        assert_eq!(hints(&full), "");
        let refused = partly(vec![(path.clone(), "Permission denied".to_owned())], None);
        assert!(hints(&refused).contains("make these writable"));
    }
}
