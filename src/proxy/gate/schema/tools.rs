//! Definitions of tools, at top level and inside messages.

use super::Effect::{Tool, WebSearch};
use super::Shape::{Flag, List, Number, Object, Opaque, Text};
use super::{CACHE_CONTROL, Feature, Field, Shape, Union, Variant, plain, refused_type, variant};

/// The hidden definition of the shell tool: 325 tokens on the newest models.
const BASH: u64 = 325;
/// The hidden definition of the editor tool: 700 tokens.
const EDITOR: u64 = 700;
/// The hidden definition of the memory tool; unpublished, so twice the editor's.
const MEMORY: u64 = 1_400;
/// The older computer tools: 735 tokens of definition and 499 of system prompt, rounded up.
const COMPUTER: u64 = 1_500;
/// The computer toolset: about 4,500 tokens.
const COMPUTER_TOOLSET: u64 = 4_500;
/// The browser toolset: about 6,600 tokens, and 880 of system prompt.
const BROWSER_TOOLSET: u64 = 6_600 + 880;
/// The hidden definition of web search; unpublished, so the memory tool's allowance.
pub(in super::super) const WEB_SEARCH: u64 = 1_400;

/// A definition of a tool.
pub(super) static TOOLS: Shape = Shape::Union(&TOOL_UNION);

/// The same, for blocks that carry one.
pub(super) static TOOL_UNION: Union = Union {
    what: "tool",
    default: Some("custom"),
    variants: &[
        variant("custom", Tool(0), CUSTOM),
        variant("bash_20241022", Tool(BASH), CLIENT),
        variant("bash_20250124", Tool(BASH), CLIENT),
        variant("text_editor_20241022", Tool(EDITOR), CLIENT),
        variant("text_editor_20250124", Tool(EDITOR), CLIENT),
        variant("text_editor_20250429", Tool(EDITOR), CLIENT),
        variant("text_editor_20250728", Tool(EDITOR), CLIENT),
        variant("memory_20250818", Tool(MEMORY), CLIENT),
        variant("computer_20241022", Tool(COMPUTER), CLIENT),
        variant("computer_20250124", Tool(COMPUTER), CLIENT),
        variant("computer_20251124", Tool(COMPUTER), CLIENT),
        variant("computer_toolset_20260801", Tool(COMPUTER_TOOLSET), TOOLSET),
        variant("browser_toolset_20260801", Tool(BROWSER_TOOLSET), TOOLSET),
        web_search("web_search_20250305", false),
        web_search("web_search_20260209", true),
        web_search("web_search_20260318", true),
        refused_type("web_fetch_20250910", Feature::ServerTool),
        refused_type("web_fetch_20260209", Feature::ServerTool),
        refused_type("web_fetch_20260309", Feature::ServerTool),
        refused_type("web_fetch_20260318", Feature::ServerTool),
        refused_type("tool_search_tool_bm25", Feature::ServerTool),
        refused_type("tool_search_tool_bm25_20251119", Feature::ServerTool),
        refused_type("tool_search_tool_regex", Feature::ServerTool),
        refused_type("tool_search_tool_regex_20251119", Feature::ServerTool),
        refused_type("code_execution_20250522", Feature::Container),
        refused_type("code_execution_20250825", Feature::Container),
        refused_type("code_execution_20260120", Feature::Container),
        refused_type("code_execution_20260521", Feature::Container),
        refused_type("advisor_20260301", Feature::Advisor),
        refused_type("mcp_toolset", Feature::RemoteMcp),
    ],
};

const fn web_search(tag: &'static str, with_code: bool) -> Variant {
    variant(tag, WebSearch { with_code }, SEARCH)
}

/// Keys of a tool that the caller defines.
static CUSTOM: &[Field] = &[
    plain("name", Text),
    plain("description", Text),
    plain("input_schema", Opaque),
    plain("input_examples", Opaque),
    plain("defer_loading", Flag),
    plain("eager_input_streaming", Flag),
    plain("strict", Flag),
    plain("allowed_callers", List(&Text)),
    CACHE_CONTROL,
];

/// Keys of a tool that the provider defines and the client runs.
static CLIENT: &[Field] = &[
    plain("name", Text),
    plain("input_examples", Opaque),
    plain("defer_loading", Flag),
    plain("strict", Flag),
    plain("allowed_callers", List(&Text)),
    plain("max_characters", Number),
    plain("display_width_px", Number),
    plain("display_height_px", Number),
    plain("display_number", Number),
    plain("enable_zoom", Flag),
    CACHE_CONTROL,
];

/// Keys of web search.
static SEARCH: &[Field] = &[
    plain("name", Text),
    plain("max_uses", Number),
    plain("allowed_domains", List(&Text)),
    plain("blocked_domains", List(&Text)),
    plain(
        "user_location",
        Object(&[
            plain("type", Text),
            plain("city", Text),
            plain("country", Text),
            plain("region", Text),
            plain("timezone", Text),
        ]),
    ),
    plain("response_inclusion", Text),
    plain("defer_loading", Flag),
    plain("strict", Flag),
    plain("allowed_callers", List(&Text)),
    CACHE_CONTROL,
];

/// Keys of a set of tools that the provider defines and the client runs.
static TOOLSET: &[Field] = &[plain("configs", Object(MEMBERS)), CACHE_CONTROL];

const fn member(name: &'static str) -> Field {
    plain(name, Object(MEMBER))
}

static MEMBER: &[Field] = &[plain("enabled", Flag), plain("defer_loading", Flag)];

/// Members of both toolsets.
static MEMBERS: &[Field] = &[
    member("close_tab"),
    member("cursor_position"),
    member("double_click"),
    member("file_upload"),
    member("find"),
    member("form_input"),
    member("get_page_text"),
    member("hold_key"),
    member("hover"),
    member("javascript_exec"),
    member("key"),
    member("left_click"),
    member("left_click_drag"),
    member("left_mouse_down"),
    member("left_mouse_up"),
    member("list_tabs"),
    member("middle_click"),
    member("mouse_move"),
    member("navigate"),
    member("new_tab"),
    member("read_console"),
    member("read_network"),
    member("read_page"),
    member("right_click"),
    member("screenshot"),
    member("scroll"),
    member("scroll_to"),
    member("switch_tab"),
    member("triple_click"),
    member("type"),
    member("wait"),
    member("zoom"),
];
