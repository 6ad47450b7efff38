//! Reads usage out of a copy of one response, decoded where the response is encoded.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;

use super::decode::Decoder;
use super::leak::{Leak, LeakGuard};
use crate::secret::Credential;
use crate::usage::reader::BodyKind;
use crate::usage::{Observed, UsageReader};

/// Meters one body.
pub(crate) struct Meter {
    copy: MeteredCopy,
    /// The copy could not be decoded to its end.
    damaged: bool,
}

enum MeteredCopy {
    /// The body itself.
    Plain(UsageReader),
    /// The body behind a decoder.
    Encoded(Decoder<Reading>),
    /// An encoding that nobody here reads: nothing is known of the body.
    Unreadable(UsageReader),
    /// `finish` was called.
    Finished,
}

/// Takes decoded bytes; the credential must not hide behind an encoding either.
struct Reading {
    reader: Option<UsageReader>,
    guard: LeakGuard,
    leaked: bool,
}

impl Write for Reading {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.guard.pass(Bytes::copy_from_slice(bytes)).is_err() {
            self.leaked = true;
            return Err(io::Error::other(Leak));
        }
        if let Some(reader) = self.reader.as_mut() {
            reader.push(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Meter {
    pub(crate) fn new(
        kind: BodyKind,
        encoding: Option<&[u8]>,
        credential: &Arc<Credential>,
    ) -> Self {
        let is_plain = encoding.is_none_or(|name| {
            let name = name.trim_ascii();
            name.is_empty() || name.eq_ignore_ascii_case(b"identity")
        });
        let reader = UsageReader::new(kind);
        if is_plain {
            return Self {
                copy: MeteredCopy::Plain(reader),
                damaged: false,
            };
        }
        let reading = Reading {
            reader: Some(reader),
            guard: LeakGuard::new(credential.clone()),
            leaked: false,
        };
        match Decoder::new(encoding, reading) {
            Ok(decoder) => Self {
                copy: MeteredCopy::Encoded(decoder),
                damaged: false,
            },
            Err(_) => Self {
                copy: MeteredCopy::Unreadable(UsageReader::new(kind)),
                damaged: true,
            },
        }
    }

    /// Takes the next bytes of the body as they came.
    ///
    /// # Errors
    /// When they complete the credential behind an encoding.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Leak> {
        match &mut self.copy {
            MeteredCopy::Plain(reader) => reader.push(bytes),
            MeteredCopy::Encoded(_) if self.damaged => {}
            MeteredCopy::Encoded(decoder) => {
                if let Err(error) = decoder.push(bytes) {
                    if decoder.writer().is_some_and(|reading| reading.leaked) {
                        return Err(Leak);
                    }
                    tracing::warn!(%error, "a response's encoding cannot be read");
                    self.damaged = true;
                }
            }
            MeteredCopy::Unreadable(_) | MeteredCopy::Finished => {}
        }
        Ok(())
    }

    /// The end of the body; what is known of it.
    ///
    /// No decoder tells whether an encoding was cut off, so an encoded copy that did not come to
    /// its last event counts as read in part.
    pub(crate) fn finish(&mut self) -> Observed {
        let is_encoded = matches!(self.copy, MeteredCopy::Encoded(_));
        let reader = match std::mem::replace(&mut self.copy, MeteredCopy::Finished) {
            MeteredCopy::Plain(reader) | MeteredCopy::Unreadable(reader) => Some(reader),
            MeteredCopy::Encoded(mut decoder) => {
                decoder.writer().and_then(|reading| reading.reader.take())
            }
            MeteredCopy::Finished => None,
        };
        let mut observed = reader.map(UsageReader::finish).unwrap_or_default();
        observed.damaged |= self.damaged || (is_encoded && !observed.finished);
        observed
    }
}
