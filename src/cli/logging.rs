//! Messages: short lines on stderr, JSON lines in a session's file.
//!
//! Only labproxy's own messages can be turned up. A dependency's debug output could show headers
//! and bodies, so it stays at errors whatever the filter says.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{GlobalArgs, LogFormat};
use crate::config::Environment;
use crate::config::load::LOG_VARIABLE;
use crate::escape::{escape_line, json_safe};
use crate::report::Failure;

/// What the names of labproxy's own messages start with.
const OWN: &str = "labproxy";

/// The JSON log of a session; what is logged before a file is attached is not kept.
#[derive(Clone, Debug, Default)]
pub struct SessionLog {
    file: Arc<OnceLock<File>>,
}

impl SessionLog {
    /// Writes from now on to `file`; true when there was none before.
    pub fn attach(&self, file: File) -> bool {
        self.file.set(file).is_ok()
    }
}

impl Write for SessionLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.file.get() {
            Some(mut file) => file.write(line),
            None => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.get().map_or(Ok(()), |mut file| file.flush())
    }
}

impl<'a> MakeWriter<'a> for SessionLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Stderr, with foreign strings escaped. The formatter hands over one whole message at a time.
#[derive(Clone, Copy, Debug)]
struct SafeStderr(LogFormat);

impl Write for SafeStderr {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let safe = safe_line(self.0, message);
        io::stderr().lock().write_all(safe.as_bytes())?;
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One message as a line that a terminal can only print.
fn safe_line(format: LogFormat, message: &[u8]) -> String {
    let line = message.strip_suffix(b"\n").unwrap_or(message);
    let mut safe = match format {
        LogFormat::Text => escape_line(line),
        LogFormat::Json => json_safe(&String::from_utf8_lossy(line)),
    };
    safe.push('\n');
    safe
}

/// Starts logging for the whole process.
///
/// # Errors
/// When `LABPROXY_LOG` is no filter.
pub fn start(global: &GlobalArgs, environment: &Environment) -> Result<SessionLog, Failure> {
    let filter = stderr_filter(global.verbose, environment)?;
    let format = global.log_format;
    let make_writer = move || SafeStderr(format);
    let stderr = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(make_writer);
    let stderr = match format {
        LogFormat::Text => stderr
            .compact()
            .without_time()
            .with_target(false)
            .with_filter(filter)
            .boxed(),
        LogFormat::Json => stderr.json().with_filter(filter).boxed(),
    };
    let log = SessionLog::default();
    let session = tracing_subscriber::fmt::layer()
        .json()
        .with_writer(log.clone())
        .with_filter(own(LevelFilter::INFO));
    tracing_subscriber::registry()
        .with(stderr)
        .with(session)
        .try_init()
        .map_err(|error| Failure::because("logging was started twice", &error))?;
    Ok(log)
}

fn own(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(LevelFilter::ERROR)
        .with_target(OWN, level)
}

fn stderr_filter(verbose: u8, environment: &Environment) -> Result<Targets, Failure> {
    let default = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let Some(written) = environment.get(LOG_VARIABLE) else {
        return Ok(own(default));
    };
    let written = written.to_string_lossy();
    let mut filter = own(default);
    for part in written
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (target, level) = part.split_once('=').unwrap_or((OWN, part));
        let level = level.parse::<LevelFilter>().map_err(|_| {
            Failure::usage(format!("{LOG_VARIABLE}: '{level}' is not a level"))
                .hint("levels are off, error, warn, info, debug and trace")
        })?;
        if target != OWN && !target.starts_with("labproxy::") {
            return Err(Failure::usage(format!(
                "{LOG_VARIABLE}: '{target}' is not a part of labproxy"
            ))
            .hint("only labproxy's own messages can be turned up: a library's may show headers"));
        }
        filter = filter.with_target(target, level);
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn filter(written: &str) -> Result<Targets, Failure> {
        let variables = [(LOG_VARIABLE.to_owned(), written.into())];
        stderr_filter(0, &Environment::Fixed(variables.into()))
    }

    /// A message is one line, whatever a foreign string in it holds, in both formats.
    #[test]
    fn t37_messages_are_escaped() {
        let text = "WARN model=\x1b[31m\u{9b}\u{202e}\nWARN forged\n".as_bytes();
        assert_eq!(
            safe_line(LogFormat::Text, text),
            "WARN model=\\x1b[31m\\x9b\\u{202e}\\nWARN forged\n"
        );
        let json = "{\"model\":\"\u{9b}\u{202e}\"}\n".as_bytes();
        assert_eq!(
            safe_line(LogFormat::Json, json),
            "{\"model\":\"\\u009b\\u202e\"}\n"
        );
    }

    /// A filter turns labproxy's own messages up, and never those of a library.
    #[test]
    fn a_filter_reaches_only_our_own_messages() {
        let debug = filter("debug").unwrap();
        assert!(debug.would_enable("labproxy::proxy", &Level::DEBUG));
        assert!(!debug.would_enable("hyper", &Level::WARN));
        let one = filter("labproxy::proxy=trace").unwrap();
        assert!(one.would_enable("labproxy::proxy::relay", &Level::TRACE));
        assert!(!one.would_enable("labproxy::cap", &Level::INFO));
        assert!(filter("hyper=trace").is_err());
        assert!(filter("loud").is_err());
    }
}
