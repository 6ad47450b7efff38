//! The layers from end to end: real files, a fixed environment.

mod binding;
mod hosts;
mod tightening;
mod tools;
mod values;

use std::path::{Path, PathBuf};

use super::key::Key;
use super::load::Flag;
use super::source::Source;
use super::{Config, Environment, Layers, Paths, load, trust};

/// A user with a home directory and a working directory of their own.
struct User {
    root: tempfile::TempDir,
    variables: Vec<(String, String)>,
    given: Option<PathBuf>,
}

impl User {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("home/.config/labproxy")).unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        Self {
            root,
            variables: Vec::new(),
            given: None,
        }
    }

    /// The user's own file.
    fn user_file(self, text: &str) -> Self {
        std::fs::write(self.home().join(".config/labproxy/config.toml"), text).unwrap();
        self
    }

    /// The working directory's file.
    fn working_file(self, text: &str) -> Self {
        std::fs::write(self.work().join("labproxy.toml"), text).unwrap();
        self
    }

    /// A file named by `--config`.
    fn given_file(mut self, text: &str) -> Self {
        std::fs::write(self.work().join("given.toml"), text).unwrap();
        self.given = Some("given.toml".into());
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    fn environment(&self) -> Environment {
        let home = ("HOME".to_owned(), self.home().into_os_string());
        let owned = |(name, value): &(String, String)| (name.clone(), value.into());
        Environment::Fixed(
            std::iter::once(home)
                .chain(self.variables.iter().map(owned))
                .collect(),
        )
    }

    fn paths(&self) -> Paths {
        Paths::of(&self.environment()).unwrap()
    }

    fn load_with(&self, flags: &[Flag<'_>]) -> Result<Config, Vec<String>> {
        load(&Layers {
            environment: &self.environment(),
            paths: &self.paths(),
            directory: &self.work(),
            given: self.given.as_deref(),
            flags,
        })
        .map_err(|problems| {
            let home = self.home().display().to_string();
            let short = |problem: &super::Problem| problem.to_string().replace(&home, "~");
            problems.iter().map(short).collect()
        })
    }

    fn load(&self) -> Result<Config, Vec<String>> {
        self.load_with(&[])
    }

    /// The problems, of which there must be some.
    fn problems(&self) -> Vec<String> {
        self.load().unwrap_err()
    }
}

fn cap_of(config: &Config) -> String {
    config.session.cap_usd.as_ref().unwrap().value.to_string()
}

fn cap(value: &str) -> Flag<'_> {
    Flag {
        key: Key::SessionCapUsd,
        name: "--cap",
        value,
    }
}

fn file(path: &Path, line: usize) -> Source {
    Source::File {
        path: path.to_owned(),
        line,
    }
}

/// The built-in defaults are complete and good, and hold no cap.
#[test]
fn the_defaults_stand_alone_without_a_cap() {
    let config = User::new().load().unwrap();
    assert_eq!(config.session.cap_usd, None);
    assert_eq!(config.upstream.base_url.source, Source::Default);
    let list = super::show::entries(&config);
    let names: Vec<&str> = list.iter().map(|entry| entry.key.as_ref()).collect();
    let all: Vec<&str> = Key::ALL.iter().map(|key| key.name()).collect();
    assert_eq!(names, all, "config show lists every setting");
}

/// Each layer beats those below it, and each value names its place.
#[test]
fn higher_layers_win_and_every_value_names_its_source() {
    let user = User::new().user_file("[session]\ncap_usd = \"5\"\nwait = \"9s\"\nlease = \"8s\"\n");
    let path = user.paths().user_config();
    let of_user = user.load().unwrap().session;
    assert_eq!(of_user.cap_usd.unwrap().source, file(&path, 2));
    assert_eq!(of_user.wait.source, file(&path, 3));

    let user = user.working_file("[session]\ncap_usd = \"4\"\nwait = \"7s\"\n");
    let of_work = user.load().unwrap().session;
    let place = file(Path::new("labproxy.toml"), 2);
    assert_eq!(of_work.cap_usd.unwrap().source, place);
    assert_eq!(of_work.lease.source, file(&path, 4));

    let user = user.variable("LABPROXY_SESSION_CAP_USD", "3");
    let of_variable = user.load().unwrap().session.cap_usd.unwrap();
    let name = "LABPROXY_SESSION_CAP_USD".to_owned();
    assert_eq!(of_variable.source, Source::Variable(name));
    assert_eq!(of_variable.value.to_string(), "$3.00");

    let of_flag = user
        .load_with(&[cap("12.5")])
        .unwrap()
        .session
        .cap_usd
        .unwrap();
    assert_eq!(of_flag.source, Source::Flag("--cap".to_owned()));
    assert_eq!(of_flag.value.to_string(), "$12.50");
}

/// Threat 20: the daily ceiling of the user's file can be lowered from above and not raised; where
/// the file has none, a variable may bring one in.
#[test]
fn t20_the_daily_ceiling_is_raised_in_the_users_file_only() {
    const NAME: &str = "LABPROXY_LIMITS_DAILY_USD";
    let daily = |user: &User| {
        user.load()
            .unwrap()
            .limits
            .daily_usd
            .unwrap()
            .value
            .to_string()
    };
    let user = || User::new().user_file("limits.daily_usd = \"10\"");
    assert_eq!(daily(&user()), "$10.00");
    assert_eq!(daily(&user().variable(NAME, "9")), "$9.00");
    assert_eq!(
        user().variable(NAME, "11").problems(),
        [
            "LABPROXY_LIMITS_DAILY_USD: limits.daily_usd: $11.00 is above $10.00, which \
             ~/.config/labproxy/config.toml:1 sets and only that file can raise"
        ]
    );
    let given = user().given_file("limits.daily_usd = \"11\"");
    assert!(given.problems()[0].starts_with("given.toml:1: limits.daily_usd: $11.00 is above"));
    assert_eq!(daily(&User::new().variable(NAME, "11")), "$11.00");
}

/// The page about the configuration has every setting, and its example is a good file.
#[test]
fn the_documented_settings_are_those_that_exist() {
    let page = include_str!("../../../docs/configuration.md");
    for key in Key::ALL {
        assert!(
            page.contains(&format!("| `{key}` |")),
            "{key} is not documented"
        );
    }
    for key in super::HostKey::ALL {
        let row = format!("| `host.NAME.{}` |", key.name());
        assert!(page.contains(&row), "{row} is not documented");
    }
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let user = User::new().user_file(example);
    let config = user.load().unwrap();
    let path = user.paths().user_config();
    for entry in super::show::entries(&config) {
        let is_there = matches!(&entry.source, Source::File { path: at, .. } if *at == path);
        assert!(is_there, "{} is not in the example", entry.key);
    }
}

/// Whatever is wrong, in whichever layer, is told in one go, each with its place.
#[test]
fn every_problem_of_every_layer_is_told_at_once() {
    let user = User::new()
        .user_file("[session]\ncap_usd = 5.0\non_cap = \"clmp\"\n\n[sesion]\nx = 1\n")
        .working_file("[gate]\ncompaction = 1\n")
        .variable("LABPROXY_SESSION_WAIT", "soon")
        .variable("LABPROXY_SESSION_ONCAP", "soft")
        .variable("LABPROXY_AUDIT_TREE", "/anything")
        .variable("LABPROXY_LOG", "debug");
    assert_eq!(
        user.load_with(&[cap("two")]).unwrap_err(),
        [
            "~/.config/labproxy/config.toml:2: session.cap_usd: money is written as a string, which \
             is exact: \"5.0\" instead of 5.0",
            "~/.config/labproxy/config.toml:3: session.on_cap: 'clmp' is not one of \"clamp\", \
             \"refuse\", \"soft\" (did you mean 'clamp'?)",
            "~/.config/labproxy/config.toml:5: unknown section 'sesion' (did you mean 'session'?)",
            "labproxy.toml:2: gate.compaction: expected true or false, found a number",
            "LABPROXY_SESSION_ONCAP: no setting has this name; the nearest are \
             LABPROXY_SESSION_ON_CAP, LABPROXY_SESSION_CAP_USD, LABPROXY_SESSION_WAIT",
            "LABPROXY_SESSION_WAIT: 'soon' is not a time; write a number with its unit: \"500ms\", \
             \"120s\", \"2m\", \"1h\"",
            "--cap: 'two' is not an amount in dollars; write digits such as 2 or 0.50",
        ]
    );
}

/// A file that is no TOML is named with the line, never quoted: the line may hold a key.
#[test]
fn a_syntax_error_is_placed_and_not_quoted() {
    let user = User::new().user_file("[session]\nwait = \"9s\"\nkey = sk-ant-canary\n");
    let problems = user.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("~/.config/labproxy/config.toml:3: not TOML: "));
    assert!(!problems[0].contains("canary"), "{problems:?}");
}

/// A setting twice in one file is an error, not a choice.
#[test]
fn a_setting_twice_is_refused() {
    let problems = User::new()
        .user_file("[session]\nwait = \"9s\"\nwait = \"8s\"\n")
        .problems();
    assert_eq!(
        problems,
        ["~/.config/labproxy/config.toml:3: not TOML: duplicate key"]
    );
}

/// A user file that others could have written is not read; a pipe in the way is not waited for.
#[test]
fn a_file_that_cannot_be_trusted_or_read_is_an_error() {
    use std::os::unix::fs::PermissionsExt as _;

    let user = User::new().user_file("[session]\nwait = \"9s\"\n");
    let path = user.paths().user_config();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(user.problems()[0].contains("can be changed by other users"));

    let user = User::new();
    let pipe = user.work().join("labproxy.toml");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(user.problems(), ["labproxy.toml:1: is not a plain file"]);

    let user = User::new().working_file(&"#".repeat(1024 * 1024 + 1));
    assert_eq!(
        user.problems(),
        ["labproxy.toml:1: is larger than 1048576 bytes"]
    );
    let mut user = User::new();
    user.given = Some("missing.toml".into());
    assert_eq!(user.problems(), ["missing.toml:1: there is no such file"]);
}

/// A file named by `--config` has full powers, and the working directory's is not read then.
#[test]
fn a_given_file_takes_the_place_of_the_working_one() {
    let user = User::new()
        .working_file("[session]\nnonsense = 1\n")
        .given_file(
            "[session]\ncap_usd = \"1000\"\non_cap = \"soft\"\n[pricing]\nfile = \"p.toml\"\n",
        );
    let config = user.load().unwrap();
    assert_eq!(cap_of(&config), "$1000.00");
    assert_eq!(
        config.pricing.file.unwrap().value,
        user.work().join("p.toml")
    );
}

/// A nonsense file cannot flood the screen.
#[test]
fn only_so_many_problems_are_shown() {
    let text = (0..1_000).fold(String::new(), |text, index| {
        text + &format!("x{index} = 1\n")
    });
    let user = User::new().working_file(&text);
    let problems = load(&Layers {
        environment: &user.environment(),
        paths: &user.paths(),
        directory: &user.work(),
        given: None,
        flags: &[],
    })
    .unwrap_err();
    let failure = super::problem::failure(&problems);
    assert_eq!(failure.message(), "the configuration has 1000 problems");
    assert_eq!(failure.problems().len(), 51);
    assert_eq!(failure.problems()[50], "… and 950 more");
}
