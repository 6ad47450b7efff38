//! Loading: every layer read, judged and folded, every problem collected.

use std::path::{Path, PathBuf};

use super::file::{self, FileError, Owner, SettingsFile};
use super::host::{self, HOST_PREFIX, HostKey, HostName};
use super::key::{Key, VARIABLE_PREFIX, nearest};
use super::layer::Layer;
use super::resolve::resolve;
use super::source::{Source, Sourced};
use super::tighten::tighten;
use super::value::{Place, Written};
use super::{Config, Environment, Paths, Problem, trust};
use crate::money::PicoUsd;

/// The file of a working directory.
pub const WORKING_FILE: &str = "labproxy.toml";

/// Variables of that prefix are told to audit tools; they configure nothing.
const AUDIT_PREFIX: &str = "LABPROXY_AUDIT_";

/// The filter of messages on stderr, such as `debug` or `labproxy::proxy=trace`.
pub const LOG_VARIABLE: &str = "LABPROXY_LOG";

/// A setting that a flag makes.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'a> {
    /// The setting.
    pub key: Key,
    /// The flag, such as `--cap`.
    pub name: &'a str,
    /// Its value as the user wrote it.
    pub value: &'a str,
}

/// Where the layers are.
#[derive(Clone, Debug)]
pub struct Layers<'a> {
    /// The environment.
    pub environment: &'a Environment,
    /// The user's directories.
    pub paths: &'a Paths,
    /// The directory that labproxy was started in.
    pub directory: &'a Path,
    /// The file of `--config`, read in place of `./labproxy.toml`.
    pub given: Option<&'a Path>,
    /// The settings of flags.
    pub flags: &'a [Flag<'a>],
}

/// Reads all layers and folds them.
///
/// # Errors
/// Everything that is wrong in any layer.
pub fn load(layers: &Layers<'_>) -> Result<Config, Vec<Problem>> {
    let home = layers.paths.home();
    let mut loader = Loader {
        layers,
        home,
        problems: Vec::new(),
    };
    let defaults = Layer::default().under(loader.defaults());
    let folded = defaults.under(loader.user_file());
    let ceiling = folded.limits.daily_usd.clone();
    let upper = match layers.given {
        Some(given) => loader.given_file(given),
        None => loader.working_file(&folded),
    };
    let folded = folded.under(upper);
    let variables = loader.variables(&folded);
    let folded = folded.under(variables).under(loader.flags());
    loader.keep_below(ceiling.as_ref(), folded.limits.daily_usd.as_ref());
    let config = resolve(folded, &mut loader.problems);
    match config {
        Some(config) if loader.problems.is_empty() => Ok(config),
        _ => Err(loader.problems),
    }
}

struct Loader<'a> {
    layers: &'a Layers<'a>,
    home: Option<&'a Path>,
    problems: Vec<Problem>,
}

impl<'a> Loader<'a> {
    fn place(&self, directory: &'a Path) -> Place<'a> {
        Place {
            directory,
            home: self.home,
        }
    }

    fn defaults(&mut self) -> Layer {
        let built_in = SettingsFile {
            shown: PathBuf::from("built-in defaults"),
            text: include_str!("defaults.toml").to_owned(),
        };
        let place = self.place(Path::new("/"));
        built_in.default_layer(place, &mut self.problems)
    }

    fn unreadable(&mut self, shown: &Path, error: &FileError) {
        let source = Source::File {
            path: shown.to_owned(),
            line: 1,
        };
        self.problems.push(Problem::new(source, error.to_string()));
    }

    fn user_file(&mut self) -> Layer {
        let path = self.layers.paths.user_config();
        match file::read(&path, &path, Owner::User) {
            Ok(file) => {
                let directory = self.layers.paths.config();
                file.layer(self.place(directory), &mut self.problems)
            }
            Err(FileError::Missing) => Layer::default(),
            Err(error) => {
                self.unreadable(&path, &error);
                Layer::default()
            }
        }
    }

    /// The file that the user named is theirs to answer for.
    fn given_file(&mut self, given: &Path) -> Layer {
        let path = self.layers.directory.join(given);
        match file::read(&path, given, Owner::Anybody) {
            Ok(file) => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                let place = Place {
                    directory,
                    home: self.home,
                };
                file.layer(place, &mut self.problems)
            }
            Err(error) => {
                self.unreadable(given, &error);
                Layer::default()
            }
        }
    }

    /// TRUST: the file may be an agent's work. It may only tighten, unless the user trusts exactly
    /// these bytes.
    fn working_file(&mut self, below: &Layer) -> Layer {
        let path = self.layers.directory.join(WORKING_FILE);
        let shown = Path::new(WORKING_FILE);
        let file = match file::read(&path, shown, Owner::Anybody) {
            Ok(file) => file,
            Err(FileError::Missing) => return Layer::default(),
            Err(error) => {
                self.unreadable(shown, &error);
                return Layer::default();
            }
        };
        let layer = file.layer(self.place(self.layers.directory), &mut self.problems);
        match trust::is_trusted(self.layers.paths, &file.text) {
            Ok(true) => layer,
            Ok(false) => {
                let remedy = format!(
                    "set it in {}, or trust this file: labproxy config trust ./{WORKING_FILE}",
                    self.layers.paths.user_config().display()
                );
                tighten(below, layer, &remedy, &mut self.problems)
            }
            Err(error) => {
                self.unreadable(&self.layers.paths.trusted(), &error);
                Layer::default()
            }
        }
    }

    fn variables(&mut self, below: &Layer) -> Layer {
        let mut layer = Layer::default();
        let mut names = self.layers.environment.names();
        names.sort();
        for name in names {
            // A name that is not text keeps its beginning, so that it is not passed over.
            let name = name.to_string_lossy();
            let name = name.as_ref();
            if !name.starts_with(VARIABLE_PREFIX)
                || name.starts_with(AUDIT_PREFIX)
                || name == LOG_VARIABLE
            {
                continue;
            }
            let source = Source::Variable(name.to_owned());
            let meant = match Meant::by(name, below.hosts.keys()) {
                Ok(meant) => meant,
                Err(what) => {
                    self.problems.push(Problem::new(source, what));
                    continue;
                }
            };
            let value = self.layers.environment.get(name).unwrap_or_default();
            match value.to_str() {
                Some(text) => self.set(&mut layer, &meant, text, &source),
                None => self
                    .problems
                    .push(Problem::new(source, "is not UTF-8 text")),
            }
        }
        layer
    }

    fn flags(&mut self) -> Layer {
        let mut layer = Layer::default();
        for flag in self.layers.flags {
            let source = Source::Flag(flag.name.to_owned());
            self.set(&mut layer, &Meant::Key(flag.key), flag.value, &source);
        }
        layer
    }

    /// The daily ceiling of the user's own file is a promise to themselves: what is started with
    /// another environment or other flags may lower it only.
    fn keep_below(&mut self, ceiling: Option<&Sourced<PicoUsd>>, daily: Option<&Sourced<PicoUsd>>) {
        if let (Some(ceiling), Some(daily)) = (ceiling, daily)
            && daily.value > ceiling.value
        {
            let key = Key::LimitsDailyUsd;
            let what = format!(
                "{key}: {} is above {}, which {} sets and only that file can raise",
                daily.value, ceiling.value, ceiling.source
            );
            self.problems.push(Problem::new(daily.source.clone(), what));
        }
    }

    fn set(&mut self, layer: &mut Layer, meant: &Meant, text: &str, source: &Source) {
        let place = self.place(self.layers.directory);
        let written = Written::Text(text);
        let set = match meant {
            Meant::Key(key) => layer.set(*key, written, place, source.clone()),
            Meant::Host(host, key) => layer.set_host((host, *key), written, place, source.clone()),
        };
        for fault in set.err().into_iter().flatten() {
            self.problems.push(Problem::new(source.clone(), fault.what));
        }
    }
}

/// The setting that a variable or a flag makes.
enum Meant {
    Key(Key),
    Host(HostName, HostKey),
}

impl Meant {
    /// By the name of a variable.
    fn by<'a>(name: &str, hosts: impl Iterator<Item = &'a HostName>) -> Result<Self, String> {
        if name.starts_with(HOST_PREFIX) {
            let (host, key) = host::of_variable(name, hosts)?;
            return Ok(Self::Host(host, key));
        }
        let key = Key::of_variable(name).ok_or_else(|| unknown_variable(name))?;
        Ok(Self::Key(key))
    }
}

fn unknown_variable(name: &str) -> String {
    let known: Vec<String> = Key::ALL.iter().map(|key| key.variable()).collect();
    let like = nearest(name, known.iter().map(String::as_str));
    if like.is_empty() {
        "no setting has this name; labproxy config show lists all settings".to_owned()
    } else {
        format!(
            "no setting has this name; the nearest are {}",
            like.join(", ")
        )
    }
}
