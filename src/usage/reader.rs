//! Reads usage out of a copy of the response while the client gets the bytes themselves.

use serde_json::Value;

use super::Usage;
use super::delta::DeltaKind;
use super::document::Document;
use super::events::Events;
use super::merge::merge_usage;

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
    source: Source,
    tally: Tally,
}

#[derive(Debug)]
enum Source {
    Document(Document),
    Events(Events),
}

/// What the reader knows at any moment, and at the end.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one body, each of which a verdict may turn on"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The body is a stream of events.
    pub is_stream: bool,
    /// Merged usage; `None` when no usage object was seen.
    pub usage: Option<Usage>,
    /// The usage says how much output there was in the end: it came in a `message_delta` or in a
    /// JSON document. A `message_start` only holds a placeholder.
    pub output_is_final: bool,
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
    /// Bytes of content in deltas and blocks so far, UTF-8, thinking included. Of a JSON document:
    /// bytes of the `content` value as it was written.
    pub content_bytes: u64,
    /// Of those, thinking.
    pub thinking_bytes: u64,
    /// `redacted` or signed thinking was seen, so output may be larger than what is visible.
    pub hidden_thinking: bool,
    /// Something in the copy could not be read (bad UTF-8, endless line, bad JSON).
    pub damaged: bool,
}

impl UsageReader {
    /// A reader for one body.
    pub fn new(kind: BodyKind) -> Self {
        let source = match kind {
            BodyKind::Json => Source::Document(Document::new()),
            BodyKind::EventStream => Source::Events(Events::new()),
        };
        let mut tally = Tally::default();
        tally.observed.is_stream = kind == BodyKind::EventStream;
        Self { source, tally }
    }

    /// Takes the next bytes; never fails and never keeps more than its byte budget.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.source {
            Source::Document(document) => document.push(bytes, &mut self.tally),
            Source::Events(events) => events.push(bytes, &mut self.tally),
        }
    }

    /// What is known so far.
    pub fn observed(&self) -> &Observed {
        &self.tally.observed
    }

    /// The end of the body.
    pub fn finish(mut self) -> Observed {
        match self.source {
            Source::Document(document) => document.finish(&mut self.tally),
            Source::Events(events) => events.finish(&mut self.tally),
        }
        self.tally.observed
    }
}

/// Where a usage object stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageSource {
    /// In `message_start`.
    Start,
    /// In `message_delta`.
    Delta,
    /// In a JSON document.
    Document,
    /// In an event that is not known to carry one.
    Other,
}

/// Gathers what the parsers find.
#[derive(Debug, Default)]
pub(super) struct Tally {
    observed: Observed,
    fell: bool,
    /// The split of cache writes in `message_start` explained all writes up to there, so later
    /// ones are those of server tools, which live five minutes.
    split_is_whole: bool,
}

impl Tally {
    pub(super) fn damaged(&mut self) {
        self.observed.damaged = true;
    }

    /// A part was passed over: what it counted is missing until a later count tells.
    pub(super) fn unread(&mut self) {
        self.damaged();
        self.observed.output_is_final = false;
    }

    pub(super) fn started(&mut self) {
        // A second beginning is odd; its counters merge like any other.
        if std::mem::replace(&mut self.observed.started, true) {
            self.fell = true;
        }
    }

    pub(super) fn finished(&mut self) {
        self.observed.finished = true;
    }

    pub(super) fn not_finished(&mut self) {
        self.observed.finished = false;
        self.observed.provider_error = false;
    }

    pub(super) fn provider_error(&mut self) {
        self.observed.provider_error = true;
    }

    pub(super) fn model(&mut self, model: Option<&Value>) {
        if let Some(Value::String(model)) = model
            && self.observed.served_model.is_none()
        {
            self.observed.served_model = Some(model.clone());
        }
    }

    pub(super) fn stop_reason(&mut self, reason: Option<&Value>) {
        if let Some(Value::String(reason)) = reason {
            self.observed.stop_reason = Some(reason.clone());
        }
    }

    pub(super) fn error(&mut self, error: Option<&Value>) {
        let kind = error.and_then(|error| error.get("type"));
        let kind = kind.and_then(Value::as_str).unwrap_or("error");
        self.observed.error_type = Some(kind.to_owned());
    }

    pub(super) fn content(&mut self, kind: DeltaKind, bytes: u64) {
        let observed = &mut self.observed;
        match kind {
            DeltaKind::Visible => {}
            DeltaKind::Thinking => {
                observed.hidden_thinking = true;
                observed.thinking_bytes = observed.thinking_bytes.saturating_add(bytes);
            }
            DeltaKind::Signature => {
                observed.hidden_thinking = true;
                return;
            }
        }
        observed.content_bytes = observed.content_bytes.saturating_add(bytes);
    }

    pub(super) fn document_content(&mut self, bytes: &[u8]) {
        let bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.observed.content_bytes = self.observed.content_bytes.saturating_add(bytes);
    }

    pub(super) fn usage(&mut self, usage: Option<Value>, source: UsageSource) {
        let usage = match usage {
            None | Some(Value::Null) => return,
            Some(Value::Object(usage)) => usage,
            Some(_) => {
                self.unread();
                return;
            }
        };
        let has_output = usage.get("output_tokens").is_some_and(Value::is_number);
        if matches!(source, UsageSource::Delta | UsageSource::Document) && has_output {
            self.observed.output_is_final = true;
        }
        let merged = match self.observed.usage.take() {
            None => usage,
            Some(earlier) => {
                let mut merged = earlier.raw;
                self.fell |= merge_usage(&mut merged, usage);
                merged
            }
        };
        let mut usage = Usage::from_object(merged, self.fell);
        if let Some((five_minutes, one_hour)) = usage.top.split {
            let split = five_minutes.saturating_add(one_hour);
            let extra = usage.top.cache_creation.saturating_sub(split);
            if source == UsageSource::Start {
                self.split_is_whole = split > 0 && extra == 0;
            } else if self.split_is_whole {
                usage.top.split = Some((five_minutes.saturating_add(extra), one_hour));
            }
        }
        self.observed.usage = Some(usage);
    }
}
