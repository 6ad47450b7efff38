//! What every command works with.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::GlobalArgs;
use super::hardening::Before;
use super::logging::SessionLog;
use crate::clock::{SharedClock, SystemClock};
use crate::config::{self, Config, Environment, Flag, Layers, Paths, Problem};
use crate::escape::escape_line;
use crate::mirror::ends::Around;
use crate::report::{self, Failure};
use crate::table::Style;

/// What every command works with: the configuration (read when it is asked for), the paths, the
/// clock, the environment.
#[derive(Debug)]
pub struct Context {
    global: GlobalArgs,
    environment: Environment,
    clock: SharedClock,
    session_log: SessionLog,
    before: Before,
    config_read: AtomicBool,
}

impl Context {
    /// The context of this process.
    pub fn of_process(global: GlobalArgs, before: Before, session_log: SessionLog) -> Self {
        Self {
            global,
            environment: Environment::Process,
            clock: Arc::new(SystemClock),
            session_log,
            before,
            config_read: AtomicBool::new(false),
        }
    }

    /// The context of a command that another process handed over, with that one's environment and
    /// limit of core dumps.
    pub fn handed_over(
        &self,
        global: GlobalArgs,
        environment: Environment,
        core: Option<u64>,
    ) -> Self {
        let mut before = self.before.clone();
        before.core.current = core;
        Self {
            environment,
            ..Self::of_process(global, before, self.session_log.clone())
        }
    }

    /// The configuration without a command's own flags.
    ///
    /// # Errors
    /// All that is wrong in all layers, at once.
    pub fn config(&self) -> Result<Config, Failure> {
        self.config_with(&[])
    }

    /// The configuration with a command's own flags on top.
    ///
    /// # Errors
    /// All that is wrong in all layers, flags included, at once.
    pub fn config_with(&self, flags: &[Flag<'_>]) -> Result<Config, Failure> {
        self.config_read.store(true, Ordering::Relaxed);
        self.load(&self.paths()?, flags)
            .map_err(|problems| config::problem::failure(&problems))
    }

    fn load(&self, paths: &Paths, flags: &[Flag<'_>]) -> Result<Config, Vec<Problem>> {
        config::load(&Layers {
            environment: &self.environment,
            paths,
            directory: &self.directory(),
            given: self.global.config.as_deref(),
            flags,
        })
    }

    /// Tells what is wrong with the configuration when the command did its work without it, so that
    /// nothing in a working directory's file goes unnoticed, and `session stop` still stops.
    pub fn warn_unless_config_was_read(&self) {
        if self.config_read.load(Ordering::Relaxed) {
            return;
        }
        let Ok(paths) = self.paths() else {
            return;
        };
        let problems = self.load(&paths, &[]).err().unwrap_or_default();
        for line in config::problem::lines(&problems) {
            let line = escape_line(line);
            report::tell(&format!("warning: the configuration is wrong: {line}\n"));
        }
    }

    /// The file that `--config` names.
    pub fn given(&self) -> Option<&Path> {
        self.global.config.as_deref()
    }

    /// The directory that labproxy was started in.
    pub fn directory(&self) -> PathBuf {
        std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."))
    }

    /// Where things are kept.
    ///
    /// # Errors
    /// When there is no home directory.
    pub fn paths(&self) -> Result<Paths, Failure> {
        Paths::of(&self.environment)
    }

    /// What mirrors are opened with.
    ///
    /// # Errors
    /// When there is no home directory.
    pub fn around(&self) -> Result<Around, Failure> {
        Ok(Around {
            paths: self.paths()?,
            environment: self.environment.clone(),
            directory: self.directory(),
            clock: self.clock(),
        })
    }

    /// The environment of this process.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The clock.
    pub fn clock(&self) -> SharedClock {
        Arc::clone(&self.clock)
    }

    /// The JSON log that a session attaches its file to.
    pub fn session_log(&self) -> &SessionLog {
        &self.session_log
    }

    /// The limits that labproxy was started with; its children get them back.
    pub fn before(&self) -> &Before {
        &self.before
    }

    /// How text on stderr may look.
    pub fn stderr_style(&self) -> Style {
        style_of(&self.environment, std::io::stderr().is_terminal())
    }
}

/// How text may look: in colour on a terminal that can, unless `NO_COLOR` is set to something.
pub fn style_of(environment: &Environment, terminal: bool) -> Style {
    let dumb = environment.get("TERM").is_none_or(|term| term == "dumb");
    if terminal && !dumb && !environment.is_set("NO_COLOR") {
        Style::Colored
    } else {
        Style::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colour needs a terminal that can show it, and gives way to `NO_COLOR`.
    #[test]
    fn colour_is_for_terminals_without_no_color() {
        let style = |variables: &[(&str, &str)], terminal| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).into());
            let environment = Environment::Fixed(variables.iter().map(owned).collect());
            style_of(&environment, terminal)
        };
        let xterm = ("TERM", "xterm");
        assert_eq!(style(&[xterm], true), Style::Colored);
        assert_eq!(style(&[xterm], false), Style::Plain);
        assert_eq!(style(&[xterm, ("NO_COLOR", "1")], true), Style::Plain);
        assert_eq!(style(&[xterm, ("NO_COLOR", "")], true), Style::Colored);
        assert_eq!(style(&[("TERM", "dumb")], true), Style::Plain);
        assert_eq!(style(&[], true), Style::Plain);
    }
}
