//! Trying a forward: a directory for its socket, and a request through it.

use crate::remote::forward::probe::{self, PROBE_LIMIT, Prober};
use crate::remote::login::Login;
use crate::remote::place::Place;
use crate::wire::bytes::ByteString;
use crate::wire::link::ForwardEnd;
use crate::wire::service::Answer;

/// The directories that were made; they go with this.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    places: Vec<Place>,
}

impl Forwards {
    /// Makes a fresh directory for a forward's socket.
    pub(super) fn directory(&mut self, login: &Login) -> Result<ByteString, String> {
        let place = Place::make(login).map_err(|(parent, error)| {
            format!("no directory can be made in {}: {error}", parent.display())
        })?;
        let made = place.link_directory(1);
        self.places.push(place);
        let path = made.map_err(|error| format!("no directory can be made: {error}"))?;
        Ok(ByteString::from(path.as_os_str()))
    }
}

/// Removes them, with the sockets that ssh left in them.
impl Drop for Forwards {
    fn drop(&mut self) {
        for place in &self.places {
            // What somebody else put there stays, and the directory with it.
            let _kept = place.remove();
        }
    }
}

/// Asks through a forward.
pub(super) fn ask(end: &ForwardEnd) -> Result<Answer, String> {
    let passed = match end {
        ForwardEnd::Socket(socket) => probe::through_socket(&socket.to_path_buf(), PROBE_LIMIT),
        ForwardEnd::Port(port) => Prober::new(*port).probe(PROBE_LIMIT),
    };
    match passed {
        Ok(passed) => Ok(Answer::Forwarded {
            status: passed.status,
            micros: u64::try_from(passed.took.as_micros()).unwrap_or(u64::MAX),
        }),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The directory is this user's alone and goes with its socket.
    #[test]
    fn a_directory_goes_with_its_socket() {
        use std::os::unix::fs::PermissionsExt as _;

        let login = Login::take();
        let mut forwards = Forwards::default();
        let first = forwards.directory(&login).unwrap().to_path_buf();
        let second = forwards.directory(&login).unwrap().to_path_buf();
        assert_ne!(first, second);
        let mode = std::fs::metadata(&first).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(UnixListener::bind(first.join("proxy.sock")).unwrap());
        std::fs::write(second.join("of-somebody-else"), "").unwrap();
        drop(forwards);
        assert!(!first.parent().unwrap().exists());
        assert!(second.join("of-somebody-else").exists());
        std::fs::remove_dir_all(second.parent().unwrap()).unwrap();
    }
}
