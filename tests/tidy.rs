//! House rules that no lint knows: sizes, names, who may know whom, and documents that stay true.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::as_conversions,
    missing_docs,
    reason = "test code"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// A longer file holds two things.
const FILE_LINES_MAX: usize = 500;
/// A longer function does not fit on a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// A test may hold a table of cases.
const TEST_LINES_MAX: usize = 100;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 7] = [
    "util", "utils", "helper", "helpers", "common", "misc", "manager",
];
/// Modules of `src`, from the ground up: each may name only those on its own line and before. The
/// two pairs know each other's types: a bill is made from usage and a verdict from a bill; the
/// ledger records what the cap decided and the cap asks the ledger.
const LAYERS: [&[&str]; 18] = [
    &["tree"],
    &["wire", "processes"],
    &["remote", "bin"],
    &[
        "money",
        "id",
        "clock",
        "escape",
        "secret",
        "plain_file",
        "quote",
        "destination",
        "exclude_pattern",
    ],
    &["table"],
    &["report"],
    &["pricing", "usage"],
    &["ledger", "cap"],
    &["receipt"],
    &["proxy"],
    &["config"],
    &["child"],
    &["tunnel"],
    &["mirror"],
    &["session"],
    &["audit"],
    &["cli"],
    &["main", "lib"],
];
/// Modules whose code counts money: no floating point there.
const MONEY: [&str; 6] = ["money", "pricing", "usage", "ledger", "cap", "proxy"];

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The path from the top of the package, as `src/proxy/mod.rs`.
    fn name(&self) -> String {
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        self.path.strip_prefix(top).unwrap().display().to_string()
    }

    /// `proxy` for `src/proxy/gate/mod.rs` and `src/proxy.rs`; nothing outside `src`.
    fn module(&self) -> Option<String> {
        let name = self.name();
        let inside = name.strip_prefix("src/")?;
        let first = inside.split('/').next()?;
        Some(first.trim_end_matches(".rs").to_owned())
    }

    /// Lines of code before the first test module, without comments and text after `//`.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        lines
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
            .map(|(at, line)| (at + 1, line.split("//").next().unwrap()))
    }
}

fn collect(folder: &Path, wanted: &dyn Fn(&Path) -> bool, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            let name = entry.file_name();
            if name != "target" && name != ".git" && name != "node_modules" {
                collect(&path, wanted, found);
            }
        } else if wanted(&path)
            && let Ok(text) = fs::read_to_string(&path)
        {
            found.push(Source { path, text });
        }
    }
}

fn files(folder: &str, wanted: &dyn Fn(&Path) -> bool) -> Vec<Source> {
    let mut found = Vec::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder),
        wanted,
        &mut found,
    );
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn rust_files() -> Vec<Source> {
    let is_rust = |path: &Path| path.extension().is_some_and(|ending| ending == "rs");
    ["src", "tests", "examples", "benches", "fuzz"]
        .into_iter()
        .flat_map(|folder| files(folder, &is_rust))
        .collect()
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// No file of code is longer than 500 lines, and each begins by saying what it is.
#[test]
fn files_are_short_and_say_what_they_are() {
    let mut problems = Vec::new();
    for source in rust_files() {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            problems.push(format!("{}: {lines} lines", source.name()));
        }
        if !source.text.starts_with("//!") && !source.name().starts_with("tests/ui/") {
            problems.push(format!("{}: no `//!` first", source.name()));
        }
    }
    assert_none(&problems);
}

/// No function is longer than 70 lines (100 in `tests`), the names in a list of one a line not counted: taking a
/// struct apart in full is how a new field is not forgotten. Relies on the formatter: a function
/// ends at the first closing brace that stands as far in as its `fn`.
#[test]
fn functions_fit_on_a_screen() {
    let mut problems = Vec::new();
    for source in rust_files() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let Some(indent) = function_indent(line) else {
                continue;
            };
            let end = format!("{}}}", " ".repeat(indent));
            let body = lines[start..]
                .iter()
                .take_while(|line| **line != end)
                .filter(|line| !is_list_item(line));
            let length = body.count() + 1;
            let name = source.name();
            let most = if name.starts_with("tests/") {
                TEST_LINES_MAX
            } else {
                FUNCTION_LINES_MAX
            };
            if length > most {
                problems.push(format!("{name}:{}: {length} lines", start + 1));
            }
        }
    }
    assert_none(&problems);
}

/// Whether a line is only a name and a comma.
fn is_list_item(line: &str) -> bool {
    let name = line.trim().strip_suffix(',');
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// How far in a function with a body begins, when this line begins one.
fn function_indent(line: &str) -> Option<usize> {
    let code = line.trim_start();
    let words = ["pub ", "pub(crate) ", "pub(super) ", "const ", "async "];
    let mut rest = code;
    while let Some(after) = words.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = after;
    }
    let has_body = !rest.ends_with(';');
    (rest.starts_with("fn ") && has_body).then(|| line.len() - code.len())
}

/// No file or folder of code has a name that says nothing.
#[test]
fn names_say_what_is_inside() {
    let mut problems = Vec::new();
    for source in rust_files() {
        let name = source.name();
        for part in name.split('/') {
            if EMPTY_NAMES.contains(&part.trim_end_matches(".rs")) {
                problems.push(format!("{name}: '{part}' says nothing"));
            }
        }
    }
    assert_none(&problems);
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// A module names only those below it, so that each can be read after those it stands on.
#[test]
fn modules_know_only_those_below_them() {
    let mut problems = Vec::new();
    for source in files("src", &|path| {
        path.extension().is_some_and(|end| end == "rs")
    }) {
        let module = source.module().unwrap();
        let Some(layer) = layer_of(&module) else {
            problems.push(format!("src/{module}: has no place in LAYERS"));
            continue;
        };
        for (at, line) in source.code() {
            for named in line.split("crate::").skip(1) {
                let named: String = named
                    .chars()
                    .take_while(|letter| letter.is_ascii_lowercase() || *letter == '_')
                    .collect();
                if layer_of(&named).is_some_and(|other| other > layer) {
                    problems.push(format!("{}:{at}: {module} names {named}", source.name()));
                }
            }
        }
    }
    assert_none(&problems);
}

/// Money is whole numbers: no floating-point type in the modules that count it. The one exception
/// compares odd numbers that a provider sent, before any of them could become money.
#[test]
fn money_has_no_floats() {
    let mut problems = Vec::new();
    for source in rust_files() {
        if !source
            .module()
            .is_some_and(|module| MONEY.contains(&module.as_str()))
            || source.name() == "src/usage/merge.rs"
        {
            continue;
        }
        for (at, line) in source.code() {
            if line.contains("f64") || line.contains("f32") {
                problems.push(format!("{}:{at}: {line}", source.name()));
            }
        }
    }
    assert_none(&problems);
}

/// Some things have one place: the environment, the calendar, starting programs.
#[test]
fn one_place_for_environment_clock_and_programs() {
    let places: [(&[&str], &[&str]); 3] = [
        // The credential command gets an environment built from three variables.
        (
            &["env::var", "env::vars"],
            &[
                "src/config/environment.rs",
                "src/proxy/credential",
                "src/remote/login.rs",
            ],
        ),
        (&["SystemTime::now", "Timestamp::now"], &["src/clock.rs"]),
        (
            &["process::Command"],
            &[
                "src/child.rs",
                "src/proxy/credential",
                "src/remote/",
                "src/session/detach.rs",
            ],
        ),
    ];
    let mut problems = Vec::new();
    for source in files("src", &|path| {
        path.extension().is_some_and(|end| end == "rs")
    }) {
        for (at, line) in source.code() {
            for (calls, allowed) in places {
                let called = calls.iter().any(|call| line.contains(call));
                let name = source.name();
                if called && !allowed.iter().any(|place| name.starts_with(place)) {
                    problems.push(format!("{name}:{at}: {}", line.trim()));
                }
            }
        }
    }
    assert_none(&problems);
}

/// Nothing here names a package server or the place where it was written.
#[test]
fn no_package_server_and_no_workplace_is_named() {
    let banned = [
        ["registry.", "npmjs"].concat(),
        ["pypi", ".org"].concat(),
        ["python", "hosted"].concat(),
        ["static.", "crates.io"].concat(),
        ["index.", "crates.io"].concat(),
        ["deb.", "debian.org"].concat(),
        ["/work/", "shared"].concat(),
        ["/work/", "main"].concat(),
        ["/tmp", "/h/"].concat(),
    ];
    let everything = files(".", &|path| {
        path.file_name().is_some_and(|n| n != "Cargo.lock")
    });
    assert!(everything.len() > 20, "the walk finds the package's files");
    let mut problems = Vec::new();
    for source in everything {
        for (at, line) in source.text.lines().enumerate() {
            if banned.iter().any(|name| line.contains(name.as_str())) {
                problems.push(format!("{}:{}", source.name(), at + 1));
            }
        }
    }
    assert_none(&problems);
}

/// The cases that concern what is built: threats, metering cases, bad input (`B`), remote cases (`TB`),
/// what the tunnel must show (`TU`) and keep (`V`).
const CASES: &str = "\
    T01 T07 T08 T09 T10 T11 T12 T17 T18 T19 T20 T21 T22 T23 T24 T25 T26 T27 T36 T37 T38 T39 T40 \
    C01 C02 C03 C04 C05 C06 C07 C10 C11 C12 C13 C14 C15 C16 C18 C21 C22 C23 C24 C25 C28 C31 \
    P01 P02 P03 P04 P05 P07 P08 P10 P11 P12 P14 P16 P17 P18 P19 P20 P21 U01 U03 U04 U05 U06 U08 \
    K01 K02 K03 K04 K05 K07 K08 K09 K10 K11 K14 K15 K16 K17 K18 K19 K20 K21 K23 K24 K25 \
    D01 D02 D03 D04 D06 D07 D08 D09 D11 D12 D14 D15 L02 L03 L04 \
    S01 S02 S03 S04 S05 S06 S07 S09 S10 S11 S13 S15 S17 S18 S19 S20 S21 \
    A01 A03 A04 A05 A07 A08 A09 A10 A11 A12 A13 A15 A18 A19 A20 A21 A22 \
    X01 X02 X05 X06 X07 X08 X10 X11 X12 X13 X14 X16 X17 \
    E01 E02 E03 E04 E06 E07 E09 E10 E11 E12 E14 E15 E16 \
    B01 B02 B03 B04 B05 B06 B07 B08 B09 B10 B11 B12 B13 B14 B15 B16 B17 B18 B19 B20 B21 B22 B23 TB09 TB10 TB72 TU02 TU10 \
    T03 T05 TB01 TB02 TB04 TB08 TB12 TU03 TU04 TU05 TU08 TU09 TU11 \
    T13 T16 T35 TB07 TB15 TB16 TB17 TB19 TB20 TB22 TU01 \
    M05 M07 M08 M09 M12 M16 M39 M47 M49 M60 M61 T32 \
    T30 T31 M29 M54 M63 M64 M68 M69 M71 M72 M74 M76 M78 T04 T28 TB09 TB10 TB11 TB13 TB21 TB24 TB25 TB26 TB28 TB29 TB31 TB35 TB36 TU02 TU06 TU07 \
    TU10 TU12 V01 V02 V03 V04 V05 V06 \
    T02 T06 T14 T33 M30 M31 M34 M37 M40 M77 M01 M02 M04 M14 M22 M23 M25 M26 M41 M42 M43 M44 M45 M33 M48 M50 M51 M53 M56 M57 M58 M66 M67 M35";
/// The cases that have a reason in place of a test.
const CASES_WITHOUT_TEST: [&str; 2] = ["A22", "X13"];

/// Every case has one row in docs/cases.md, each test that a row names exists, and a test whose name
/// begins with the id of a case stands in the row of that case.
#[test]
fn every_case_names_its_tests() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cases.md"));
    let text = text.unwrap();
    let sources = rust_files();
    let functions: Vec<&str> = sources
        .iter()
        .flat_map(|source| source.text.lines())
        .filter_map(|line| {
            line.trim_start()
                .trim_start_matches("async ")
                .strip_prefix("fn ")
        })
        .filter_map(|rest| rest.split('(').next())
        .collect();
    let mut problems = Vec::new();
    for case in CASES.split_whitespace() {
        let start = format!("| {case} |");
        let rows: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&start))
            .collect();
        let [row] = rows[..] else {
            problems.push(format!("{case}: {} rows", rows.len()));
            continue;
        };
        let tests = row.rsplit_once(" | ").unwrap().1;
        let named: Vec<&str> = quoted(tests).filter(|word| word.contains('_')).collect();
        if named.is_empty() != CASES_WITHOUT_TEST.contains(&case) {
            problems.push(format!("{case}: {} tests", named.len()));
        }
        for name in &named {
            if !functions.contains(name) {
                problems.push(format!("{case}: there is no test {name}"));
            }
        }
        let id = case.to_lowercase();
        for function in &functions {
            if cases_of(function).any(|of| of == id) && !named.contains(function) {
                problems.push(format!("{case}: {function} is not in its row"));
            }
        }
    }
    assert_none(&problems);
}

/// The ids that a test's name begins with: `t11` and `d15` of `d15_t11_a_time_out_is_a_504`; one or two
/// letters, two digits.
fn cases_of(function: &str) -> impl Iterator<Item = &str> {
    function.split('_').take_while(|word| {
        let letters = word.trim_end_matches(|digit: char| digit.is_ascii_digit());
        word.len() == letters.len() + 2
            && (1..=2).contains(&letters.len())
            && letters.bytes().all(|letter| letter.is_ascii_lowercase())
    })
}

/// Words in backquotes of a document.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Every path that ARCHITECTURE.md names is there, and every constant in its table of limits.
#[test]
fn the_architecture_names_what_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(top.join("ARCHITECTURE.md")).unwrap();
    let sources = rust_files();
    let mut problems = Vec::new();
    for word in quoted(&text) {
        let is_path = ["src/", "tests/", "examples/", ".ci/", "docs/"]
            .iter()
            .any(|folder| word.starts_with(folder));
        if is_path && !word.contains(char::is_whitespace) && !top.join(word).exists() {
            problems.push(format!("ARCHITECTURE.md: there is no {word}"));
        }
        let is_constant = word.len() > 3
            && word.contains('_')
            && word
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            && !["ANTHROPIC_", "LABPROXY_", "CLAUDE_", "XDG_", "NO_COLOR"]
                .iter()
                .any(|variable| word.starts_with(variable));
        let declared = format!("const {word}:");
        if is_constant && !sources.iter().any(|source| source.text.contains(&declared)) {
            problems.push(format!("ARCHITECTURE.md: there is no constant {word}"));
        }
    }
    assert_none(&problems);
}

/// The changelog tells first what touches money and safety.
#[test]
fn the_changelog_leads_with_money_and_safety() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(top.join("CHANGELOG.md")).unwrap();
    let mut release = None;
    for line in text.lines() {
        if line.starts_with("## ") {
            release = Some(line);
        } else if line.starts_with("### ")
            && let Some(name) = release.take()
        {
            assert_eq!(line, "### Money and safety", "first heading of {name}");
        }
    }
    assert!(text.contains("## [Unreleased]") || text.contains("## ["));
}

/// Every link of a document to a file here leads somewhere.
#[test]
fn documents_link_to_what_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = files("docs", &|path| {
        path.extension().is_some_and(|end| end == "md")
    });
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ] {
        let path = top.join(name);
        let text = fs::read_to_string(&path).unwrap();
        documents.push(Source { path, text });
    }
    let mut problems = Vec::new();
    for document in documents {
        for rest in document.text.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap();
            let folder = document.path.parent().unwrap();
            if !target.is_empty() && !target.contains("://") && !folder.join(target).exists() {
                problems.push(format!("{}: there is no {target}", document.name()));
            }
        }
    }
    assert_none(&problems);
}
