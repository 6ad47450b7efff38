//! Decoding of encoded request bodies. What is forwarded is exactly what comes out of here, without
//! an encoding, so no two decoders can disagree about it.

use std::io::Read;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use super::gate::json::shown;

/// Largest body, before and after decoding: what the provider takes.
pub const BODY_LIMIT: usize = 32 * 1024 * 1024;

/// Largest window of a zstd frame, as a power of two: the 8 MiB that RFC 9659 allows for HTTP.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Output is taken in pieces of this size.
const PIECE: usize = 64 * 1024;

/// How a request body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Not at all.
    Identity,
    /// `gzip`: one member.
    Gzip,
    /// `deflate`: one zlib stream.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`: one frame.
    Zstd,
}

/// Why a body cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The encoding is not one of ours: 415.
    #[error("content-encoding '{0}' is not known; send identity, gzip, deflate, br or zstd")]
    UnknownCoding(String),
    /// It is encoded more than once: 415.
    #[error("the body has more than one content-encoding; send one")]
    SeveralCodings,
    /// It is longer than `limit` bytes: 413.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// It is not what its encoding says: 400.
    #[error("the body is not one whole {0} stream")]
    Malformed(&'static str),
    /// Something follows the end of the encoded stream, such as a second member: 400.
    #[error("data follows the end of the {0} stream")]
    Trailing(&'static str),
}

impl Coding {
    /// Reads `content-encoding`.
    ///
    /// # Errors
    /// When there are several, or one that is not known.
    pub fn of(headers: &HeaderMap) -> Result<Self, BodyError> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else {
            return Ok(Self::Identity);
        };
        let text = value.as_bytes();
        if values.next().is_some() || text.contains(&b',') {
            return Err(BodyError::SeveralCodings);
        }
        match text.trim_ascii().to_ascii_lowercase().as_slice() {
            b"identity" => Ok(Self::Identity),
            b"gzip" | b"x-gzip" => Ok(Self::Gzip),
            b"deflate" => Ok(Self::Deflate),
            b"br" => Ok(Self::Brotli),
            b"zstd" => Ok(Self::Zstd),
            other => Err(BodyError::UnknownCoding(shown(&String::from_utf8_lossy(
                other,
            )))),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// Decodes a body of at most `limit` bytes after decoding.
///
/// # Errors
/// When it is longer, not one whole stream of its encoding, or followed by anything.
pub fn decode(coding: Coding, raw: Bytes, limit: usize) -> Result<Bytes, BodyError> {
    let malformed = BodyError::Malformed(coding.name());
    let (decoded, rest) = match coding {
        Coding::Identity if raw.len() > limit => return Err(BodyError::TooLarge { limit }),
        Coding::Identity => return Ok(raw),
        Coding::Gzip => {
            let mut stream = flate2::bufread::GzDecoder::new(raw.as_ref());
            let decoded = drain(&mut stream, limit, coding)?;
            (decoded, stream.into_inner().len())
        }
        Coding::Deflate => {
            let mut stream = flate2::bufread::ZlibDecoder::new(raw.as_ref());
            let decoded = drain(&mut stream, limit, coding)?;
            (decoded, stream.into_inner().len())
        }
        Coding::Zstd => {
            let mut stream = zstd::stream::read::Decoder::with_buffer(raw.as_ref())
                .map_err(|_| malformed.clone())?
                .single_frame();
            stream
                .window_log_max(ZSTD_WINDOW_LOG)
                .map_err(|_| malformed)?;
            let decoded = drain(&mut stream, limit, coding)?;
            (decoded, stream.finish().len())
        }
        Coding::Brotli => brotli(&raw, limit)?,
    };
    if rest > 0 {
        return Err(BodyError::Trailing(coding.name()));
    }
    Ok(decoded.into())
}

/// Reads a decoder to its end.
fn drain(stream: &mut impl Read, limit: usize, coding: Coding) -> Result<Vec<u8>, BodyError> {
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut decoded = Vec::new();
    stream
        .take(most)
        .read_to_end(&mut decoded)
        .map_err(|_| BodyError::Malformed(coding.name()))?;
    if decoded.len() > limit {
        return Err(BodyError::TooLarge { limit });
    }
    Ok(decoded)
}

fn brotli(raw: &[u8], limit: usize) -> Result<(Vec<u8>, usize), BodyError> {
    use brotli::enc::StandardAlloc;
    use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};

    let name = Coding::Brotli.name();
    let allocator = StandardAlloc::default;
    let mut state = BrotliState::new_strict(allocator(), allocator(), allocator());
    let (mut left, mut read, mut total) = (raw.len(), 0, 0);
    let mut decoded = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        let (mut room, mut written) = (piece.len(), 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut read,
            raw,
            &mut room,
            &mut written,
            &mut piece,
            &mut total,
            &mut state,
        );
        decoded.extend_from_slice(piece.get(..written).unwrap_or_default());
        if decoded.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        match result {
            BrotliResult::ResultSuccess => return Ok((decoded, left)),
            BrotliResult::NeedsMoreOutput => {}
            BrotliResult::NeedsMoreInput | BrotliResult::ResultFailure => {
                return Err(BodyError::Malformed(name));
            }
        }
    }
}
