//! `audit run NAME`: tools of the configuration.

use std::fs;

use serde_json::Value;

use crate::place::Place;

/// A named tool runs as its table says: it pulls or looks at what was pulled last, and what it makes is
/// pushed or nobody's.
#[test]
fn a_named_tool_runs_as_its_table_says() {
    let place = Place::new("true");
    place.configure(
        "[audit.tool.tests]\ncommand = [\"grep\", \"-qx\", \"one\", \"a.txt\"]\n\
         [audit.tool.stamp]\ncommand = [\"sh\", \"-c\", \"echo ok > stamp\"]\npush = true\n\
         [audit.tool.last]\ncommand = [\"cat\", \"a.txt\"]\npull = false\n\
         [audit.tool.slow]\ncommand = [\"sleep\", \"61.5\"]\ntimeout = \"500ms\"",
    );
    let run = |name: &str| place.labproxy(&["audit", "run", name]);
    let none = run("last");
    assert_eq!(none.code, Some(0), "the session's end pulled: {none:?}");
    assert_eq!(none.stdout, "one");
    let done = run("tests");
    assert_eq!(done.code, Some(0), "{done:?}");
    fs::write(place.there("a.txt"), "two\n").unwrap();
    assert_eq!(run("last").stdout, "one", "nobody asked the host");
    let done = run("tests");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert_eq!(run("last").stdout, "two");
    let done = run("stamp");
    assert_eq!(done.code, Some(0), "{done:?}");
    for root in [place.there(""), place.world.rig.path("work")] {
        assert_eq!(fs::read(root.join("stamp")).unwrap(), b"ok\n");
        assert_eq!(fs::read(root.join("a.txt")).unwrap(), b"two\n");
    }
    assert_eq!(run("slow").code, Some(124));
    let names: Vec<Value> = place
        .audits()
        .iter()
        .map(|audit| audit["named"].clone())
        .collect();
    assert_eq!(
        names,
        ["last", "tests", "last", "tests", "last", "stamp", "slow"]
    );
    assert_eq!(
        place.audits()[0]["tool"],
        serde_json::json!(["cat", "a.txt"])
    );
    let listed = place.labproxy(&["audit", "tools", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let stamp = &listed["tools"][2];
    assert_eq!(
        (&stamp["name"], &stamp["push"]),
        (&Value::from("stamp"), &Value::from(true))
    );
    let table = place.labproxy(&["audit", "tools"]);
    assert!(table.stdout.contains("grep -qx one a.txt"), "{table:?}");
    let wrong = run("test");
    assert_eq!(wrong.code, Some(125), "{wrong:?}");
    assert!(wrong.stderr.contains("did you mean 'tests'?"), "{wrong:?}");
    let evil = "[audit.tool.tests]\ncommand = [\"true\"]\n";
    fs::write(place.world.rig.path("work/labproxy.toml"), evil).unwrap();
    let refused = run("tests");
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("a working directory's file does not set this"),
        "{refused:?}"
    );
}
