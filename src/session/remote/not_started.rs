//! Why a program does not run on a host, with the status that a shell would give.

use crate::report::{Failure, FailureKind};
use crate::wire::link::StartError;

/// The failure for a program that was called `name`.
pub fn not_started(name: &str, host: &str, why: &StartError) -> Failure {
    let errno = |errno: i32| std::io::Error::from_raw_os_error(errno);
    match why {
        StartError::NotFound => Failure::new(
            FailureKind::NotFound,
            format!("'{name}' was not found on {host}"),
        )
        .hint(
            "the PATH of a login without a terminal is searched; a path with '/' is taken as it is",
        ),
        StartError::NotExecutable { errno: number } => Failure::new(
            FailureKind::NotExecutable,
            format!("'{name}' cannot be executed on {host}"),
        )
        .caused_by(&errno(*number)),
        StartError::TooLong => Failure::new(
            FailureKind::NotExecutable,
            format!(
                "the kernel of {host} takes no such long argument (131,071 bytes each), or not so \
                 many"
            ),
        ),
        StartError::Directory { errno: number } => Failure::because(
            format!("the working directory cannot be entered on {host}"),
            &errno(*number),
        )
        .hint("it must be in the session's workspace there"),
        StartError::Exhausted {
            what,
            errno: number,
        } => Failure::because(
            format!("{host} has no room for the program ({what})"),
            &errno(*number),
        ),
        StartError::Malformed => {
            Failure::failed(format!("{host} does not understand what it should start"))
        }
    }
}
