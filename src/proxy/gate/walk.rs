//! Walks a body along the schema and gathers what bears on the price.

use crate::pricing::WriteBound;

use super::json::{Kind, Tape, Value, shown};
use super::schema::{
    Choices, Effect, Feature, Field, Shape, Slot, Union, Variant, WEB_SEARCH_TOKENS,
};
use super::{GatePolicy, GateRefusal, Splice};

/// Slack of one tool: names and roles around its definition.
const TOOL_SLACK: u64 = 64;

/// Iterations that the provider's loop over server tools may make beside the searches when code
/// runs between them; the documented default.
const SERVER_LOOP: u64 = 10;

/// What a walk has found.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "five independent facts of a request, not one state"
)]
pub(super) struct Facts<'t> {
    pub model: Option<Value<'t>>,
    pub max_tokens: Option<Value<'t>>,
    pub messages: bool,
    pub stream: bool,
    pub thinking: bool,
    pub thinking_budget: Option<u64>,
    /// Parts that `count_tokens` takes too.
    pub counted: Vec<(&'static str, Value<'t>)>,
    /// Tokens beyond the bytes.
    pub tokens: u64,
    /// What only the window bounds.
    pub window: Option<String>,
    /// Whether `count_tokens` says nothing certain.
    pub uncountable: bool,
    pub writes: WriteBound,
    /// Tools by name, each with what one more copy of its definition takes.
    pub tools: Vec<(Option<Value<'t>>, u64)>,
    /// Names of the tools whose definitions are to stand here once more.
    pub references: Vec<Option<Value<'t>>>,
    pub web_searches: u64,
    pub web_search_tokens: u64,
    /// Times that the model reads the prompt.
    pub samplings: u64,
    pub compaction: bool,
    pub splices: Vec<Splice>,
}

impl Facts<'_> {
    fn new() -> Self {
        Self {
            model: None,
            max_tokens: None,
            messages: false,
            stream: false,
            thinking: false,
            thinking_budget: None,
            counted: Vec::new(),
            tokens: 0,
            window: None,
            uncountable: false,
            writes: WriteBound::None,
            tools: Vec::new(),
            references: Vec::new(),
            web_searches: 0,
            web_search_tokens: 0,
            samplings: 1,
            compaction: false,
            splices: Vec::new(),
        }
    }

    fn add(&mut self, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
    }

    fn write(&mut self, writes: WriteBound) {
        self.writes = self.writes.max(writes);
    }
}

/// Walks the body of a request.
///
/// # Errors
/// The first thing that the schema does not allow.
pub(super) fn walk<'t>(
    tape: &'t Tape<'_>,
    schema: &'static [Field],
    policy: &GatePolicy,
) -> Result<Facts<'t>, GateRefusal> {
    let mut walk = Walk {
        tape,
        policy,
        facts: Facts::new(),
    };
    match tape.root() {
        Some(root) if root.kind() == Kind::Object => walk.object(root, schema)?,
        _ => {
            return Err(GateRefusal::Malformed(
                "the body is not a JSON object".to_owned(),
            ));
        }
    }
    Ok(walk.facts)
}

struct Walk<'t, 'p> {
    tape: &'t Tape<'t>,
    policy: &'p GatePolicy,
    facts: Facts<'t>,
}

type Step = Result<(), GateRefusal>;

impl<'t> Walk<'t, '_> {
    fn object(&mut self, object: Value<'t>, fields: &'static [Field]) -> Step {
        for (key, value) in object.children() {
            let Some(key) = key else { continue };
            match fields.iter().find(|field| key.is(field.name)) {
                // Null says the same as leaving the key out, everywhere in this API.
                Some(_) if value.kind() == Kind::Null => {}
                Some(field) => self.field(value, field)?,
                None => self.unlisted(key, "key", &key.shown())?,
            }
        }
        Ok(())
    }

    fn field(&mut self, value: Value<'t>, field: &'static Field) -> Step {
        self.shape(value, &field.shape)?;
        if let Effect::Read(slot) = field.effect {
            self.read(value, slot, field.name)
        } else {
            self.effect(value, field.effect, field.name)
        }
    }

    fn shape(&mut self, value: Value<'t>, shape: &'static Shape) -> Step {
        let kind = value.kind();
        match shape {
            Shape::Opaque => Ok(()),
            Shape::Text => self.must(value, kind == Kind::String, "a string"),
            Shape::Flag => self.must(value, kind == Kind::Bool, "true or false"),
            Shape::Number => self.must(value, kind == Kind::Number, "a number"),
            Shape::Choice(choices) => self.choice(value, choices),
            Shape::Object(fields) => {
                self.must(value, kind == Kind::Object, "an object")?;
                self.object(value, fields)
            }
            Shape::List(item) => {
                self.must(value, kind == Kind::Array, "an array")?;
                value
                    .children()
                    .try_for_each(|(_, child)| self.shape(child, item))
            }
            Shape::Union(union) => self.union(value, union),
            Shape::TextOr(_) if kind == Kind::String => Ok(()),
            Shape::FlagOr(_) if kind == Kind::Bool => Ok(()),
            Shape::TextOr(other) => {
                let expected = match other {
                    Shape::List(_) => (Kind::Array, "a string or an array"),
                    _ => (Kind::Object, "a string or an object"),
                };
                self.must(value, kind == expected.0, expected.1)?;
                self.shape(value, other)
            }
            Shape::FlagOr(other) => self.shape(value, other),
        }
    }

    fn choice(&mut self, value: Value<'t>, choices: &'static Choices) -> Step {
        self.must(value, value.kind() == Kind::String, "a string")?;
        match choices.values.iter().find(|(text, _)| value.is(text)) {
            Some((text, effect)) => self.effect(value, *effect, text),
            None => self.unlisted(value, choices.what, &value.shown()),
        }
    }

    fn union(&mut self, value: Value<'t>, union: &'static Union) -> Step {
        self.must(value, value.kind() == Kind::Object, "an object")?;
        let tag = value.member("type").filter(|tag| tag.kind() != Kind::Null);
        let variant = match (tag, union.default) {
            (Some(tag), _) => {
                self.must(tag, tag.kind() == Kind::String, "a string")?;
                union.variants.iter().find(|variant| tag.is(variant.tag))
            }
            (None, Some(default)) => union.variants.iter().find(|variant| variant.tag == default),
            (None, None) => return self.must(value, false, "an object with a type"),
        };
        match (variant, tag) {
            (Some(variant), _) => self.variant(value, variant),
            (None, Some(tag)) => {
                self.unlisted(tag, union.what, &tag.shown())?;
                self.window(&format!("{} '{}'", union.what, tag.shown()));
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn variant(&mut self, value: Value<'t>, variant: &'static Variant) -> Step {
        self.effect(value, variant.effect, variant.tag)?;
        for (key, child) in value.children() {
            let Some(key) = key else { continue };
            match variant.fields.iter().find(|field| key.is(field.name)) {
                Some(_) if child.kind() == Kind::Null => {}
                Some(field) => self.field(child, field)?,
                None if key.is("type") => {}
                None => self.unlisted(key, "key", &key.shown())?,
            }
        }
        Ok(())
    }

    fn effect(&mut self, value: Value<'t>, effect: Effect, name: &str) -> Step {
        match effect {
            Effect::Bytes | Effect::Read(_) => {}
            Effect::Tokens(tokens) => self.facts.add(tokens),
            Effect::Window(what) => self.window(what),
            Effect::Remote => {
                self.opened(
                    value,
                    self.policy.remote_content,
                    Feature::RemoteContent,
                    name,
                )?;
                self.window("content that the provider fetches");
                self.facts.uncountable = true;
            }
            Effect::Tool(tokens) => self.tool(value, tokens),
            Effect::ToolReference => {
                let named = value.member("tool_name").or_else(|| value.member("name"));
                self.facts.references.push(named);
            }
            Effect::WebSearch { with_code } => self.web_search(value, with_code, name)?,
            Effect::WebSearchResult => {
                let search = self.policy.web_search;
                self.opened(value, search.is_some(), Feature::WebSearch, name)?;
                self.facts
                    .add(search.map_or(0, |search| search.tokens_per_use));
                self.facts.uncountable = true;
            }
            Effect::Compaction => {
                self.opened(value, self.policy.compaction, Feature::Compaction, name)?;
                self.facts.compaction = true;
                // Where the extra sampling puts its cache is the provider's choice.
                self.facts.write(WriteBound::FiveMinutes);
            }
            Effect::WriteFiveMinutes => self.facts.write(WriteBound::FiveMinutes),
            Effect::WriteOneHour => self.facts.write(WriteBound::OneHour),
            Effect::Thinking => self.facts.thinking = true,
            Effect::Refused(feature) => {
                let open = feature == Feature::WebSearch && self.policy.web_search.is_some();
                self.opened(value, open, feature, name)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, value: Value<'t>, slot: Slot, name: &'static str) -> Step {
        match slot {
            Slot::Model => {
                self.facts.model = Some(value);
                self.facts.counted.push((name, value));
            }
            Slot::MaxTokens => {
                self.whole(value)?;
                self.facts.max_tokens = Some(value);
            }
            Slot::Stream => self.facts.stream = value.raw() == "true",
            Slot::ThinkingBudget => self.facts.thinking_budget = Some(self.whole(value)?),
            Slot::Messages => {
                self.facts.messages = true;
                self.facts.counted.push((name, value));
            }
            Slot::Counted => self.facts.counted.push((name, value)),
            Slot::Speed if value.is("standard") => {}
            Slot::Speed if value.is("fast") => return Err(GateRefusal::Fast),
            Slot::Speed => self.unlisted(value, "speed", &value.shown())?,
            Slot::Fallbacks => {
                let fast = |(_, hop): (_, Value<'_>)| {
                    hop.member("speed").is_some_and(|speed| speed.is("fast"))
                };
                if value.children().any(fast) {
                    return Err(GateRefusal::Fast);
                }
                self.opened(value, false, Feature::Fallbacks, name)?;
            }
        }
        Ok(())
    }

    /// Notes a tool's definition.
    fn tool(&mut self, value: Value<'t>, hidden: u64) {
        let extra = TOOL_SLACK.saturating_add(hidden);
        let bytes = u64::try_from(value.span().len()).unwrap_or(u64::MAX);
        self.facts.add(extra);
        self.facts
            .tools
            .push((value.member("name"), bytes.saturating_add(extra)));
    }

    /// Notes web search, and gives it a number of uses where it has none.
    fn web_search(&mut self, value: Value<'t>, with_code: bool, name: &str) -> Step {
        let search = self.policy.web_search;
        self.opened(value, search.is_some(), Feature::WebSearch, name)?;
        let Some(search) = search else { return Ok(()) };
        let written = value.member("max_uses");
        let given = written.filter(|uses| uses.kind() != Kind::Null);
        let uses = if let Some(given) = given {
            self.whole(given)?
        } else {
            // The object has its type, so a comma is right; it ends before its brace.
            let end = value.span().end.saturating_sub(1);
            let added = format!(",\"max_uses\":{}", search.max_uses);
            let in_place_of_null = |null: Value<'_>| Splice {
                at: null.span(),
                with: search.max_uses.to_string().into_bytes(),
            };
            self.facts.splices.push(written.map_or_else(
                || Splice {
                    at: end..end,
                    with: added.into_bytes(),
                },
                in_place_of_null,
            ));
            search.max_uses
        };
        self.tool(value, WEB_SEARCH_TOKENS);
        let facts = &mut self.facts;
        facts.uncountable = true;
        facts.web_searches = facts.web_searches.saturating_add(uses);
        facts.web_search_tokens = facts
            .web_search_tokens
            .saturating_add(uses.saturating_mul(search.tokens_per_use));
        let loops = if with_code { SERVER_LOOP } else { 0 };
        facts.samplings = facts.samplings.saturating_add(uses.saturating_add(loops));
        // The provider marks what its own loop reads again.
        facts.write(WriteBound::FiveMinutes);
        Ok(())
    }

    fn window(&mut self, what: &str) {
        self.facts.window.get_or_insert_with(|| what.to_owned());
    }

    /// A plain whole number: digits only, so that no reader rounds it or reads it otherwise.
    fn whole(&self, value: Value<'t>) -> Result<u64, GateRefusal> {
        value.plain_integer().ok_or_else(|| {
            let written = shown(value.raw());
            let at = self.tape.path(value);
            GateRefusal::Malformed(format!(
                "{at} must be a whole number in plain digits, not {written}"
            ))
        })
    }

    fn must(&self, value: Value<'t>, holds: bool, what: &str) -> Step {
        if holds {
            return Ok(());
        }
        let at = self.tape.path(value);
        Err(GateRefusal::Malformed(format!("{at} must be {what}")))
    }

    /// Refuses what no table lists, unless the operator has accepted its name.
    fn unlisted(&mut self, value: Value<'t>, what: &str, name: &str) -> Step {
        let accepted = |accept: &String| value.is(accept);
        if self.policy.accept.iter().any(accepted) {
            // What it holds is not looked into, so a one-hour marker may stand there.
            self.facts.write(WriteBound::OneHour);
            return Ok(());
        }
        let place = self.tape.path(value);
        let named = match what {
            "key" => place,
            _ => format!("'{name}' at {place}"),
        };
        Err(GateRefusal::Feature {
            what: format!("unknown {what} {named}"),
            why: "labproxy does not know what it costs".to_owned(),
            remedy: format!(
                "if it is harmless, set accept = [\"{name}\"] under [gate] (gate.accept)"
            ),
        })
    }

    fn opened(&self, value: Value<'t>, open: bool, feature: Feature, name: &str) -> Step {
        if open {
            return Ok(());
        }
        let place = self.tape.path(value);
        let what = if place.ends_with(name) {
            place
        } else {
            format!("{name} at {place}")
        };
        Err(GateRefusal::Feature {
            what,
            why: feature.why().to_owned(),
            remedy: feature.remedy().to_owned(),
        })
    }
}
