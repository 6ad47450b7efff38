//! Frames: four bytes of length, little-endian, then one message.

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

/// Longest message: a chunk of data with its head fits with room to spare. A command line may be
/// longer, and travels in parts.
pub const FRAME_MAX: usize = 1024 * 1024;
/// Most data in one frame; the rest of it is the message's head.
pub const CHUNK_MAX: usize = 256 * 1024;
/// Bytes of a frame's length.
pub const PREFIX: usize = 4;

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than any message.
    #[error("a frame of {0} bytes, and {FRAME_MAX} is the most")]
    TooLong(usize),
    /// A frame of nothing: no message is empty.
    #[error("an empty frame")]
    Empty,
    /// No message of this kind.
    #[error("a frame that is no message")]
    Malformed,
    /// More than the message.
    #[error("{0} bytes after a message")]
    Trailing(usize),
}

/// A frame's message, and what follows the frame.
pub type Parts<'a> = (&'a [u8], &'a [u8]);

/// Appends a message as a frame.
///
/// # Errors
/// When the message is longer than a frame may be; `out` is as it was.
pub fn encode<M: Serialize>(message: &M, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = out.len();
    let mut taken = std::mem::take(out);
    taken.extend_from_slice(&[0; PREFIX]);
    // Into a vector it cannot fail, but for a type that serde cannot write at all.
    let written = postcard::serialize_with_flavor(message, Bytes(taken));
    *out = written.map_err(|_| FrameError::Malformed)?;
    let length = out.len() - start - PREFIX;
    let prefix = u32::try_from(length)
        .ok()
        .filter(|_| length <= FRAME_MAX)
        .map(u32::to_le_bytes);
    let Some(prefix) = prefix else {
        out.truncate(start);
        return Err(FrameError::TooLong(length));
    };
    for (at, byte) in out.iter_mut().skip(start).zip(prefix) {
        *at = byte;
    }
    Ok(())
}

/// A vector that takes slices as a whole. The library's own takes byte by byte, which a program that
/// is made small, as the helper is, really does.
struct Bytes(Vec<u8>);

impl Flavor for Bytes {
    type Output = Vec<u8>;

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// The first frame of `received`: its message's bytes and what follows it; `None` while it is not
/// whole.
///
/// # Errors
/// When its length cannot be a message's.
pub fn split(received: &[u8]) -> Result<Option<Parts<'_>>, FrameError> {
    let Some((prefix, rest)) = received.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    Ok(rest.split_at_checked(length(*prefix)?))
}

/// The length of the message that follows a prefix.
///
/// # Errors
/// When it cannot be a message's.
pub fn length(prefix: [u8; PREFIX]) -> Result<usize, FrameError> {
    match usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX) {
        0 => Err(FrameError::Empty),
        length if length > FRAME_MAX => Err(FrameError::TooLong(length)),
        length => Ok(length),
    }
}

/// Reads a frame's message, all of it.
///
/// # Errors
/// When the bytes are not exactly one message of this type.
pub fn decode<'a, M: Deserialize<'a>>(message: &'a [u8]) -> Result<M, FrameError> {
    match postcard::take_from_bytes(message) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(FrameError::Trailing(rest.len())),
        Err(_) => Err(FrameError::Malformed),
    }
}
