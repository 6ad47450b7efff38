//! Reads usage out of a copy of the response while the client gets the bytes themselves.

use super::Usage;

/// How the body is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// One JSON document.
    Json,
    /// Server-sent events.
    EventStream,
}

/// Takes decoded body bytes as they come and keeps counters, not the body.
#[derive(Debug)]
pub struct UsageReader {
    kind: BodyKind,
}

/// What the reader knows at any moment, and at the end.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Merged usage; `None` when no usage object was seen.
    pub usage: Option<Usage>,
    /// The response's `model`.
    pub served_model: Option<String>,
    /// The last `stop_reason`.
    pub stop_reason: Option<String>,
    /// `message_start` was seen (or the JSON document is a message).
    pub started: bool,
    /// `message_stop` was seen (or the JSON document is whole).
    pub finished: bool,
    /// Type of an `error` event or of the error document.
    pub error_type: Option<String>,
    /// The body was a complete error document in the provider's shape.
    pub provider_error: bool,
    /// Bytes of content in deltas and blocks so far, UTF-8.
    pub content_bytes: u64,
    /// `redacted` or signed thinking was seen, so output may be larger than what is visible.
    pub hidden_thinking: bool,
    /// Something in the copy could not be read (bad UTF-8, endless line, bad JSON).
    pub damaged: bool,
}

impl UsageReader {
    /// A reader for one body.
    pub fn new(kind: BodyKind) -> Self {
        Self { kind }
    }

    /// Takes the next bytes; never fails and never keeps more than its byte budget.
    pub fn push(&mut self, bytes: &[u8]) {
        let _ = (self.kind, bytes);
        todo!()
    }

    /// What is known so far.
    pub fn observed(&self) -> &Observed {
        todo!()
    }

    /// The end of the body.
    pub fn finish(self) -> Observed {
        todo!()
    }
}
