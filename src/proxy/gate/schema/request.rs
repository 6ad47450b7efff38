//! Top-level keys, and those of messages, thinking, output and context management.
//!
//! The keys are those of the Messages API's beta parameters (SDK 1.14.0) and what captured clients
//! send beside them.

use super::Effect::{Bytes, Compaction, Read, Thinking};
use super::Shape::{Choice, Flag, FlagOr, List, Number, Object, Opaque, Text, TextOr};
use super::blocks::{CONTENT, SYSTEM};
use super::tools::TOOLS;
use super::{
    CACHE_CONTROL, Choices, Feature, Field, Shape, Slot, Union, key, plain, refused, variant,
};

/// The body of `POST /v1/messages` and of `POST /v1/messages/count_tokens`.
pub(in super::super) static REQUEST: &[Field] = &[
    key("model", Text, Read(Slot::Model)),
    key("messages", List(&MESSAGE), Read(Slot::Messages)),
    key("system", TextOr(&List(&SYSTEM)), Read(Slot::Counted)),
    key("tools", List(&TOOLS), Read(Slot::Counted)),
    key(
        "tool_choice",
        Shape::Union(&TOOL_CHOICE),
        Read(Slot::Counted),
    ),
    key("thinking", Shape::Union(&THINKING), Read(Slot::Counted)),
    key("output_config", Object(OUTPUT_CONFIG), Read(Slot::Counted)),
    key(
        "output_format",
        Shape::Union(&OUTPUT_FORMAT),
        Read(Slot::Counted),
    ),
    key("max_tokens", Number, Read(Slot::MaxTokens)),
    key("stream", Flag, Read(Slot::Stream)),
    key("speed", Text, Read(Slot::Speed)),
    plain("metadata", Object(&[plain("user_id", Text)])),
    plain("stop_sequences", List(&Text)),
    plain("temperature", Number),
    plain("top_p", Number),
    plain("top_k", Number),
    // Rates and holds are those of the dearer region whatever stands here.
    plain("inference_geo", Choice(&INFERENCE_GEO)),
    plain("service_tier", Choice(&SERVICE_TIER)),
    plain("context_management", Object(CONTEXT_MANAGEMENT)),
    plain("diagnostics", Object(&[plain("previous_message_id", Text)])),
    // Rules for the classifier of the interactive client's automatic mode.
    plain("safeguards", Opaque),
    CACHE_CONTROL,
    key("compaction", Shape::Union(&TOP_COMPACTION), Bytes),
    key("fallbacks", Opaque, Read(Slot::Fallbacks)),
    refused("fallback_credit_token", Feature::FallbackCredit),
    refused("container", Feature::Container),
    refused("mcp_servers", Feature::RemoteMcp),
    refused("thread", Feature::Thread),
    refused("billing_policy", Feature::OtherPayer),
    refused("user_profile_id", Feature::OtherPayer),
    refused("workspace_id", Feature::OtherPayer),
    refused("betas", Feature::BodyBetas),
    refused("anthropic_beta", Feature::BodyBetas),
];

static MESSAGE: Shape = Object(&[
    plain("role", Choice(&ROLE)),
    plain("content", TextOr(&List(&CONTENT))),
    plain("output_config", Object(&[plain("effort", Text)])),
    plain("clear_at", Text),
]);

static ROLE: Choices = Choices {
    what: "role",
    values: &[("user", Bytes), ("assistant", Bytes), ("system", Bytes)],
};

static INFERENCE_GEO: Choices = Choices {
    what: "inference geography",
    values: &[("us", Bytes), ("global", Bytes)],
};

static SERVICE_TIER: Choices = Choices {
    what: "service tier",
    values: &[("auto", Bytes), ("standard_only", Bytes)],
};

static TOOL_CHOICE: Union = Union {
    what: "tool choice",
    default: None,
    variants: &[
        variant("auto", Bytes, PARALLEL),
        variant("any", Bytes, PARALLEL),
        variant("none", Bytes, PARALLEL),
        variant(
            "tool",
            Bytes,
            &[
                plain("name", Text),
                plain("disable_parallel_tool_use", Flag),
            ],
        ),
    ],
};

static PARALLEL: &[Field] = &[plain("disable_parallel_tool_use", Flag)];

static THINKING: Union = Union {
    what: "thinking",
    default: None,
    variants: &[
        variant("disabled", Bytes, &[plain("display", Text)]),
        variant("adaptive", Thinking, &[plain("display", Text), BINDING]),
        variant(
            "between_tools",
            Thinking,
            &[plain("display", Text), BINDING],
        ),
        variant(
            "enabled",
            Thinking,
            &[
                key("budget_tokens", Number, Read(Slot::ThinkingBudget)),
                plain("display", Text),
                BINDING,
            ],
        ),
    ],
};

const BINDING: Field = plain(
    "block_binding",
    Object(&[plain("prefix_mismatch_behavior", Text)]),
);

/// Effort and budgets change how much is said; `max_tokens` bounds it all the same.
static OUTPUT_CONFIG: &[Field] = &[
    plain("effort", Text),
    plain("format", Shape::Union(&OUTPUT_FORMAT)),
    plain(
        "task_budget",
        Object(&[
            plain("type", Text),
            plain("total", Number),
            plain("remaining", Number),
        ]),
    ),
];

static OUTPUT_FORMAT: Union = Union {
    what: "output format",
    default: None,
    variants: &[variant("json_schema", Bytes, &[plain("schema", Opaque)])],
};

static CONTEXT_MANAGEMENT: &[Field] = &[plain("edits", List(&Shape::Union(&EDITS)))];

static EDITS: Union = Union {
    what: "context edit",
    default: None,
    variants: &[
        variant(
            "clear_tool_uses_20250919",
            Bytes,
            &[
                plain("trigger", Object(AMOUNT)),
                plain("keep", Object(AMOUNT)),
                plain("clear_at_least", Object(AMOUNT)),
                plain("clear_tool_inputs", FlagOr(&List(&Text))),
                plain("exclude_tools", List(&Text)),
            ],
        ),
        variant(
            "clear_thinking_20251015",
            Bytes,
            &[plain("keep", TextOr(&Object(AMOUNT)))],
        ),
        variant(
            "compact_20260112",
            Compaction,
            &[
                plain("instructions", Text),
                plain("pause_after_compaction", Flag),
                plain("trigger", Object(AMOUNT)),
            ],
        ),
    ],
};

static AMOUNT: &[Field] = &[plain("type", Text), plain("value", Number)];

static TOP_COMPACTION: Union = Union {
    what: "compaction",
    default: None,
    variants: &[variant(
        "summarize",
        Compaction,
        &[plain("instructions", Text)],
    )],
};
