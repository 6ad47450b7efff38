//! Reading from a pipe or socket for a limited time.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::clock::{Moment, patience};

/// So much is read at once.
const PART: usize = 16 * 1024;

/// Why bytes do not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Nothing came in time.
    #[error("nothing came in time")]
    Late,
    /// More came than was to be read.
    #[error("too much came")]
    TooMuch,
    /// The system says no.
    #[error(transparent)]
    System(#[from] Errno),
}

/// Reads once; gives how many bytes came, 0 at the end.
///
/// # Errors
/// When none comes in time.
pub fn once(source: &impl AsFd, buffer: &mut [u8], until: Moment) -> Result<usize, ReadError> {
    loop {
        let wait = patience(Moment::now(), until);
        match poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&wait)) {
            Ok(0) => return Err(ReadError::Late),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(source, &mut *buffer) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            read => return Ok(read?),
        }
    }
}

/// Fills the buffer, or reads up to the end; gives how many bytes came.
///
/// # Errors
/// When they do not come in time.
pub fn fill(source: &impl AsFd, buffer: &mut [u8], until: Moment) -> Result<usize, ReadError> {
    let mut have = 0;
    while let Some(rest) = buffer.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match once(source, rest, until)? {
            0 => break,
            length => have += length,
        }
    }
    Ok(have)
}

/// Everything up to the end, which must have at most `most` bytes before it.
///
/// # Errors
/// When that is not so, or takes longer.
pub fn whole(source: &impl AsFd, most: usize, until: Moment) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let mut part = vec![0; PART];
    loop {
        match once(source, &mut part, until)? {
            0 => return Ok(bytes),
            length => bytes.extend_from_slice(part.get(..length).unwrap_or_default()),
        }
        if bytes.len() > most {
            return Err(ReadError::TooMuch);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;

    /// What is whole is given, what goes on for too long or is too much is not.
    #[test]
    fn only_what_ends_in_time_is_whole() {
        let soon = || Moment::now().after(Duration::from_millis(20));
        let (source, mut sink) = std::io::pipe().unwrap();
        sink.write_all(b"abc").unwrap();
        let mut two = [0; 2];
        assert_eq!(fill(&source, &mut two, soon()), Ok(2));
        assert_eq!(whole(&source, 9, soon()), Err(ReadError::Late));
        sink.write_all(b"def").unwrap();
        drop(sink);
        assert_eq!(whole(&source, 9, soon()), Ok(b"def".to_vec()));
        assert_eq!(fill(&source, &mut two, soon()), Ok(0));
        let (source, mut sink) = std::io::pipe().unwrap();
        sink.write_all(b"abc").unwrap();
        assert_eq!(whole(&source, 2, soon()), Err(ReadError::TooMuch));
    }
}
