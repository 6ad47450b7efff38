//! Decodes the metered copy of an encoded response. The client gets the encoded bytes themselves.
//!
//! Every decoder writes what it has as soon as it has it, and none keeps more than its window.

use std::io::{self, Write};

use brotli::DecompressorWriter;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use zstd::zstd_safe::DParameter;

/// More decoded bytes than any answer has; a copy that grows beyond it is a bomb.
const MAX_DECODED: u64 = 1024 * 1024 * 1024;
/// Output buffer of the brotli decoder.
const BROTLI_BUFFER: usize = 8 * 1024;
/// Largest zstd window that RFC 9659 permits on the web: 8 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Takes decoded bytes; a limit makes it fail.
pub(crate) struct Sink<W> {
    pub(crate) inner: W,
    left: u64,
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.left = self
            .left
            .checked_sub(length)
            .ok_or_else(|| io::Error::other("the decoded answer is too long"))?;
        self.inner.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A decoder for one `content-encoding`, in front of a writer of decoded bytes.
pub(crate) enum Decoder<W: Write> {
    /// Nothing is decoded.
    Identity(Sink<W>),
    /// gzip, members one after another included.
    Gzip(Box<MultiGzDecoder<Sink<W>>>),
    /// `deflate`, whose first byte tells which of its two readings is meant.
    Deflate(Option<Sink<W>>),
    /// zlib.
    Zlib(Box<ZlibDecoder<Sink<W>>>),
    /// Deflate without a wrapper, which some servers send.
    RawDeflate(Box<DeflateDecoder<Sink<W>>>),
    /// Brotli.
    Brotli(Box<DecompressorWriter<Sink<W>>>),
    /// zstd.
    Zstd(Box<zstd::stream::write::Decoder<'static, Sink<W>>>),
}

impl<W: Write> Decoder<W> {
    /// A decoder for the header's value; `Err` gives the writer back for an encoding that nobody
    /// here can read.
    pub(crate) fn new(encoding: Option<&[u8]>, writer: W) -> Result<Self, W> {
        let sink = Sink {
            inner: writer,
            left: MAX_DECODED,
        };
        let name = encoding.unwrap_or_default().trim_ascii();
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        Ok(if name.is_empty() || is(b"identity") {
            Self::Identity(sink)
        } else if is(b"gzip") || is(b"x-gzip") {
            Self::Gzip(Box::new(MultiGzDecoder::new(sink)))
        } else if is(b"deflate") {
            Self::Deflate(Some(sink))
        } else if is(b"br") {
            Self::Brotli(Box::new(DecompressorWriter::new(sink, BROTLI_BUFFER)))
        } else if is(b"zstd") {
            match zstd_decoder() {
                Some(raw) => Self::Zstd(Box::new(zstd::stream::write::Decoder::with_decoder(
                    sink, raw,
                ))),
                None => return Err(sink.inner),
            }
        } else {
            return Err(sink.inner);
        })
    }

    /// Decodes what can be decoded of `bytes` now.
    ///
    /// # Errors
    /// When the bytes are not of this encoding, or decode to too much.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Self::Deflate(sink) = self {
            let (Some(first), Some(taken)) = (bytes.first(), sink.take()) else {
                return Ok(());
            };
            // A zlib header's low four bits are 8, which begins no sensible bare deflate block.
            *self = if first & 0x0f == 8 {
                Self::Zlib(Box::new(ZlibDecoder::new(taken)))
            } else {
                Self::RawDeflate(Box::new(DeflateDecoder::new(taken)))
            };
        }
        match self {
            Self::Identity(sink) => sink.write_all(bytes),
            Self::Gzip(decoder) => write_and_flush(decoder.as_mut(), bytes),
            Self::Zlib(decoder) => write_and_flush(decoder.as_mut(), bytes),
            Self::RawDeflate(decoder) => write_and_flush(decoder.as_mut(), bytes),
            Self::Brotli(decoder) => write_and_flush(decoder.as_mut(), bytes),
            Self::Zstd(decoder) => write_and_flush(decoder.as_mut(), bytes),
            Self::Deflate(_) => Ok(()),
        }
    }

    /// The writer of decoded bytes.
    pub(crate) fn writer(&mut self) -> Option<&mut W> {
        let sink = match self {
            Self::Identity(sink) => sink,
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Zlib(decoder) => decoder.get_mut(),
            Self::RawDeflate(decoder) => decoder.get_mut(),
            Self::Brotli(decoder) => decoder.get_mut(),
            Self::Zstd(decoder) => decoder.get_mut(),
            Self::Deflate(sink) => sink.as_mut()?,
        };
        Some(&mut sink.inner)
    }
}

fn write_and_flush(decoder: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    decoder.write_all(bytes)?;
    decoder.flush()
}

fn zstd_decoder() -> Option<zstd::stream::raw::Decoder<'static>> {
    let mut raw = zstd::stream::raw::Decoder::new().ok()?;
    raw.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))
        .ok()?;
    Some(raw)
}
