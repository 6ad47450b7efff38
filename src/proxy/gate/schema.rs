//! What a schema is made of: the tables below say, for every key, type and value that a request may
//! have, what it does to the price. What no table lists is refused.

mod blocks;
mod request;
mod tools;

pub(super) use request::REQUEST;
pub(super) use tools::WEB_SEARCH as WEB_SEARCH_TOKENS;

/// What a value may be.
#[derive(Debug)]
pub(super) enum Shape {
    /// Any JSON. Not looked into: an argument of a tool, a JSON schema, data of the caller.
    Opaque,
    /// A string.
    Text,
    /// `true` or `false`.
    Flag,
    /// A number.
    Number,
    /// One of a list of strings.
    Choice(&'static Choices),
    /// An object with a list of keys.
    Object(&'static [Field]),
    /// An array.
    List(&'static Self),
    /// An object whose `type` says which keys it has.
    Union(&'static Union),
    /// A string or something else.
    TextOr(&'static Self),
    /// A boolean or something else.
    FlagOr(&'static Self),
}

/// One key of an object.
#[derive(Debug)]
pub(super) struct Field {
    /// The key.
    pub name: &'static str,
    /// What its value may be.
    pub shape: Shape,
    /// What it does to the price.
    pub effect: Effect,
}

/// The types that an object may have.
#[derive(Debug)]
pub(super) struct Union {
    /// What the types are types of.
    pub what: &'static str,
    /// The type of an object without `type`.
    pub default: Option<&'static str>,
    /// All of them.
    pub variants: &'static [Variant],
}

/// One type of object.
#[derive(Debug)]
pub(super) struct Variant {
    /// Its `type`.
    pub tag: &'static str,
    /// What it does to the price.
    pub effect: Effect,
    /// Its keys beside `type`.
    pub fields: &'static [Field],
}

/// The strings that a value may be.
#[derive(Debug)]
pub(super) struct Choices {
    /// What the strings are.
    pub what: &'static str,
    /// All of them, each with what it does to the price.
    pub values: &'static [(&'static str, Effect)],
}

/// What something does to the price of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Nothing beyond its bytes, which are counted as tokens.
    Bytes,
    /// The gate reads its value.
    Read(Slot),
    /// As many tokens as this beyond its bytes.
    Tokens(u64),
    /// As many tokens as the window holds; `count_tokens` can tell how many.
    Window(&'static str),
    /// The provider fetches it: as many tokens as the window holds, and `count_tokens` may be given
    /// something else than the call.
    Remote,
    /// A definition of a tool: the slack of a tool and as many tokens as this beyond its bytes.
    Tool(u64),
    /// The definition of the named tool stands here once more.
    ToolReference,
    /// Web search, run by the provider; the newer types run code between searches.
    WebSearch {
        /// Whether the model may run code between searches.
        with_code: bool,
    },
    /// A result of web search, encrypted.
    WebSearchResult,
    /// One more sampling over the whole prompt.
    Compaction,
    /// A cache write that lives five minutes, unless its `ttl` says otherwise.
    WriteFiveMinutes,
    /// A cache write that lives one hour.
    WriteOneHour,
    /// Thinking is on.
    Thinking,
    /// Its price has no bound that this program could hold.
    Refused(Feature),
}

/// Which value the gate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// `model`.
    Model,
    /// `max_tokens`.
    MaxTokens,
    /// `stream`.
    Stream,
    /// `thinking.budget_tokens`.
    ThinkingBudget,
    /// `speed`.
    Speed,
    /// `messages`.
    Messages,
    /// Another part that `count_tokens` takes.
    Counted,
    /// `fallbacks`: refused, but first searched for fast mode.
    Fallbacks,
}

/// What is refused whatever its bytes, until an operator opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// Other models answer when the first refuses.
    Fallbacks,
    /// Another model advises.
    Advisor,
    /// The context is summarised by one more sampling.
    Compaction,
    /// Containers, skills, code execution.
    Container,
    /// Remote MCP servers.
    RemoteMcp,
    /// The prompt lies at the provider.
    Thread,
    /// Another organisation, workspace or user pays.
    OtherPayer,
    /// A credit from an earlier refusal changes what is counted.
    FallbackCredit,
    /// The provider fetches images or documents.
    RemoteContent,
    /// The provider searches the web.
    WebSearch,
    /// The provider runs a tool and reads the prompt again each time.
    ServerTool,
    /// Beta names in the body.
    BodyBetas,
}

impl Feature {
    /// Why it is refused.
    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::Fallbacks => "other models may answer and bill",
            Self::Advisor => "a second model answers and bills beside the first",
            Self::Compaction => "it samples over the whole context once more",
            Self::Container => "container time is billed and does not show in the usage",
            Self::RemoteMcp => "results of remote servers enter the prompt without a bound",
            Self::Thread => "the prompt lies at the provider, so the body does not bound it",
            Self::OtherPayer => "it changes who is billed",
            Self::FallbackCredit => "it changes what the usage counts",
            Self::RemoteContent => "content that the provider fetches is not bounded by the body",
            Self::WebSearch => "searches cost fees and add results to the prompt",
            Self::ServerTool => "the provider runs it and samples again over the prompt each time",
            Self::BodyBetas => "betas are judged in the anthropic-beta header only",
        }
    }

    /// What would open it.
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::Compaction => "compaction = true under [gate] holds one more window for it",
            Self::RemoteContent => "remote_content = true under [gate] holds a whole window for it",
            Self::WebSearch => {
                "web_search = { tokens_per_use = 40_000 } under [gate] opens it with that allowance"
            }
            Self::BodyBetas => "send them in that header",
            Self::Fallbacks
            | Self::Advisor
            | Self::Container
            | Self::RemoteMcp
            | Self::Thread
            | Self::OtherPayer
            | Self::FallbackCredit
            | Self::ServerTool => "no setting opens it, so leave it out",
        }
    }
}

/// A key whose bytes are all that it costs.
const fn plain(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        effect: Effect::Bytes,
    }
}

/// A key with another effect.
const fn key(name: &'static str, shape: Shape, effect: Effect) -> Field {
    Field {
        name,
        shape,
        effect,
    }
}

/// A key that is refused.
const fn refused(name: &'static str, feature: Feature) -> Field {
    key(name, Shape::Opaque, Effect::Refused(feature))
}

/// A type.
const fn variant(tag: &'static str, effect: Effect, fields: &'static [Field]) -> Variant {
    Variant {
        tag,
        effect,
        fields,
    }
}

/// A type that is refused.
const fn refused_type(tag: &'static str, feature: Feature) -> Variant {
    variant(tag, Effect::Refused(feature), &[])
}

/// `cache_control`, at every place that takes it.
const CACHE_CONTROL: Field = key(
    "cache_control",
    Shape::Union(&Union {
        what: "cache control",
        default: None,
        variants: &[variant(
            "ephemeral",
            Effect::WriteFiveMinutes,
            &[plain(
                "ttl",
                Shape::Choice(&Choices {
                    what: "cache lifetime",
                    values: &[
                        ("5m", Effect::WriteFiveMinutes),
                        ("1h", Effect::WriteOneHour),
                    ],
                }),
            )],
        )],
    }),
    Effect::Bytes,
);
