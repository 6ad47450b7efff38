//! How the value of a setting is written: as TOML in a file, as text in a variable or a flag.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::credential::CredentialReference;
use super::fields::Fields;
use super::key::did_you_mean;
use super::reference;
use super::url::{may_be_loopback, parse_url};
use crate::cap::OnCap;
use crate::exclude_pattern;
use crate::money::PicoUsd;
use crate::proxy::OnClientGone;
use crate::proxy::gate::WebSearchPolicy;

/// Longest time that can be configured: beyond a month a typing error is likelier than a wish.
const LONGEST: Duration = Duration::from_hours(30 * 24);

/// Most connections that can be configured: what one process may have open on common systems.
const MOST_CONNECTIONS: u64 = 65_536;

/// Web searches per request where an opened `web_search` names no number: the number in the
/// provider's own examples.
const DEFAULT_MAX_USES: u64 = 5;

/// Something wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the file, in bytes; `None` stands for the value's own place.
    pub at: Option<Range<usize>>,
    /// What is wrong, and what to write instead.
    pub what: String,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self {
            at: None,
            what: what.into(),
        }
    }

    pub(super) fn at(at: Range<usize>, what: impl Into<String>) -> Self {
        Self {
            at: Some(at),
            what: what.into(),
        }
    }
}

/// The value of one setting as it was written.
#[derive(Clone, Copy, Debug)]
pub enum Written<'a> {
    /// In a file.
    Toml(&'a Spanned<DeValue<'a>>),
    /// In a variable or a flag.
    Text(&'a str),
}

/// What a value is read against.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The directory that relative paths start from.
    pub directory: &'a Path,
    /// The user's home, for `~/`.
    pub home: Option<&'a Path>,
}

/// A value, or everything that is wrong with it.
pub(super) type Read<T> = Result<T, Vec<Fault>>;

pub(super) fn refuse<T>(what: impl Into<String>) -> Read<T> {
    Err(vec![Fault::new(what)])
}

impl<'a> Written<'a> {
    /// The value as text, where it is a string.
    pub(super) fn text(self, example: &str) -> Read<&'a str> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Toml(value) => value.get_ref().as_str().map_or_else(
                || {
                    let found = type_name(value.get_ref());
                    refuse(format!(
                        "expected a string such as {example}, found {found}"
                    ))
                },
                Ok,
            ),
        }
    }

    /// Dollars, as a string: a TOML float would not be exact.
    pub fn usd(self) -> Read<PicoUsd> {
        if let Self::Toml(value) = self {
            let number = match value.get_ref() {
                DeValue::Float(number) => Some(number.as_str()),
                DeValue::Integer(number) => Some(number.as_str()),
                _ => None,
            };
            if let Some(number) = number {
                return refuse(format!(
                    "money is written as a string, which is exact: \"{number}\" instead of {number}"
                ));
            }
        }
        let text = self.text("\"5.00\"")?;
        text.parse().or_else(|error| refuse(format!("{error}")))
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(self, words: &[(&str, T)]) -> Read<T> {
        let names = || words.iter().map(|(name, _)| *name);
        let list = names()
            .map(|name| format!("\"{name}\""))
            .collect::<Vec<_>>();
        let list = list.join(", ");
        let text = self.text(&list)?;
        match words.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(*value),
            None => refuse(format!(
                "'{text}' is not one of {list}{}",
                did_you_mean(text, names())
            )),
        }
    }

    /// `session.on_cap`.
    pub fn on_cap(self) -> Read<OnCap> {
        self.word(&[
            ("clamp", OnCap::Clamp),
            ("refuse", OnCap::Refuse),
            ("soft", OnCap::Soft),
        ])
    }

    /// `session.on_client_gone`.
    pub fn on_client_gone(self) -> Read<OnClientGone> {
        self.word(&[
            ("drain", OnClientGone::Drain),
            ("cancel", OnClientGone::Cancel),
        ])
    }

    /// A time with its unit.
    pub fn duration(self) -> Read<Duration> {
        let text = self.text("\"120s\"")?;
        parse_duration(text).or_else(refuse)
    }

    /// Yes or no.
    pub fn flag(self) -> Read<bool> {
        match self {
            Self::Text("true") => Ok(true),
            Self::Text("false") => Ok(false),
            Self::Text(text) => refuse(format!("'{text}' is neither true nor false")),
            Self::Toml(value) => match value.get_ref() {
                DeValue::Boolean(flag) => Ok(*flag),
                other => refuse(format!(
                    "expected true or false, found {}",
                    type_name(other)
                )),
            },
        }
    }

    /// A number of at least 1.
    pub(super) fn count(self, most: u64) -> Read<u64> {
        let number = match self {
            Self::Text(text) => text.parse().ok(),
            Self::Toml(value) => match value.get_ref() {
                DeValue::Integer(number) => {
                    u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
                }
                other => {
                    return refuse(format!("expected a number, found {}", type_name(other)));
                }
            },
        };
        match number {
            Some(number) if (1..=most).contains(&number) => Ok(number),
            _ => refuse(format!("expected a whole number from 1 to {most}")),
        }
    }

    /// `limits.max_connections`.
    pub fn connections(self) -> Read<usize> {
        let count = self.count(MOST_CONNECTIONS)?;
        usize::try_from(count).or_else(|_| refuse("more than this machine can count"))
    }

    /// Names: an array of strings in a file, separated by commas in text.
    pub fn names(self) -> Read<Vec<String>> {
        let named = match self {
            Self::Text(text) => text.split(',').map(str::trim).map(str::to_owned).collect(),
            Self::Toml(value) => strings(value, "[\"NAME\"]")?,
        };
        let named: Vec<String> = named;
        if let (Self::Text(""), 1) = (self, named.len()) {
            return Ok(Vec::new());
        }
        if named.iter().any(String::is_empty) {
            return refuse("an empty name means nothing; leave it out");
        }
        Ok(named)
    }

    /// `mirror.exclude`: patterns, each of which is one.
    pub fn patterns(self) -> Read<Vec<String>> {
        let named = self.names()?;
        let places: Vec<_> = match self {
            Self::Toml(value) => {
                let items = value.get_ref().as_array();
                let items = items.into_iter().flat_map(|items| items.iter());
                items.map(|item| Some(item.span())).collect()
            }
            Self::Text(_) => vec![None; named.len()],
        };
        let faults = named.iter().zip(places).filter_map(|(pattern, at)| {
            let why = exclude_pattern::check(pattern).err()?;
            let what = format!(
                "'{pattern}' is no pattern ({why}); correct it, or put a backslash before the \
                 special character"
            );
            Some(Fault { at, what })
        });
        let faults: Vec<Fault> = faults.collect();
        if faults.is_empty() {
            Ok(named)
        } else {
            Err(faults)
        }
    }

    /// A path; relative ones start from the file's directory, `~/` is the home directory.
    pub fn path(self, place: Place<'_>) -> Read<PathBuf> {
        let text = self.text("\"/path/to/file\"")?;
        resolve_path(text, place).or_else(refuse)
    }

    /// `agent.binary`: `auto`, or a path.
    pub fn binary(self, place: Place<'_>) -> Read<Option<PathBuf>> {
        match self.text("\"auto\"")? {
            "auto" => Ok(None),
            _ => self.path(place).map(Some),
        }
    }

    /// The origin of an upstream and an optional path: https, or http to a loopback address.
    pub fn upstream(self) -> Read<http::Uri> {
        let text = self.text("\"https://api.anthropic.com\"")?;
        let uri = parse_url(text).or_else(refuse)?;
        let host = uri.host().unwrap_or_default();
        match uri.scheme_str() {
            Some("https") => Ok(uri),
            Some("http") if may_be_loopback(host) => Ok(uri),
            Some("http") => refuse(
                "http would carry the credential in the clear; use https, or an address of this \
                 machine: localhost, or a literal such as http://127.0.0.1:8080",
            ),
            _ => refuse("expected a URL that starts with https://"),
        }
    }

    /// An HTTP proxy to CONNECT through.
    pub fn http_proxy(self) -> Read<http::Uri> {
        let text = self.text("\"http://proxy.example:3128\"")?;
        let uri = parse_url(text).or_else(refuse)?;
        if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
            return refuse("expected http://HOST:PORT; what goes through it is encrypted anyway");
        }
        Ok(uri)
    }

    /// `gate.web_search`: `false`, or how it is opened.
    pub fn web_search(self) -> Read<Option<WebSearchPolicy>> {
        const EXAMPLE: &str = "{ tokens_per_use = 40_000, max_uses = 5 }, or false";
        match self {
            Self::Text("false") => Ok(None),
            Self::Text(text) => web_search_of_text(text).map(Some).or_else(|what| {
                refuse(format!("{what}; expected tokens_per_use=40000,max_uses=5"))
            }),
            Self::Toml(value) => match value.get_ref() {
                DeValue::Boolean(false) => Ok(None),
                DeValue::Boolean(true) => refuse(format!(
                    "what a search may add has to be bounded: expected {EXAMPLE}"
                )),
                DeValue::Table(_) => web_search_of_table(value).map(Some),
                other => refuse(format!("expected {EXAMPLE}, found {}", type_name(other))),
            },
        }
    }

    /// Where the credential comes from: a table in a file, `[KIND:]env:NAME` or
    /// `[KIND:]file:PATH` in text. What was written is never repeated: it may be a key.
    pub fn credential(self, place: Place<'_>) -> Read<CredentialReference> {
        match self {
            Self::Text(text) => reference::of_text(text, place).or_else(refuse),
            Self::Toml(value) if value.get_ref().is_table() => reference::of_table(value, place),
            Self::Toml(_) => refuse(
                "a secret is never written here, only where to find it: { kind = \"api_key\", env \
                 = \"NAME\" }, or file = \"PATH\", or command = [\"PROGRAM\", \"ARG\"]",
            ),
        }
    }
}

/// The kind of a TOML value, with its article.
fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

pub(super) fn strings(value: &Spanned<DeValue<'_>>, example: &str) -> Read<Vec<String>> {
    let Some(items) = value.get_ref().as_array() else {
        let found = type_name(value.get_ref());
        return refuse(format!(
            "expected an array such as {example}, found {found}"
        ));
    };
    let mut faults = Vec::new();
    let mut texts = Vec::new();
    for item in items {
        if let Some(text) = item.get_ref().as_str() {
            texts.push(text.to_owned());
        } else {
            let found = type_name(item.get_ref());
            faults.push(Fault::at(
                item.span(),
                format!("expected a string, found {found}"),
            ));
        }
    }
    if faults.is_empty() {
        Ok(texts)
    } else {
        Err(faults)
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || {
        format!(
            "'{text}' is not a time; write a number with its unit: \"500ms\", \"120s\", \"2m\", \"1h\""
        )
    };
    let digits = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let (number, unit) = text.split_at(text.len() - digits.len());
    let number: u64 = number.parse().map_err(|_| expected())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(expected()),
    };
    let time = Duration::from_millis(number.saturating_mul(millis));
    if time > LONGEST {
        return Err(format!("'{text}' is longer than 30 days"));
    }
    Ok(time)
}

pub(super) fn resolve_path(text: &str, place: Place<'_>) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("expected a path, found nothing".to_owned());
    }
    match text.strip_prefix("~/") {
        Some(rest) => match place.home {
            Some(home) => Ok(home.join(rest)),
            None => Err("there is no home directory for '~'".to_owned()),
        },
        None => Ok(place.directory.join(text)),
    }
}

fn web_search_of_text(text: &str) -> Result<WebSearchPolicy, String> {
    let mut tokens_per_use = None;
    let mut max_uses = None;
    for part in text.split(',') {
        let (name, number) = part
            .split_once('=')
            .ok_or_else(|| format!("'{part}' is not NAME=NUMBER"))?;
        let number: u64 = number
            .trim()
            .parse()
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| format!("'{number}' is not a number above 0"))?;
        match name.trim() {
            "tokens_per_use" => tokens_per_use = Some(number),
            "max_uses" => max_uses = Some(number),
            other => return Err(format!("'{other}' is unknown")),
        }
    }
    Ok(WebSearchPolicy {
        tokens_per_use: tokens_per_use.ok_or("tokens_per_use is missing")?,
        max_uses: max_uses.unwrap_or(DEFAULT_MAX_USES),
    })
}

fn web_search_of_table(value: &Spanned<DeValue<'_>>) -> Read<WebSearchPolicy> {
    let mut fields = Fields::of(value);
    let tokens_per_use = fields.take("tokens_per_use", |value| value.count(u64::MAX));
    let max_uses = fields.take("max_uses", |value| value.count(u64::MAX));
    if tokens_per_use.is_none() && fields.faults.is_empty() {
        fields.faults.push(Fault::new("tokens_per_use is missing"));
    }
    fields.finish()?;
    Ok(WebSearchPolicy {
        tokens_per_use: tokens_per_use.unwrap_or(u64::MAX),
        max_uses: max_uses.unwrap_or(DEFAULT_MAX_USES),
    })
}
