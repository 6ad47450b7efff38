//! Hearing the controller over standard input, and answering over standard output, before a link is
//! a pipe: one frame after the other, and not one byte more than it, each within a time.

use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::wire::frame::{self, PREFIX};

use super::clock::Moment;
use super::reading::{ReadError, fill};

/// Writes bytes to the controller.
///
/// # Errors
/// When it does not take them.
pub fn say(bytes: &[u8]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| format!("the controller cannot be told: {error}"))
}

/// The next message's bytes; `None` when the controller leaves before one begins.
///
/// # Errors
/// When it says nothing for `limit`, what it says is no frame, or it leaves in the middle of one.
pub fn hear(limit: Duration) -> Result<Option<Vec<u8>>, String> {
    hear_from(rustix::stdio::stdin(), limit)
}

/// The same, of a controller that speaks somewhere else.
///
/// # Errors
/// As [`hear`].
pub fn hear_from(source: impl AsFd, limit: Duration) -> Result<Option<Vec<u8>>, String> {
    let until = Moment::now().after(limit);
    let mut prefix = [0; PREFIX];
    match fill(&source, &mut prefix, until).map_err(words)? {
        0 => return Ok(None),
        PREFIX => {}
        _ => return Err(cut()),
    }
    let length = frame::length(prefix).map_err(|error| error.to_string())?;
    let mut message = vec![0; length];
    if fill(&source, &mut message, until).map_err(words)? < length {
        return Err(cut());
    }
    Ok(Some(message))
}

fn words(error: ReadError) -> String {
    match error {
        ReadError::Late => "the controller says nothing".to_owned(),
        error => format!("the controller cannot be heard: {error}"),
    }
}

fn cut() -> String {
    "the controller left in the middle of a message".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// A message is heard to its last byte and not beyond; its absence, its half and silence differ.
    #[test]
    fn a_message_is_heard_and_not_a_byte_more() {
        let (source, mut sink) = io::pipe().unwrap();
        let mut bytes = Vec::new();
        frame::encode(&7_u64, &mut bytes).unwrap();
        frame::encode(&"x", &mut bytes).unwrap();
        sink.write_all(&bytes).unwrap();
        let first = hear_from(&source, LONG).unwrap().unwrap();
        assert_eq!(frame::decode(&first), Ok(7_u64));
        let second = hear_from(&source, LONG).unwrap().unwrap();
        assert_eq!(frame::decode(&second), Ok("x"));
        let silent = hear_from(&source, Duration::from_millis(20)).unwrap_err();
        assert!(silent.contains("says nothing"), "{silent}");
        sink.write_all(&[9, 0]).unwrap();
        drop(sink);
        let half = hear_from(&source, LONG).unwrap_err();
        assert!(half.contains("middle"), "{half}");
        assert_eq!(hear_from(&source, LONG), Ok(None));
        let (source, mut sink) = io::pipe().unwrap();
        sink.write_all(b"\xff\xff\xff\xff").unwrap();
        assert!(hear_from(&source, LONG).is_err(), "longer than any message");
    }
}
