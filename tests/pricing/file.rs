//! The price file: what loads, what is refused and where, which row prices which day.

use jiff::civil::date;
use labproxy::money::PicoUsd;
use labproxy::pricing::{PriceBook, Staleness, Unpriced, WriteBound};

use crate::price::{book, today};

const ROW: &str = "[[row]]
ids = [\"m-1\", \"m-1-20260101\"]
from = 2026-01-01
input = \"4\"
output = \"20\"
cache_write_5m = \"5\"
cache_write_1h = \"8\"
cache_read = \"0.20\"
us_geo = true
web_search = \"0.01\"
context_window = 1_000_000
max_output = 128_000
source = \"the price page\"
checked_on = 2026-11-29
";

fn file(rows: &str) -> String {
    format!("schema = 1\n{rows}")
}

fn problems(text: &str) -> Vec<String> {
    let problems = PriceBook::from_text("p.toml", text)
        .err()
        .unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

/// The only problem of `text`, which must name `line`.
fn problem(text: &str, line: usize) -> String {
    let found = problems(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with(&format!("p.toml:{line}: ")),
        "{}",
        found[0]
    );
    found[0].clone()
}

fn changed(from: &str, to: &str) -> String {
    assert!(ROW.contains(from), "{from}");
    file(&ROW.replace(from, to))
}

#[test]
fn the_built_in_file_loads() {
    assert!(PriceBook::builtin().is_ok());
    assert!(book().rows().len() >= 35);
}

/// Every model that the provider serves on 2026-11-29 has a row, alias and dated form both.
#[test]
fn every_current_model_is_priced() {
    for id in [
        "claude-fable-5-2",
        "claude-mythos-5-2",
        "claude-fable-5-1",
        "claude-mythos-5-1",
        "claude-fable-5",
        "claude-mythos-5",
        "claude-opus-5-5",
        "claude-opus-5",
        "claude-opus-4-8",
        "claude-opus-4-7",
        "claude-opus-4-6",
        "claude-opus-4-5",
        "claude-opus-4-5-20251101",
        "claude-sonnet-5-5",
        "claude-sonnet-5",
        "claude-sonnet-4-6",
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-haiku-5-5",
        "claude-haiku-4-5",
        "claude-haiku-4-5-20251001",
    ] {
        let row = book().row_at(id, today()).cloned().unwrap();
        assert!(!row.is_retired_on(date(2026, 11, 29)), "{id}");
    }
    assert!(
        book().row_at("claude-mythos-preview", today()).is_err(),
        "no public price"
    );
}

#[test]
fn a_problem_of_a_value_names_its_line() {
    for (from, to, line, says) in [
        ("\"4\"", "4.0", 5, "must be a string"),
        ("\"4\"", "4", 5, "must be a string"),
        ("\"4\"", "true", 5, "must be a string"),
        ("\"4\"", "\"4e0\"", 5, "not an amount"),
        ("\"4\"", "\"0.0000004\"", 5, "finer"),
        ("\"4\"", "\"0.0004\"", 5, "check the unit"),
        ("\"4\"", "\"0\"", 5, "check the unit"),
        ("\"20\"", "\"20000\"", 6, "check the unit"),
        ("\"20\"", "\"3\"", 6, "cheaper than 'input'"),
        ("\"0.20\"", "\"4.5\"", 9, "dearer than 'input'"),
        ("\"5\"", "\"3.5\"", 7, "cheaper than 'input'"),
        ("\"8\"", "\"4.5\"", 8, "cheaper than 'cache_write_5m'"),
        ("\"0.01\"", "\"10\"", 11, "check the unit"),
        ("\"0.01\"", "\"0\"", 11, "check the unit"),
        ("true", "\"yes\"", 10, "true or false"),
        ("1_000_000", "12", 12, "context_window"),
        ("128_000", "2_000_000", 13, "max_output"),
        (
            "\"the price page\"",
            "\" \"",
            14,
            "where the prices were read",
        ),
        ("2026-11-29", "\"2026-11-29\"", 15, "date"),
        ("2026-01-01\n", "2026-01-01T00:00:00Z\n", 4, "date"),
        (
            "from = 2026-01-01",
            "from = 2026-01-01\nuntil = 2025-12-31",
            5,
            "later than 'from'",
        ),
        (
            "us_geo",
            "us-geo = true\nus_geo",
            10,
            "unknown key 'us-geo'",
        ),
        ("\"m-1\",", "\"m-1[1m]\",", 3, "model id"),
        ("\"m-1\",", "\"m-1-20260101\",", 3, "listed twice"),
        (
            "ids = [\"m-1\", \"m-1-20260101\"]",
            "ids = []",
            3,
            "at least one",
        ),
        ("\"0.20\"", "\"0.200001\"", 9, "five decimals"),
    ] {
        let found = problem(&changed(from, to), line);
        assert!(found.contains(says), "{to}: {found}");
    }
}

#[test]
fn a_missing_value_is_named_with_the_line_of_its_row() {
    for line in ROW.lines().skip(1) {
        let key = line.split(' ').next().unwrap();
        let text = file(&ROW.replace(&format!("{line}\n"), ""));
        let found = problem(&text, 2);
        assert!(found.contains(&format!("'{key}'")), "{found}");
    }
}

#[test]
fn bands_and_fast_rates_are_checked_like_others() {
    let extra = |table: &str| {
        file(&format!(
            "{ROW}{table}input = \"8\"\noutput = \"40\"\ncache_write_5m = \"10\"\n\
             cache_write_1h = \"16\"\ncache_read = \"0.10\"\n"
        ))
    };
    let found = problem(&extra("[row.fast]\n"), 21);
    assert!(found.contains("cheaper here"), "{found}");
    let found = problems(&extra("[row.long]\nextra = 1\n"));
    assert_eq!(found.len(), 3, "{found:#?}");
    let found = problem(&file(&format!("{ROW}fast = 2\n")), 16);
    assert!(found.contains("[row.fast]"), "{found}");
}

#[test]
fn rows_of_one_model_may_not_overlap() {
    let second = |from: &str| file(&format!("{ROW}{}", ROW.replace("2026-01-01", from)));
    let found = problems(&second("2026-06-01"));
    assert_eq!(found.len(), 2, "one for each id");
    assert!(
        found[0].starts_with("p.toml:17: 'm-1' has a second price"),
        "{}",
        found[0]
    );
    assert!(found[0].contains("line 3"));
    let ended = ROW.replace("from = 2026-01-01", "from = 2026-01-01\nuntil = 2026-06-01");
    let next = ROW.replace("from = 2026-01-01", "from = 2026-06-01");
    assert_eq!(problems(&file(&format!("{ended}{next}"))), [""; 0]);
    assert_eq!(problems(&file(&format!("{next}{ended}"))), [""; 0]);
}

#[test]
fn all_problems_are_told_at_once_in_order() {
    let text = changed("\"4\"", "4.0")
        .replace("\"20\"", "20.0")
        .replace("us_geo", "geo");
    let found = problems(&text);
    let lines: Vec<&str> = found
        .iter()
        .filter_map(|problem| problem.split(':').nth(1))
        .collect();
    assert_eq!(lines, ["2", "5", "6", "10"]);
}

#[test]
fn what_is_not_toml_is_told_with_its_line() {
    assert!(problem(&format!("{}[[row\n", file(ROW)), 16).contains("TOML"));
    assert!(problem("schema = 1\nschema = 1\n", 2).contains("TOML"));
    assert!(!problems("").is_empty());
    assert!(problem(&file("row = 1\n"), 2).contains("[[row]]"));
    assert!(problem(&ROW.replacen("[[row]]", "schema = 2\n[[row]]", 1), 1).contains("schema"));
}

#[test]
fn a_file_of_the_users_replaces_rows_of_the_same_ids() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.toml");
    let text = file(&ROW.replace("\"m-1-20260101\"", "\"claude-sonnet-5-5\""));
    std::fs::write(&path, text).unwrap();
    let merged = PriceBook::with_file(&path).unwrap();
    let sonnet: Vec<_> = merged
        .rows()
        .iter()
        .filter(|row| row.model == "claude-sonnet-5-5")
        .collect();
    assert_eq!(sonnet.len(), 1, "both dated rows are replaced");
    assert_eq!(sonnet[0].base.input.pico_per_token(), 4_000_000);
    assert!(merged.row_at("m-1", today()).is_ok());
    assert!(merged.row_at("claude-opus-5", today()).is_ok());
    assert_ne!(merged.digest(), book().digest());
    let missing = PriceBook::with_file(&directory.path().join("none.toml")).unwrap_err();
    assert!(
        missing[0]
            .to_string()
            .contains("none.toml:1: the price file cannot be read")
    );
    std::fs::write(&path, b"schema = 1\n\xff").unwrap();
    assert_eq!(PriceBook::with_file(&path).unwrap_err()[0].line, 2);
}

#[test]
fn the_effective_text_loads_to_the_same_rows_and_digest() {
    let first = book();
    let again = PriceBook::from_text("again.toml", first.effective_toml()).unwrap();
    assert_eq!(first.rows(), again.rows());
    assert_eq!(first.digest(), again.digest());
    assert_eq!(
        first.digest().0,
        blake3::hash(first.effective_toml().as_bytes())
            .to_hex()
            .to_string()
    );
}

fn at(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

#[test]
fn t23_rows_change_at_midnight_utc() {
    let book = book();
    let read = |moment: &str| {
        let row = book.row_at("claude-sonnet-5-5", at(moment)).unwrap();
        row.base.read.pico_per_token()
    };
    assert_eq!(read("2026-10-06T23:59:59Z"), 200_000);
    assert_eq!(read("2026-10-07T00:00:00Z"), 100_000);
    let fast = |moment: &str| {
        book.row_at("claude-opus-4-8", at(moment))
            .unwrap()
            .fast
            .is_some()
    };
    assert!(fast("2026-11-29T23:59:59Z"));
    assert!(!fast("2026-11-30T00:00:00Z"));
    assert_eq!(
        book.row_at("claude-fable-5-2", at("2026-11-08T23:59:59Z"))
            .unwrap_err(),
        Unpriced::NoRowOn("claude-fable-5-2".to_owned(), date(2026, 11, 8))
    );
}

#[test]
fn t23_holds_take_the_dearest_row_within_a_day() {
    let text = file(&format!(
        "{}{}",
        ROW.replace("from = 2026-01-01", "from = 2026-01-01\nuntil = 2026-06-01"),
        ROW.replace("from = 2026-01-01", "from = 2026-06-01")
            .replace("\"20\"", "\"10\"")
    ));
    let book = PriceBook::from_text("p.toml", &text).unwrap();
    let output = |moment: &str| {
        let rates = book.hold_rates("m-1", at(moment)).unwrap();
        rates.output(1_000).pico_per_token()
    };
    assert_eq!(output("2026-05-29T12:00:00Z"), 22_000_000);
    assert_eq!(
        output("2026-06-01T23:59:00Z"),
        22_000_000,
        "still within a day"
    );
    assert_eq!(output("2026-06-03T00:00:00Z"), 11_000_000);
    assert!(book.hold_rates("m-1", at("2025-12-30T12:00:00Z")).is_err());
    assert!(book.hold_rates("m-1", at("2025-12-31T12:00:00Z")).is_ok());
}

#[test]
fn holds_take_the_dearest_kind_of_prompt_token() {
    let book = book();
    let rates = book.hold_rates("claude-haiku-5-5", today()).unwrap();
    let input = |bound, writes| rates.input(bound, writes).pico_per_token();
    assert_eq!(input(100_000, WriteBound::None), 110_000);
    assert_eq!(input(100_000, WriteBound::FiveMinutes), 137_500);
    assert_eq!(input(100_000, WriteBound::OneHour), 220_000);
    assert_eq!(
        input(100_001, WriteBound::OneHour),
        1_100_000,
        "the long band is within reach"
    );
    assert_eq!(rates.output(100_000).pico_per_token(), 550_000);
    assert_eq!(rates.output(100_001).pico_per_token(), 2_750_000);
    assert_eq!(rates.web_search(), PicoUsd::from_pico(10_000_000_000));
    assert_eq!(
        (rates.context_window(), rates.max_output()),
        (1_000_000, 128_000)
    );
    let old = book.hold_rates("claude-haiku-4-5", today()).unwrap();
    assert_eq!(
        old.output(1).pico_per_token(),
        5_500_000,
        "a response that claims US-only inference is covered without a row for it"
    );
    assert_eq!((old.context_window(), old.max_output()), (200_000, 64_000));
}

#[test]
fn t23_a_clock_far_off_and_old_prices_are_refused() {
    let book = book();
    for fine in [
        "2026-11-29T00:00:00Z",
        "2026-12-01T00:00:00Z",
        "2027-05-27T12:00:00Z",
    ] {
        assert_eq!(book.staleness(at(fine)), None, "{fine}");
    }
    // 40 days before the prices were read.
    let behind = book.staleness(at("2026-10-20T12:00:00Z")).unwrap();
    assert!(
        matches!(
            behind,
            Staleness::ClockBehind {
                behind_days: 40,
                ..
            }
        ),
        "{behind}"
    );
    let stale = book.staleness(at("2027-11-29T12:00:00Z")).unwrap();
    let Staleness::Stale {
        models,
        oldest,
        age_days,
    } = stale
    else {
        panic!("not stale");
    };
    assert_eq!((oldest, age_days), (date(2026, 11, 29), 365));
    assert!(models.contains(&"claude-opus-5-5".to_owned()));
    assert!(
        !models.contains(&"claude-3-opus-20240229".to_owned()),
        "retired"
    );
    assert!(
        book.staleness(at("2027-05-29T12:00:00Z")).is_some(),
        "181 days"
    );
}

/// The last day of a model that is switched off passes without a gap in its price.
#[test]
fn t23_a_retired_model_keeps_its_price() {
    let book = book();
    for day in [
        "2026-11-30T12:00:00Z",
        "2026-12-01T12:00:00Z",
        "2027-06-01T12:00:00Z",
    ] {
        let row = book.row_at("claude-sonnet-4-5", at(day)).unwrap();
        assert_eq!(row.base.input.pico_per_token(), 3_000_000);
        assert!(row.is_retired_on(date(2026, 11, 30)));
    }
}
