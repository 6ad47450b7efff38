//! Content blocks and their sources.

use super::Effect::{
    Bytes, Compaction, Refused, Remote, Tokens, ToolReference, WebSearchResult, Window,
};
use super::Shape::{Choice, Flag, List, Number, Object, Opaque, Text, TextOr};
use super::tools::TOOL_UNION;
use super::{
    CACHE_CONTROL, Choices, Feature, Field, Shape, Union, key, plain, refused_type, variant,
};

/// Most tokens of one image after the provider has scaled it down, whatever its bytes: the limit of
/// the newest models; the older ones stop at 1,568.
pub(in super::super) const IMAGE_TOKENS: u64 = 4_784;

/// A block inside a message.
pub(super) static CONTENT: Shape = Shape::Union(&Union {
    what: "content block",
    default: None,
    variants: &[
        variant("text", Bytes, TEXT),
        variant(
            "tool_use",
            Bytes,
            &[
                plain("id", Text),
                plain("name", Text),
                plain("input", Opaque),
                plain("caller", CALLER),
                plain("toolset_name", Text),
                CACHE_CONTROL,
            ],
        ),
        variant(
            "tool_result",
            Bytes,
            &[
                plain("tool_use_id", Text),
                plain("content", TextOr(&List(&TOOL_RESULT_CONTENT))),
                plain("is_error", Flag),
                plain("toolset_name", Text),
                CACHE_CONTROL,
            ],
        ),
        // The ciphertext of a thinking block is longer than the thought.
        variant(
            "thinking",
            Bytes,
            &[
                plain("thinking", Text),
                plain("signature", Text),
                CACHE_CONTROL,
            ],
        ),
        variant(
            "redacted_thinking",
            Bytes,
            &[plain("data", Text), CACHE_CONTROL],
        ),
        variant("image", Tokens(IMAGE_TOKENS), IMAGE),
        variant("document", Window("a document"), DOCUMENT),
        variant("search_result", Bytes, SEARCH_RESULT),
        variant(
            "tool_addition",
            Bytes,
            &[plain("tool", ADDED), CACHE_CONTROL],
        ),
        variant(
            "tool_removal",
            Bytes,
            &[plain("tool", REMOVED), CACHE_CONTROL],
        ),
        variant(
            "server_tool_use",
            Bytes,
            &[
                plain("id", Text),
                plain("name", Choice(&SERVER_TOOLS)),
                plain("input", Opaque),
                plain("caller", CALLER),
                CACHE_CONTROL,
            ],
        ),
        variant(
            "web_search_tool_result",
            WebSearchResult,
            &[
                plain("tool_use_id", Text),
                plain("content", Opaque),
                plain("caller", CALLER),
                CACHE_CONTROL,
            ],
        ),
        variant(
            "compaction",
            Compaction,
            &[
                plain("content", Text),
                key("encrypted_content", Text, Window("an encrypted summary")),
                plain("signature", Text),
                plain("tool_changes", List(&TOOL_CHANGES)),
                CACHE_CONTROL,
            ],
        ),
        refused_type("web_fetch_tool_result", Feature::ServerTool),
        refused_type("tool_search_tool_result", Feature::ServerTool),
        refused_type("advisor_tool_result", Feature::Advisor),
        refused_type("code_execution_tool_result", Feature::Container),
        refused_type("bash_code_execution_tool_result", Feature::Container),
        refused_type("text_editor_code_execution_tool_result", Feature::Container),
        refused_type("container_upload", Feature::Container),
        refused_type("mcp_tool_use", Feature::RemoteMcp),
        refused_type("mcp_tool_result", Feature::RemoteMcp),
        refused_type("mcp_tool_listing", Feature::RemoteMcp),
        refused_type("fallback", Feature::Fallbacks),
    ],
});

/// A block of the system prompt.
pub(super) static SYSTEM: Shape = Shape::Union(&Union {
    what: "system block",
    default: None,
    variants: &[variant("text", Bytes, TEXT)],
});

static TEXT: &[Field] = &[
    plain("text", Text),
    plain("citations", List(&Shape::Union(&CITATIONS))),
    CACHE_CONTROL,
];

static TOOL_RESULT_CONTENT: Shape = Shape::Union(&Union {
    what: "content block of a tool result",
    default: None,
    variants: &[
        variant("text", Bytes, TEXT),
        variant("image", Tokens(IMAGE_TOKENS), IMAGE),
        variant("document", Window("a document"), DOCUMENT),
        variant("search_result", Bytes, SEARCH_RESULT),
        variant(
            "tool_reference",
            ToolReference,
            &[plain("tool_name", Text), CACHE_CONTROL],
        ),
        variant(
            "browser_state",
            Bytes,
            &[
                plain(
                    "tabs",
                    List(&Object(&[
                        plain("tab_id", Text),
                        plain("title", Text),
                        plain("url", Text),
                        plain("active", Flag),
                    ])),
                ),
                plain("state_changes", List(&Object(STATE_CHANGE))),
                CACHE_CONTROL,
            ],
        ),
    ],
});

static STATE_CHANGE: &[Field] = &[
    plain("type", Text),
    plain("tab_id", Text),
    plain("download_id", Text),
    plain("url", Text),
    plain("path", Text),
    plain("size_bytes", Number),
    plain("error", Text),
];

static IMAGE: &[Field] = &[
    plain("source", Shape::Union(&IMAGE_SOURCES)),
    plain("transformations", Object(&[plain("oversized_image", Text)])),
    CACHE_CONTROL,
];

static IMAGE_SOURCES: Union = Union {
    what: "image source",
    default: None,
    variants: &[
        variant("base64", Bytes, DATA),
        variant("url", Remote, &[plain("url", Text)]),
        variant("file", Remote, &[plain("file_id", Text)]),
    ],
};

static DOCUMENT: &[Field] = &[
    plain("source", Shape::Union(&DOCUMENT_SOURCES)),
    plain("title", Text),
    plain("context", Text),
    plain("citations", Object(&[plain("enabled", Flag)])),
    CACHE_CONTROL,
];

static DOCUMENT_SOURCES: Union = Union {
    what: "document source",
    default: None,
    variants: &[
        variant("base64", Bytes, DATA),
        variant("text", Bytes, DATA),
        variant(
            "content",
            Bytes,
            &[plain("content", TextOr(&List(&SOURCE_CONTENT)))],
        ),
        variant("url", Remote, &[plain("url", Text)]),
        variant("file", Remote, &[plain("file_id", Text)]),
    ],
};

static SOURCE_CONTENT: Shape = Shape::Union(&Union {
    what: "content block of a document",
    default: None,
    variants: &[
        variant("text", Bytes, TEXT),
        variant("image", Tokens(IMAGE_TOKENS), IMAGE),
    ],
});

static DATA: &[Field] = &[plain("media_type", Text), plain("data", Text)];

static SEARCH_RESULT: &[Field] = &[
    plain("content", List(&SYSTEM)),
    plain("source", Text),
    plain("title", Text),
    plain("citations", Object(&[plain("enabled", Flag)])),
    CACHE_CONTROL,
];

/// Blocks that a summary may carry.
static TOOL_CHANGES: Shape = Shape::Union(&Union {
    what: "tool change",
    default: None,
    variants: &[
        variant(
            "tool_addition",
            Bytes,
            &[plain("tool", ADDED), CACHE_CONTROL],
        ),
        variant(
            "tool_removal",
            Bytes,
            &[plain("tool", REMOVED), CACHE_CONTROL],
        ),
    ],
});

const ADDED: Shape = Shape::Union(&Union {
    what: "tool addition",
    default: None,
    variants: &[
        variant("tool_reference", ToolReference, &[plain("name", Text)]),
        variant("tool_definition", Bytes, DEFINITION),
        refused_type("mcp_tool_reference", Feature::RemoteMcp),
        refused_type("mcp_toolset_reference", Feature::RemoteMcp),
    ],
});

static DEFINITION: &[Field] = &[plain("definition", Shape::Union(&TOOL_UNION))];

const REMOVED: Shape = Shape::Union(&Union {
    what: "tool removal",
    default: None,
    variants: &[
        variant("tool_reference", Bytes, &[plain("name", Text)]),
        refused_type("mcp_tool_reference", Feature::RemoteMcp),
        refused_type("mcp_toolset_reference", Feature::RemoteMcp),
    ],
});

/// Who called a tool: nothing that costs.
const CALLER: Shape = Object(&[plain("type", Text), plain("tool_id", Text)]);

static SERVER_TOOLS: Choices = Choices {
    what: "server tool",
    values: &[
        ("web_search", Refused(Feature::WebSearch)),
        ("web_fetch", Refused(Feature::ServerTool)),
        ("tool_search_tool_regex", Refused(Feature::ServerTool)),
        ("tool_search_tool_bm25", Refused(Feature::ServerTool)),
        ("advisor", Refused(Feature::Advisor)),
        ("code_execution", Refused(Feature::Container)),
        ("bash_code_execution", Refused(Feature::Container)),
        ("text_editor_code_execution", Refused(Feature::Container)),
    ],
};

static CITATIONS: Union = Union {
    what: "citation",
    default: None,
    variants: &[
        variant("char_location", Bytes, CITED),
        variant("page_location", Bytes, CITED),
        variant("content_block_location", Bytes, CITED),
        variant("search_result_location", Bytes, CITED),
        variant("web_search_result_location", Bytes, CITED),
    ],
};

/// Keys of all kinds of citation: bytes, every one.
static CITED: &[Field] = &[
    plain("cited_text", Text),
    plain("document_index", Number),
    plain("document_title", Text),
    plain("file_id", Text),
    plain("start_char_index", Number),
    plain("end_char_index", Number),
    plain("start_page_number", Number),
    plain("end_page_number", Number),
    plain("start_block_index", Number),
    plain("end_block_index", Number),
    plain("search_result_index", Number),
    plain("source", Text),
    plain("title", Text),
    plain("encrypted_index", Text),
    plain("url", Text),
];
