//! How a credential is referred to, in a file and in text. What was written is never repeated in a
//! message: somebody may have pasted the key itself.

use toml::Spanned;
use toml::de::DeValue;

use super::credential::CredentialReference;
use super::fields::Fields;
use super::value::{Fault, Place, Read, Written, refuse, resolve_path, strings};
use crate::secret::CredentialKind;

const KINDS: [(&str, CredentialKind); 2] = [
    ("api_key", CredentialKind::ApiKey),
    ("oauth", CredentialKind::Oauth),
];

/// `[KIND:]env:NAME` or `[KIND:]file:PATH`.
pub(super) fn of_text(text: &str, place: Place<'_>) -> Result<CredentialReference, String> {
    let expected = "expected env:NAME or file:PATH, with oauth: before it for an OAuth token; the \
                    secret itself is never written here";
    let mut kinds = KINDS.iter();
    let (kind, rest) = kinds
        .find_map(|(name, kind)| {
            let rest = text.strip_prefix(name)?.strip_prefix(':')?;
            Some((*kind, rest))
        })
        .unwrap_or((CredentialKind::ApiKey, text));
    match rest.split_once(':') {
        Some(("env", name)) if is_variable_name(name) => Ok(CredentialReference::Env {
            kind,
            name: name.to_owned(),
        }),
        Some(("file", path)) => Ok(CredentialReference::File {
            kind,
            path: resolve_path(path, place)?,
        }),
        _ => Err(expected.to_owned()),
    }
}

/// Whether a text is the name of a variable. A pasted key has a `-` in it, so it is not.
fn is_variable_name(name: &str) -> bool {
    let body = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(body)
        && name
            .bytes()
            .next()
            .is_some_and(|first| !first.is_ascii_digit())
}

/// `{ kind = "…", env = "…" }`, or `file`, or `command`.
pub(super) fn of_table(
    value: &Spanned<DeValue<'_>>,
    place: Place<'_>,
) -> Read<CredentialReference> {
    let mut fields = Fields::of(value);
    let kind = fields.take("kind", |value| value.word(&KINDS));
    let kind = kind.unwrap_or(CredentialKind::ApiKey);
    let env = fields.take("env", |value| {
        match value.text("\"ANTHROPIC_API_KEY\"")? {
            name if is_variable_name(name) => Ok(CredentialReference::Env {
                kind,
                name: name.to_owned(),
            }),
            _ => refuse("expected the name of a variable; the secret itself is never written here"),
        }
    });
    let file = fields.take("file", |value| {
        let path = value.path(place)?;
        Ok(CredentialReference::File { kind, path })
    });
    let command = fields.take("command", |value| match value {
        Written::Toml(value) => {
            let argv = strings(value, "[\"PROGRAM\", \"ARG\"]")?;
            if argv.first().is_none_or(String::is_empty) {
                return refuse("the command names no program");
            }
            Ok(CredentialReference::Command { kind, argv })
        }
        Written::Text(_) => refuse("expected an array"),
    });
    let sources = fields.count_of(&["env", "file", "command"]);
    if sources != 1 {
        fields.faults.push(Fault::new(format!(
            "exactly one of env, file and command says where the credential is; found {sources}"
        )));
    }
    fields.finish()?;
    match env.or(file).or(command) {
        Some(reference) => Ok(reference),
        None => refuse("it names no source"),
    }
}
