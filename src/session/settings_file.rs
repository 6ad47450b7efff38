//! The settings file that keeps Claude Code on the proxy.
//!
//! `env` in a settings file beats the process environment, so a file in the home directory or the
//! workspace could send the CLI elsewhere. What comes through `--settings` beats those files; this
//! module writes such a file, merged with one that the caller gave.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::environment::LOOPBACK;

/// Larger settings files are refused; real ones have a few kilobytes.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// What Claude Code is given as base URL beside a unix socket: without an `http` one it would speak
/// TLS over the socket.
pub const SOCKET_BASE_URL: &str = "http://localhost";

/// Where Claude Code's package lies when it was installed from npm.
const PACKAGE: &str = "@anthropic-ai/claude-code";

/// Programs that run a script given as their first argument.
const SCRIPT_RUNNERS: &[&str] = &["node", "nodejs", "bun"];

/// Variables that a lower settings file may set to lead the CLI elsewhere; ours sets them empty.
pub const NEUTRALISED: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_UNIX_SOCKET",
    "CLAUDE_CODE_API_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
];

/// Why the caller's settings cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("the agent's --settings file {path} cannot be read")]
    Read {
        /// The file as given.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is larger than settings are.
    #[error("the agent's --settings file {path} has more than {SETTINGS_BYTES_MAX} bytes")]
    TooLarge {
        /// The file as given.
        path: PathBuf,
    },
    /// It is not a JSON object.
    #[error("the agent's --settings are not a JSON object: {what}")]
    NotAnObject {
        /// Where and why.
        what: String,
    },
    /// Our own file cannot be written.
    #[error("{path} cannot be written")]
    Write {
        /// Our file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Where Claude Code's own arguments begin in an agent's command line, when it is Claude Code:
/// started by name, by its package's file, or by a script runner with that file.
pub fn claude_arguments_at(argv: &[OsString], program: &Path) -> Option<usize> {
    let argv0 = argv.first()?;
    if Path::new(argv0).file_name() == Some(OsStr::new("claude")) || is_package_file(program) {
        return Some(1);
    }
    let runner = Path::new(argv0).file_name()?.to_str()?;
    let script = argv.get(1)?;
    (SCRIPT_RUNNERS.contains(&runner) && is_package_file(Path::new(script))).then_some(2)
}

/// The same for a command line of another machine, where files cannot be looked at.
pub fn claude_arguments_by_name(argv: &[OsString]) -> Option<usize> {
    let name = Path::new(argv.first()?).file_name()?;
    if name == "claude" {
        return Some(1);
    }
    let runner = name.to_str()?;
    let script = argv.get(1)?.to_string_lossy();
    (SCRIPT_RUNNERS.contains(&runner) && names_package(&script)).then_some(2)
}

fn is_package_file(path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|file| names_package(&file.to_string_lossy()))
}

fn names_package(file: &str) -> bool {
    file.contains(&format!("/node_modules/{PACKAGE}/"))
        || file.contains(&format!("/node_modules/{PACKAGE}-"))
}

/// The agent's arguments without any `--settings`, and the settings that the last one gave; a file's
/// relative name starts from `directory`.
///
/// # Errors
/// When the caller's settings cannot be read as a JSON object.
pub fn take_settings(
    arguments: &[OsString],
    directory: &Path,
) -> Result<(Vec<OsString>, Map<String, Value>), SettingsError> {
    let mut rest = Vec::with_capacity(arguments.len());
    let mut given = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            rest.push(argument.clone());
            rest.extend(arguments.by_ref().cloned());
        } else if argument == "--settings" {
            given = arguments.next().map(OsString::as_os_str);
        } else if let Some(value) = argument.as_bytes().strip_prefix(b"--settings=") {
            given = Some(OsStr::from_bytes(value));
        } else {
            rest.push(argument.clone());
        }
    }
    let settings = given
        .map(|given| read_settings(given, directory))
        .transpose()?;
    Ok((rest, settings.unwrap_or_default()))
}

/// Reads what stands behind `--settings`: inline JSON or the name of a file.
fn read_settings(given: &OsStr, directory: &Path) -> Result<Map<String, Value>, SettingsError> {
    let text = if given.as_bytes().trim_ascii_start().starts_with(b"{") {
        given.as_bytes().to_vec()
    } else {
        let path = directory.join(given);
        let read = |source| SettingsError::Read {
            path: path.clone(),
            source,
        };
        if fs::metadata(&path).map_err(read)?.len() > SETTINGS_BYTES_MAX {
            return Err(SettingsError::TooLarge { path });
        }
        fs::read(&path).map_err(read)?
    };
    serde_json::from_slice(&text).map_err(|error| SettingsError::NotAnObject {
        what: error.to_string(),
    })
}

/// The same as [`merged`] for an agent that reaches the proxy over a unix socket.
pub fn merged_for_socket(
    settings: Map<String, Value>,
    socket: &str,
    placeholder: &str,
) -> Map<String, Value> {
    let mut settings = merged(settings, SOCKET_BASE_URL, placeholder, None);
    if let Some(Value::Object(env)) = settings.get_mut("env") {
        env.insert("ANTHROPIC_UNIX_SOCKET".to_owned(), Value::from(socket));
    }
    settings
}

/// The caller's settings with ours on top: base URL, placeholder, no other way in.
pub fn merged(
    mut settings: Map<String, Value>,
    base_url: &str,
    placeholder: &str,
    inherited_no_proxy: Option<&str>,
) -> Map<String, Value> {
    // A helper's output would be sent in place of the placeholder.
    settings.insert("apiKeyHelper".to_owned(), Value::from(""));
    let mut env = match settings.remove("env") {
        Some(Value::Object(env)) => env,
        Some(_) | None => Map::new(),
    };
    let given_no_proxy = env.get("NO_PROXY").and_then(Value::as_str);
    let no_proxy = match given_no_proxy.or(inherited_no_proxy) {
        Some(old) if old.contains(LOOPBACK) => old.to_owned(),
        Some(old) if !old.is_empty() => format!("{LOOPBACK},{old}"),
        Some(_) | None => LOOPBACK.to_owned(),
    };
    for name in NEUTRALISED {
        env.insert((*name).to_owned(), Value::from(""));
    }
    for (name, value) in [
        ("ANTHROPIC_BASE_URL", base_url),
        ("ANTHROPIC_AUTH_TOKEN", placeholder),
        ("NO_PROXY", no_proxy.as_str()),
        ("no_proxy", no_proxy.as_str()),
    ] {
        env.insert(name.to_owned(), Value::from(value));
    }
    settings.insert("env".to_owned(), Value::Object(env));
    settings
}

/// Writes the settings as a new file that only this user can read.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, settings: &Map<String, Value>) -> Result<(), SettingsError> {
    let failed = |source| SettingsError::Write {
        path: path.to_owned(),
        source,
    };
    let text = serde_json::to_vec(settings).map_err(|error| failed(error.into()))?;
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    file.write_all(&text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    /// Both spellings are taken out, the last one counts, and what stands behind `--` is left.
    #[test]
    fn settings_are_taken_from_the_arguments() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.json");
        fs::write(&file, r#"{"model":"x","env":{"A":"1"}}"#).unwrap();
        let arguments = words(&[
            "-p",
            "--settings",
            r#"{"model":"first"}"#,
            "hello",
            &format!("--settings={}", file.display()),
            "--",
            "--settings",
            "kept",
        ]);
        let (rest, settings) = take_settings(&arguments, Path::new("")).unwrap();
        assert_eq!(rest, words(&["-p", "hello", "--", "--settings", "kept"]));
        assert_eq!(
            Value::Object(settings),
            json!({"model": "x", "env": {"A": "1"}})
        );
    }

    /// What the caller gave stays, but for what would lead past the proxy.
    #[test]
    fn ours_goes_on_top_of_the_callers() {
        let Value::Object(given) = json!({
            "model": "m", "apiKeyHelper": "/bin/leak",
            "env": {"A": "1", "ANTHROPIC_BASE_URL": "https://elsewhere", "CLAUDE_CODE_USE_BEDROCK": "1"},
        }) else {
            unreachable!()
        };
        let settings = Value::Object(merged(given, "http://127.0.0.1:1", "lp-x", Some(".lab")));
        assert_eq!(settings["model"], "m");
        assert_eq!(settings["apiKeyHelper"], "");
        let env = &settings["env"];
        assert_eq!(env["A"], "1");
        assert_eq!(env["ANTHROPIC_BASE_URL"], "http://127.0.0.1:1");
        assert_eq!(env["ANTHROPIC_AUTH_TOKEN"], "lp-x");
        assert_eq!(env["NO_PROXY"], "127.0.0.1,localhost,::1,.lab");
        for name in NEUTRALISED {
            assert_eq!(env[*name], "", "{name}");
        }
    }

    /// Settings that cannot be read are an error before anything starts.
    #[test]
    fn unreadable_settings_are_named() {
        for (given, expected) in [
            ("/nowhere/s.json", "/nowhere/s.json cannot be read"),
            ("{\"a\":", "not a JSON object"),
            ("{\"a\":1} x", "not a JSON object"),
        ] {
            let error = take_settings(&words(&["--settings", given]), Path::new("")).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    /// The file is new, 0600, and never written through a link that lay there before.
    #[test]
    fn the_file_is_private_and_new() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "old").unwrap();
        let path = directory.path().join("settings.json");
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        write(&path, &Map::new()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "old");
        let meta = fs::symlink_metadata(&path).unwrap();
        assert!(meta.is_file());
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }

    /// Claude Code is known by its name, by its package's file, and behind a script runner.
    #[test]
    fn claude_code_is_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let package = directory
            .path()
            .join("node_modules/@anthropic-ai/claude-code");
        fs::create_dir_all(&package).unwrap();
        let script = package.join("cli.js");
        fs::write(&script, "").unwrap();
        let link = directory.path().join("cc");
        std::os::unix::fs::symlink(&script, &link).unwrap();
        let at = |argv: &[&str], program: &Path| claude_arguments_at(&words(argv), program);
        assert_eq!(at(&["claude", "-p"], Path::new("/x/claude")), Some(1));
        assert_eq!(at(&["/opt/claude"], Path::new("/opt/claude")), Some(1));
        assert_eq!(at(&["cc"], &link), Some(1));
        let node = Path::new("/usr/bin/node");
        assert_eq!(at(&["node", script.to_str().unwrap()], node), Some(2));
        assert_eq!(at(&["node", "other.js"], node), None);
        assert_eq!(at(&["sh", "-c", "claude"], Path::new("/bin/sh")), None);
    }
}
