//! What a whole launch becomes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::secret::{Credential, CredentialKind};

const SECRET: &str = "sk-canary-0123456789";

fn carrier(workspace: &Path) -> Carrier {
    let bytes = Zeroizing::new(SECRET.as_bytes().to_vec());
    Carrier {
        watch: Arc::new(Watch::of(
            &Credential::new(CredentialKind::ApiKey, bytes).unwrap(),
        )),
        placeholder: Zeroizing::new("lp-1".to_owned()),
        workspace: Workspace::of(workspace).unwrap(),
        asked: Vec::new(),
    }
}

fn program(kind: AgentKind) -> Program {
    Program {
        path: ByteString::from("/host/bin/claude"),
        argv: vec![ByteString::from("claude")],
        kind,
    }
}

fn carried(
    carrier: &Carrier,
    kind: AgentKind,
    arguments: &[&str],
    variables: &[(&str, &str)],
    directory: &Path,
) -> Result<ExecSpec, Refused> {
    let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
    let wanted = Wanted {
        arguments: &arguments,
        environment: variables
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
        directory,
        terminal: None,
    };
    carrier.carry(wanted, &program(kind))
}

fn variables(spec: &ExecSpec) -> BTreeMap<String, String> {
    let pairs = spec.environment.iter();
    pairs
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// Claude Code gets the forward's socket, the placeholder and a directory of the host; the same again
/// through its settings, which the caller's are merged into.
#[test]
fn a_launch_of_claude_code_leads_to_the_forward() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let spec = carried(
        &carrier(folder.path()),
        AgentKind::ClaudeCode,
        &[
            "--verbose",
            "--settings",
            r#"{"model":"m","env":{"A":"1"}}"#,
        ],
        &[
            ("ANTHROPIC_API_KEY", "sk-other"),
            ("CLAUDE_CODE_ENTRYPOINT", "sdk-py"),
            ("CLAUDE_CONFIG_DIR", "/home/me/.claude"),
            ("MY_SECRET", SECRET),
        ],
        &folder.path().join("sub"),
    )
    .unwrap();
    assert_eq!(text(&spec.directory), "workspace/sub");
    let [name, option, path, rest] = spec.argv.as_slice() else {
        panic!("{:?}", spec.argv)
    };
    assert_eq!(
        (text(name), text(option)),
        ("claude".into(), "--settings".into())
    );
    assert_eq!(text(rest), "--verbose");
    let [file] = spec.files.as_slice() else {
        panic!("{:?}", spec.files)
    };
    assert_eq!(*path, file.placeholder);
    let settings: Value = serde_json::from_slice(&file.content).unwrap();
    assert_eq!(settings["model"], "m");
    assert_eq!(settings["env"]["A"], "1");
    let variables = variables(&spec);
    for (name, expected) in [
        ("ANTHROPIC_BASE_URL", "http://localhost".to_owned()),
        ("ANTHROPIC_UNIX_SOCKET", text(&spec.endpoints.socket)),
        ("ANTHROPIC_AUTH_TOKEN", "lp-1".to_owned()),
        ("NO_PROXY", LOOPBACK.to_owned()),
    ] {
        assert_eq!(variables[name], expected, "{name}");
        assert_eq!(settings["env"][name], expected, "{name}");
    }
    let state = format!("{}/claude", text(&spec.endpoints.session_directory));
    assert_eq!(variables["CLAUDE_CONFIG_DIR"], state);
    assert_eq!(variables["CLAUDE_CODE_ENTRYPOINT"], "sdk-py");
    assert!(!variables.contains_key("ANTHROPIC_API_KEY"));
    assert!(!variables.contains_key("MY_SECRET"));
}

/// Another agent gets the forward's port and its arguments as they are.
#[test]
fn a_launch_of_another_agent_leads_to_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let spec = carried(
        &carrier(folder.path()),
        AgentKind::Other,
        &["--settings", "/x", ""],
        &[],
        folder.path(),
    )
    .unwrap();
    let argv: Vec<String> = spec.argv.iter().map(text).collect();
    assert_eq!(argv, ["claude", "--settings", "/x", ""]);
    assert!(spec.files.is_empty());
    assert_eq!(text(&spec.directory), "workspace");
    let variables = variables(&spec);
    let url = format!("http://127.0.0.1:{}", text(&spec.endpoints.port));
    assert_eq!(variables["ANTHROPIC_BASE_URL"], url);
    assert_eq!(variables["ANTHROPIC_API_KEY"], "lp-1");
    assert!(!variables.contains_key("ANTHROPIC_UNIX_SOCKET"));
}

/// The credential is refused by name in each place that an SDK could put it into, and is never in the
/// message; a directory outside the workspace is refused with both names.
#[test]
fn t05_what_holds_the_credential_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let carrier = carrier(folder.path());
    let servers = format!(r#"{{"mcpServers":{{"a":{{"headers":{{"k":"{SECRET}"}}}}}}}}"#);
    let given = format!(r#"{{"env":{{"K":"{SECRET}"}}}}"#);
    for (arguments, variable, named) in [
        (["--mcp-config", servers.as_str()], "x", "--mcp-config"),
        (["--settings", given.as_str()], "x", "--settings"),
        (["-p", SECRET], "x", "argument 2"),
        (["-p", "hello"], SECRET, "CLAUDE_CODE_X"),
    ] {
        for kind in [AgentKind::ClaudeCode, AgentKind::Other] {
            let variables = [("CLAUDE_CODE_X", variable), ("OWN_KEY", SECRET)];
            let refused = carried(&carrier, kind, &arguments, &variables, folder.path());
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(named) && !text.contains(SECRET), "{text}");
        }
    }
    let elsewhere = carried(&carrier, AgentKind::Other, &[], &[], Path::new("/"));
    let text = elsewhere.unwrap_err().to_string();
    assert!(text.contains("directory / is not inside"), "{text}");
    assert!(
        text.contains(&folder.path().display().to_string()),
        "{text}"
    );
}
