//! What every command works with.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::{SharedClock, SystemClock};
use crate::config::{self, Config, Environment, Flag, Layers, Paths};
use crate::report::Failure;
use crate::table::Style;

use super::GlobalArgs;

/// What every command works with: the configuration (read when it is first asked for), the paths,
/// the clock, the environment.
#[derive(Debug)]
pub struct Context {
    global: GlobalArgs,
    environment: Environment,
    clock: SharedClock,
    stderr_style: Style,
}

impl Context {
    /// The context of this process.
    pub fn of_process(global: GlobalArgs) -> Self {
        Self {
            global,
            environment: Environment::Process,
            clock: Arc::new(SystemClock),
            stderr_style: Style::Plain,
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
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        config::load(&Layers {
            environment: &self.environment,
            paths: &self.paths()?,
            directory: &directory,
            given: self.global.config.as_deref(),
            flags,
        })
        .map_err(|problems| config::problem::failure(&problems))
    }

    /// Where things are kept.
    ///
    /// # Errors
    /// When there is no home directory.
    pub fn paths(&self) -> Result<Paths, Failure> {
        Paths::of(&self.environment)
    }

    /// The environment of this process.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The clock.
    pub fn clock(&self) -> SharedClock {
        Arc::clone(&self.clock)
    }

    /// How text on stderr may look.
    pub fn stderr_style(&self) -> Style {
        self.stderr_style
    }
}
