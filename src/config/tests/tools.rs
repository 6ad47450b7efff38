//! `[audit.tool.NAME]`: tools that have a name, and who may give one.

use std::time::Duration;

use super::super::{AuditTool, Source};
use super::User;

fn tool(text: &str) -> AuditTool {
    let user = User::new().user_file(&format!("[audit.tool.tests]\n{text}"));
    user.load().unwrap().audit.tools["tests"].value.clone()
}

/// A command is enough; it pulls, changes nothing and has no network. Everything that is said is read,
/// and `config show` has it with its line.
#[test]
fn a_tool_is_read_with_its_defaults() {
    let plain = tool("command = [\"pytest\", \"-q\"]");
    let expected = AuditTool {
        command: vec!["pytest".to_owned(), "-q".to_owned()],
        pull: true,
        push: false,
        timeout: None,
        network: false,
    };
    assert_eq!(plain, expected);
    let full = tool(
        "command = [\"black\", \".\"]\npull = false\npush = true\ntimeout = \"5m\"\nnetwork = true",
    );
    assert!(!full.pull && full.push && full.network);
    assert_eq!(full.timeout, Some(Duration::from_mins(5)));
    let user = User::new().user_file("[audit]\ndeny = []\n[audit.tool.\"a.b\"]\ncommand = [\"x\"]");
    let config = user.load().unwrap();
    let shown = super::super::show::entries(&config);
    let shown = shown.iter().find(|entry| entry.key == "audit.tool.\"a.b\"");
    let shown = shown.unwrap();
    assert_eq!(shown.value["command"][0], "x");
    assert!(
        matches!(&shown.source, Source::File { line: 3, .. }),
        "{shown:?}"
    );
}

/// Each thing that is wrong with a tool is told, with its line.
#[test]
fn a_tool_that_cannot_run_is_refused() {
    let places = |text: &str| User::new().user_file(text).problems().join("\n");
    for (text, told) in [
        (
            "[audit.tool.a]\npull = true",
            "command: expected the program",
        ),
        (
            "[audit.tool.a]\ncommand = []",
            "command: expected the program",
        ),
        (
            "[audit.tool.a]\ncommand = \"pytest -q\"",
            "command: expected",
        ),
        (
            "[audit.tool.a]\ncommand = [\"x\"]\nrestore = true",
            "unknown key 'restore'",
        ),
        (
            "[audit.tool.a]\ncommand = [\"x\"]\npsh = true",
            "did you mean 'push'",
        ),
        (
            "[audit.tool.a]\ncommand = [\"x\"]\ntimeout = 5",
            "timeout: expected a string",
        ),
        (
            "[audit.tool]\n-a = { command = [\"x\"] }",
            "a tool's name is made of",
        ),
        ("[audit.tool]\na = \"x\"", "audit.tool.a: expected a table"),
        ("[audit]\ntool = \"x\"", "audit.tool: expected tables"),
    ] {
        let problems = places(text);
        assert!(problems.contains(told), "{text}: {problems}");
    }
}

/// A higher layer replaces a tool whole: a command never gets what another one was allowed. A working
/// directory's file names none and changes none.
#[test]
fn t01_a_tool_belongs_to_whoever_wrote_its_command() {
    const LOWER: &str = "[audit.tool.a]\ncommand = [\"x\"]\nnetwork = true\npush = true";
    let user = User::new().user_file(LOWER);
    let user =
        user.given_file("[audit.tool.a]\ncommand = [\"y\"]\n[audit.tool.b]\ncommand = [\"z\"]");
    let tools = user.load().unwrap().audit.tools;
    let a = &tools["a"].value;
    assert_eq!(a.command, ["y"]);
    assert!(!a.network && !a.push);
    assert_eq!(tools["b"].value.command, ["z"]);
    for text in [
        "[audit.tool.b]\ncommand = [\"/bin/touch\", \"x\"]",
        "[audit.tool.a]\ncommand = [\"x\"]\nnetwork = false",
    ] {
        let user = User::new().user_file(LOWER).working_file(text);
        let problems = user.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with("labproxy.toml:1: audit.tool.")
                && problems[0].contains("a working directory's file does not set this"),
            "{problems:?}"
        );
    }
}
