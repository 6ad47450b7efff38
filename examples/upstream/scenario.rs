//! What the stand-in plays for one request: chosen by a directive in the prompt, or for the whole
//! program by a flag.
//!
//! A directive stands anywhere in a user's text, as `[[scenario: write-file hello.txt]]`; the last
//! one in the conversation counts, so a later prompt can ask for something else.

use std::str::FromStr;
use std::time::Duration;

/// How a directive begins.
const OPENING: &str = "[[scenario:";
/// How it ends.
const CLOSING: &str = "]]";
/// The words that a scenario may begin with, for the error text.
const KNOWN: &str = "plain, think, long TOKENS, write-file NAME [TOKENS], bash COMMAND, tool NAME JSON, agents N, steps N, \
     slow MS, stall MS, late MS, bytes, refusal, no-usage, error STATUS [TIMES], sse-error, cut, \
     clean-end, reset, html-502";

/// What is played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// A short text.
    Plain,
    /// A thinking block, then a short text.
    Think,
    /// A text of about this many tokens.
    Long(u64),
    /// The client's `Write` tool (or `Bash`, where there is no `Write`) makes a file whose content
    /// is about this many tokens, then a closing text.
    WriteFile {
        /// The file, relative to the client's working directory.
        name: String,
        /// The content's size; small when it is 0.
        tokens: u64,
    },
    /// The client's `Bash` tool runs this, then a closing text.
    Bash(String),
    /// The client's tool of that name gets this input, then a closing text.
    Tool {
        /// The tool.
        name: String,
        /// Its input, a JSON object.
        input: serde_json::Value,
    },
    /// That many parallel calls of the client's `Agent` tool, then a closing text.
    Agents(u64),
    /// That many `Bash` turns, then a closing text.
    Steps(u64),
    /// A text whose events come this far apart, with a ping between any two.
    Slow(Duration),
    /// A stream that sends pings only for this long after its start, then goes on.
    Stall(Duration),
    /// Response headers come only after this long.
    Late(Duration),
    /// A stream in which every byte is a chunk of its own.
    Bytes,
    /// Declined before any output, which the provider does not charge.
    Refusal,
    /// An answer without any usage.
    NoUsage,
    /// An error in the provider's shape, the first so many times (always, when 0), then a text.
    Error {
        /// The HTTP status.
        status: u16,
        /// How often.
        times: u64,
    },
    /// A stream that ends in an `error` event.
    SseError,
    /// A stream whose connection is cut in the middle.
    Cut,
    /// A stream that ends cleanly in the middle, without its last events.
    CleanEnd,
    /// The connection is closed without an answer.
    Reset,
    /// An edge's web page instead of an answer.
    Html502,
}

/// Why a text names no scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' names no scenario; there are: {KNOWN}")]
pub(crate) struct UnknownScenario {
    text: String,
}

impl Scenario {
    /// The scenario of the last directive in a user's text, or `None` when no text has one.
    ///
    /// # Errors
    /// When that directive names no scenario.
    pub(crate) fn find<'a>(
        texts: impl Iterator<Item = &'a str>,
    ) -> Result<Option<Self>, UnknownScenario> {
        let directive = texts
            .filter_map(|text| text.rsplit_once(OPENING))
            .filter_map(|(_, rest)| rest.split_once(CLOSING))
            .map(|(inner, _)| inner.trim())
            .last();
        directive.map(str::parse).transpose()
    }
}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownScenario {
            text: text.to_owned(),
        };
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        let number = |word: &str| word.parse::<u64>().map_err(|_| unknown());
        let millis = |word: &str| number(word).map(Duration::from_millis);
        let (first, second) = rest.split_once(' ').unwrap_or((rest, "0"));
        Ok(match name {
            "plain" => Self::Plain,
            "think" => Self::Think,
            "long" => Self::Long(number(rest)?),
            "write-file" if !first.is_empty() => Self::WriteFile {
                name: first.to_owned(),
                tokens: number(second)?,
            },
            "bash" if !rest.is_empty() => Self::Bash(rest.to_owned()),
            "tool" if !first.is_empty() => Self::Tool {
                name: first.to_owned(),
                input: serde_json::from_str(second).map_err(|_| unknown())?,
            },
            "agents" => Self::Agents(number(rest)?),
            "steps" => Self::Steps(number(rest)?),
            "slow" => Self::Slow(millis(rest)?),
            "stall" => Self::Stall(millis(rest)?),
            "late" => Self::Late(millis(rest)?),
            "bytes" => Self::Bytes,
            "refusal" => Self::Refusal,
            "no-usage" => Self::NoUsage,
            "error" => Self::Error {
                status: first.parse().map_err(|_| unknown())?,
                times: number(second)?,
            },
            "sse-error" => Self::SseError,
            "cut" => Self::Cut,
            "clean-end" => Self::CleanEnd,
            "reset" => Self::Reset,
            "html-502" => Self::Html502,
            _ => return Err(unknown()),
        })
    }
}
