//! What the stand-in answers: the blocks of one reply, cut at `max_tokens` as a model is.

use serde_json::{Value, json};

use super::cache::{items, text_of, tokens_of};
use super::scenario::Scenario;

/// Tokens that a tool call costs beside its input.
const TOOL_CALL_TOKENS: u64 = 20;

/// One block of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// What the model thought.
    Thinking(String),
    /// What it says.
    Text(String),
    /// What it asks the client to do.
    Tool {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// The input as JSON text; not whole when the answer was cut.
        input: String,
    },
}

impl Block {
    fn text_mut(&mut self) -> &mut String {
        match self {
            Self::Thinking(text) | Self::Text(text) | Self::Tool { input: text, .. } => text,
        }
    }

    /// Output tokens of the block.
    pub(crate) fn tokens(&self) -> u64 {
        match self {
            Self::Thinking(text) | Self::Text(text) => tokens_of(text),
            Self::Tool { input, .. } => TOOL_CALL_TOKENS + tokens_of(input),
        }
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Its blocks, in order.
    pub(crate) blocks: Vec<Block>,
    /// Why it ends.
    pub(crate) stop_reason: &'static str,
}

impl Reply {
    /// What a scenario answers to a request. `serial` makes the ids of tool calls distinct.
    pub(crate) fn compose(scenario: &Scenario, request: &Value, serial: u64) -> Self {
        if let Some(title) = structured_title(request) {
            return Self::said(title);
        }
        let mut reply = Self::uncut(scenario, request, serial);
        let asked = request.get("max_tokens").and_then(Value::as_u64);
        reply.cut_at(asked.unwrap_or(0));
        reply
    }

    fn uncut(scenario: &Scenario, request: &Value, serial: u64) -> Self {
        let done = tool_turns(request);
        match scenario {
            Scenario::WriteFile { name, tokens } if done == 0 || was_cut(request) => {
                write_file(request, name, *tokens, serial)
            }
            Scenario::WriteFile { name, .. } => Self::said(format!("{name} is written.")),
            Scenario::Bash(command) if done == 0 => bash(request, command, serial),
            Scenario::Tool { name, input } if done == 0 => {
                Self::calls("I use a tool.", vec![call(name, input, serial, 0)])
            }
            Scenario::Steps(count) if done < *count => {
                bash(request, &format!("echo step {done}"), serial)
            }
            Scenario::Agents(count) if done == 0 => agents(request, *count, serial),
            Scenario::Long(tokens) => Self::said(filler(*tokens)),
            Scenario::Slow(_) | Scenario::Stall(_) => Self::said(filler(40)),
            Scenario::Think => Self {
                blocks: vec![
                    Block::Thinking("The question is short, and so is the answer.".to_owned()),
                    Block::Text("Thought about it: done.".to_owned()),
                ],
                stop_reason: "end_turn",
            },
            Scenario::Refusal => Self {
                blocks: Vec::new(),
                stop_reason: "refusal",
            },
            _ => Self::said("The stand-in says hello; no model was asked.".to_owned()),
        }
    }

    fn said(text: String) -> Self {
        Self {
            blocks: vec![Block::Text(text)],
            stop_reason: "end_turn",
        }
    }

    fn calls(text: &str, tools: Vec<Block>) -> Self {
        let mut blocks = vec![Block::Text(text.to_owned())];
        blocks.extend(tools);
        Self {
            blocks,
            stop_reason: "tool_use",
        }
    }

    /// Output tokens of the whole answer.
    pub(crate) fn tokens(&self) -> u64 {
        self.blocks.iter().map(Block::tokens).sum()
    }

    /// Ends the answer in the middle of a block when it is longer than `max_tokens`.
    fn cut_at(&mut self, max_tokens: u64) {
        if self.tokens() <= max_tokens {
            return;
        }
        self.stop_reason = "max_tokens";
        let mut left = max_tokens;
        let mut kept = Vec::new();
        for mut block in self.blocks.drain(..) {
            let whole = block.tokens();
            if whole <= left {
                left -= whole;
                kept.push(block);
                continue;
            }
            let overhead = whole - tokens_of(block.text_mut());
            let bytes = usize::try_from(left.saturating_sub(overhead) * 4).unwrap_or(usize::MAX);
            if left > overhead {
                let text = block.text_mut();
                text.truncate(text.floor_char_boundary(bytes));
                kept.push(block);
            }
            break;
        }
        self.blocks = kept;
    }

    /// The content of a non-streaming answer.
    pub(crate) fn content(&self) -> Vec<Value> {
        let mut content = Vec::new();
        for block in &self.blocks {
            content.push(match block {
                Block::Thinking(text) => {
                    json!({"type": "thinking", "thinking": text, "signature": SIGNATURE})
                }
                Block::Text(text) => json!({"type": "text", "text": text}),
                Block::Tool { id, name, input } => {
                    let input = serde_json::from_str(input).unwrap_or_else(|_| json!({}));
                    json!({"type": "tool_use", "id": id, "name": name, "input": input})
                }
            });
        }
        content
    }
}

/// What a thinking block is signed with here.
pub(crate) const SIGNATURE: &str = "c3RhbmQtaW4=";

/// Assistant turns with a tool call since the last text of the user.
fn tool_turns(request: &Value) -> u64 {
    let mut turns = 0;
    for message in items(request.get("messages")) {
        let content = items(message.get("content"));
        let has = |kind: &str| content.iter().any(|part| text_of(part.get("type")) == kind);
        match text_of(message.get("role")) {
            "assistant" if has("tool_use") => turns += 1,
            "user" if !has("tool_result") => turns = 0,
            _ => {}
        }
    }
    turns
}

/// Whether the client says that the last tool call was not whole; a model tries again then.
fn was_cut(request: &Value) -> bool {
    let last = items(request.get("messages")).iter().rev();
    let last = last
        .into_iter()
        .find(|message| text_of(message.get("role")) == "user");
    items(last.and_then(|message| message.get("content")))
        .iter()
        .filter(|part| text_of(part.get("type")) == "tool_result")
        .filter_map(|part| part.get("content"))
        .any(|content| content.to_string().contains("InputValidationError"))
}

fn offers(request: &Value, tool: &str) -> bool {
    items(request.get("tools"))
        .iter()
        .any(|offered| text_of(offered.get("name")) == tool)
}

fn call(name: &str, input: &Value, serial: u64, nth: u64) -> Block {
    Block::Tool {
        id: format!("toolu_standin{serial:08}{nth:04}"),
        name: name.to_owned(),
        input: input.to_string(),
    }
}

fn write_file(request: &Value, name: &str, tokens: u64, serial: u64) -> Reply {
    let content = if tokens == 0 {
        "Written by an agent that never saw the key.\n".to_owned()
    } else {
        filler(tokens)
    };
    let directory = working_directory(request);
    if let Some(directory) = directory.filter(|_| offers(request, "Write")) {
        let path = format!("{directory}/{name}");
        let input = json!({"file_path": path, "content": content});
        return Reply::calls(
            &format!("I write {name} now."),
            vec![call("Write", &input, serial, 0)],
        );
    }
    let command = format!("printf '%s' '{}' > '{name}'", content.replace('\'', ""));
    bash(request, &command, serial)
}

fn bash(request: &Value, command: &str, serial: u64) -> Reply {
    if !offers(request, "Bash") {
        return Reply::said("There is no tool for that here.".to_owned());
    }
    let input = json!({"command": command, "description": "One step of the scenario"});
    Reply::calls("I run a command.", vec![call("Bash", &input, serial, 0)])
}

fn agents(request: &Value, count: u64, serial: u64) -> Reply {
    let Some(tool) = ["Agent", "Task"]
        .into_iter()
        .find(|name| offers(request, name))
    else {
        return Reply::said("There are no subagents here.".to_owned());
    };
    let calls = (0..count).map(|nth| {
        let input = json!({
            "description": format!("Part {nth}"),
            "prompt": format!("Say hello as part {nth}. [[scenario: think]]"),
            "subagent_type": "general-purpose",
            "run_in_background": false,
        });
        call(tool, &input, serial, nth)
    });
    Reply::calls("I split the work.", calls.collect())
}

/// The client's working directory as its system prompt names it.
fn working_directory(request: &Value) -> Option<String> {
    let everything = request.to_string();
    let (_, rest) = everything.split_once("orking directory: ")?;
    let end = rest.find(['\\', '"', '\n'])?;
    let (path, _) = rest.split_at(end);
    path.starts_with('/').then(|| path.trim().to_owned())
}

/// A title in the shape that a client's side call asks for with a schema; nothing for other calls.
fn structured_title(request: &Value) -> Option<String> {
    let schema = request.pointer("/output_config/format/schema/properties")?;
    let fields = schema.as_object()?.keys();
    let object: serde_json::Map<_, _> = fields
        .map(|name| (name.clone(), json!("Stand-in")))
        .collect();
    Some(Value::Object(object).to_string())
}

/// A plain text of about so many tokens.
fn filler(tokens: u64) -> String {
    const SENTENCE: &str = "All of this was made up. ";
    let bytes = usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX);
    let mut text = SENTENCE.repeat(bytes.div_ceil(SENTENCE.len()));
    text.truncate(bytes);
    text
}
