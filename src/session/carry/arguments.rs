//! Claude Code's arguments on their way to the host: JSON that may hold secrets and files of this
//! machine become private files, directories of the workspace are mapped, `--settings` is merged
//! with ours.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde_json::{Map, Value};

use super::files::{Files, Workspace, directory_there, read_here};
use super::watch::Watch;
use super::{Refused, argument_name};
use crate::session::settings_file;
use crate::wire::bytes::ByteString;

/// What an option's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    /// JSON or a file of JSON, always sent as a file.
    JsonOrFile,
    /// A file.
    File,
    /// A file when one of that name is here, else what it says.
    TextOrFile,
    /// A directory, or a file that the CLI writes.
    Place,
}

/// Options whose values do not mean the same on the host: name, what the values are, whether several
/// may follow.
const OPTIONS: &[(&str, Values, bool)] = &[
    ("--mcp-config", Values::JsonOrFile, true),
    ("--agents", Values::TextOrFile, false),
    ("--system-prompt-file", Values::File, false),
    ("--append-system-prompt-file", Values::File, false),
    ("--append-subagent-system-prompt-file", Values::File, false),
    ("--add-dir", Values::Place, true),
    ("--plugin-dir", Values::Place, false),
    ("--debug-file", Values::Place, false),
];

/// Where arguments are judged.
pub struct Surroundings<'a> {
    /// The directory here that relative names start from.
    pub directory: &'a Path,
    /// The workspace.
    pub workspace: &'a Workspace,
    /// What stands for the session's directory on the host.
    pub session_directory: &'a ByteString,
    /// The credential.
    pub watch: &'a Watch,
}

/// The arguments for the host and the settings that the caller gave; files are added to `files`.
///
/// # Errors
/// An argument that holds the credential, or names what only this machine has.
pub fn claude(
    arguments: &[OsString],
    files: &mut Files,
    at: &Surroundings<'_>,
) -> Result<(Vec<ByteString>, Map<String, Value>), Refused> {
    // Before anything is read or told, so that no message can hold what an argument must not.
    plain(arguments, at.watch)?;
    let (arguments, settings) = settings_file::take_settings(arguments, at.directory)?;
    let mut carried = Vec::with_capacity(arguments.len());
    let mut arguments = arguments.iter().peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            carried.push(ByteString::from(argument));
            carried.extend(arguments.map(ByteString::from));
            break;
        }
        let (name, joined) = split_option(argument);
        let known = OPTIONS
            .iter()
            .find(|(option, ..)| option.as_bytes() == name);
        let Some((option, values, several)) = known else {
            carried.push(ByteString::from(argument));
            continue;
        };
        if let Some(value) = joined {
            let mut text = [name, b"="].concat();
            text.extend_from_slice(value_there(option, *values, value, files, at)?.as_bytes());
            carried.push(ByteString::from(OsStr::from_bytes(&text)));
            continue;
        }
        carried.push(ByteString::from(argument));
        let mut first = true;
        while let Some(value) =
            arguments.next_if(|value| first || (*several && !value.as_bytes().starts_with(b"-")))
        {
            carried.push(value_there(option, *values, value, files, at)?);
            first = false;
        }
    }
    Ok((carried, settings))
}

/// The arguments of a program of which nothing else is known.
///
/// # Errors
/// An argument that holds the credential.
pub fn plain(arguments: &[OsString], watch: &Watch) -> Result<Vec<ByteString>, Refused> {
    let mut carried = Vec::with_capacity(arguments.len());
    for (index, argument) in arguments.iter().enumerate() {
        if watch.finds(argument.as_bytes()) {
            return Err(Refused::Argument {
                of: argument_name(arguments, index),
            });
        }
        carried.push(ByteString::from(argument));
    }
    Ok(carried)
}

/// `--name=value` as name and value.
fn split_option(argument: &OsStr) -> (&[u8], Option<&OsStr>) {
    let bytes = argument.as_bytes();
    let Some(at) = memchr::memchr(b'=', bytes).filter(|_| bytes.starts_with(b"--")) else {
        return (bytes, None);
    };
    let (name, value) = bytes.split_at(at);
    (name, value.get(1..).map(OsStr::from_bytes))
}

fn value_there(
    option: &str,
    values: Values,
    value: &OsStr,
    files: &mut Files,
    at: &Surroundings<'_>,
) -> Result<ByteString, Refused> {
    let is_json = value.as_bytes().trim_ascii_start().starts_with(b"{");
    let name = (option.trim_start_matches('-'), ".json");
    match values {
        Values::JsonOrFile if is_json => {
            files.add(name, value.as_bytes().to_vec(), option, at.watch)
        }
        Values::TextOrFile if is_json => Ok(ByteString::from(value)),
        Values::JsonOrFile | Values::TextOrFile | Values::File => {
            let ending = Path::new(value).extension().and_then(OsStr::to_str);
            let ending = match ending {
                Some("json") => ".json",
                Some("md") => ".md",
                Some(_) | None => ".txt",
            };
            match read_here(value, at.directory, option)? {
                Some(content) => files.add((name.0, ending), content, option, at.watch),
                None => Ok(ByteString::from(value)),
            }
        }
        Values::Place => directory_there(
            value,
            at.directory,
            at.workspace,
            at.session_directory,
            option,
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use zeroize::Zeroizing;

    use super::*;
    use crate::secret::{Credential, CredentialKind};

    const SECRET: &str = "sk-canary-0123456789";

    struct World {
        folder: tempfile::TempDir,
        workspace: Workspace,
        watch: Watch,
        session_directory: ByteString,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let here = folder.path().join("work");
            fs::create_dir_all(here.join("sub")).unwrap();
            let bytes = Zeroizing::new(SECRET.as_bytes().to_vec());
            Self {
                workspace: Workspace::of(&here).unwrap(),
                folder,
                watch: Watch::of(&Credential::new(CredentialKind::ApiKey, bytes).unwrap()),
                session_directory: ByteString::from("@DIR@"),
            }
        }

        fn write(&self, name: &str, text: &str) -> String {
            let path = self.folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        }

        #[expect(clippy::type_complexity, reason = "what is asserted, in a row")]
        fn carry(
            &self,
            arguments: &[&str],
        ) -> Result<(Vec<String>, Vec<(String, String)>, Value), Refused> {
            let mut files = Files::default();
            let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
            let at = Surroundings {
                directory: &self.workspace.here,
                workspace: &self.workspace,
                session_directory: &self.session_directory,
                watch: &self.watch,
            };
            let (carried, settings) = claude(&arguments, &mut files, &at)?;
            let files = files.into_inner();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let carried = carried.iter().map(|argument| {
                let mut argument = text(argument.as_bytes());
                for file in &files {
                    argument = argument.replace(&text(file.placeholder.as_bytes()), &file.name);
                }
                argument
            });
            let carried = carried.collect();
            let files = files
                .iter()
                .map(|file| (file.name.clone(), text(&file.content)))
                .collect();
            Ok((carried, files, Value::Object(settings)))
        }
    }

    /// JSON and files of this machine become private files, both spellings, several values; names that
    /// are not here are the host's; what stands behind `--` is text.
    #[test]
    fn t05_json_and_files_travel_as_private_files() {
        let world = World::new();
        let servers = r#"{"mcpServers":{"a":{"headers":{"x":"secret"}}}}"#;
        let config = world.write("more.json", r#"{"mcpServers":{}}"#);
        let prompt = world.write("work/prompt.md", "be brief");
        let (carried, files, settings) = world
            .carry(&[
                "--verbose",
                "--mcp-config",
                servers,
                &config,
                "/host/only.json",
                "--settings",
                r#"{"model":"m"}"#,
                "--append-system-prompt-file=prompt.md",
                "--model",
                "x",
                "--",
                "--mcp-config",
                "{text}",
            ])
            .unwrap();
        assert_eq!(
            carried,
            [
                "--verbose",
                "--mcp-config",
                "mcp-config-0.json",
                "mcp-config-1.json",
                "/host/only.json",
                "--append-system-prompt-file=append-system-prompt-file-2.md",
                "--model",
                "x",
                "--",
                "--mcp-config",
                "{text}",
            ]
        );
        assert_eq!(files[0].1, servers);
        assert_eq!(files[1].1, r#"{"mcpServers":{}}"#);
        assert_eq!(files[2].1, fs::read_to_string(prompt).unwrap());
        assert_eq!(settings, json!({"model": "m"}));
    }

    /// Directories of the workspace are mapped, those of the host are left, those that only this machine
    /// has are refused by name.
    #[test]
    fn directories_are_mapped_or_refused() {
        let world = World::new();
        let sub = world.workspace.here.join("sub").display().to_string();
        let (carried, ..) = world
            .carry(&["--add-dir", &sub, "sub", "/host/only", "--plugin-dir=."])
            .unwrap();
        assert_eq!(
            carried,
            [
                "--add-dir",
                "@DIR@/workspace/sub",
                "@DIR@/workspace/sub",
                "/host/only",
                "--plugin-dir=@DIR@/workspace",
            ]
        );
        let outside = world.folder.path().display().to_string();
        let error = world.carry(&["--add-dir", &outside]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("--add-dir") && text.contains(&outside),
            "{text}"
        );
    }

    /// The credential is refused wherever it stands, by the argument's name and never by its value.
    #[test]
    fn t05_an_argument_with_the_credential_is_refused_by_name() {
        let world = World::new();
        let servers = format!(r#"{{"mcpServers":{{"a":{{"headers":{{"k":"{SECRET}"}}}}}}}}"#);
        let file = world.write("servers.json", &servers);
        let settings = world.write("settings.json", &format!(r#"{{"env":{{"K":"{SECRET}"}}}}"#));
        for (arguments, named) in [
            (vec!["-p", "--mcp-config", &servers], "--mcp-config"),
            (vec!["-p", "--mcp-config", &file], "--mcp-config"),
            (vec!["--settings", &settings], "--settings"),
            (vec!["-p", "--", &format!("use {SECRET}")], "argument 3"),
            (vec!["--model", SECRET], "--model"),
            (vec![&format!("--model={SECRET}")], "--model"),
        ] {
            let text = match world.carry(&arguments) {
                Err(error) => error.to_string(),
                // Settings are merged before they are looked at.
                Ok((_, _, given)) => {
                    assert_eq!(named, "--settings", "{given}");
                    let given = given.to_string();
                    let error = Files::default()
                        .add(("s", ""), given.into_bytes(), "--settings", &world.watch)
                        .unwrap_err();
                    error.to_string()
                }
            };
            assert!(
                text.contains(named) && !text.contains(SECRET),
                "{named}: {text}"
            );
        }
    }

    /// What is larger than such files are is refused before it travels.
    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let world = World::new();
        let large = world.write("large.json", &" ".repeat((1 << 20) + 1));
        let error = world.carry(&["--mcp-config", &large]).unwrap_err();
        assert!(error.to_string().contains("--mcp-config"), "{error}");
    }
}
