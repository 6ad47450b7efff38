//! `labproxy mirror push --watch`: one push after the other, over one connection, as somebody edits.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::Signal;

use super::target::Target;
use super::{show, tell_excludes};
use crate::mirror::ends::Opened;
use crate::mirror::error::{Class, MirrorError};
use crate::mirror::failure::failure;
use crate::mirror::pair::Local;
use crate::mirror::progress::Unwatched;
use crate::mirror::push::PushOptions;
use crate::mirror::watch::{Heard, Wake, Watch};
use crate::report::{Exit, Failure, Output, tell};
use crate::tree::path::RelPath;

/// The pause before the first try to get back to the other end; each one after it is twice as long.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest: somebody who opens a lid again does not wait much longer than this.
const RETRY_MOST: Duration = Duration::from_mins(1);
/// The exit status of a program that Ctrl-C ended.
const INTERRUPTED: Exit = Exit(130);

/// A mirror whose directory here is watched.
pub(super) struct Watched<'a> {
    pub(super) opened: Opened,
    pub(super) target: &'a mut Target,
    pub(super) options: &'a PushOptions,
}

/// What became of one push.
enum Outcome {
    /// Both ends are equal; in these directories the file of excludes has no effect.
    Pushed(Vec<RelPath>),
    /// Nothing can be pushed before somebody edits again.
    Waits,
    /// The other end is to be reached anew, and asked the same.
    Lost,
}

/// Pushes until it is interrupted, or until no push can go on without somebody's decision.
///
/// # Errors
/// When the first push fails, or a later one in a way that another edit does not mend.
pub(super) fn run(
    watched: Watched<'_>,
    local: &mut Local,
    as_json: bool,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let Watched {
        mut opened,
        target,
        options,
    } = watched;
    let wake = Arc::new(Wake::default());
    stop_by_signals(&wake)
        .map_err(|error| Failure::because("signals cannot be handled", &error))?;
    let mut watch = {
        let skip = |path: &RelPath, directory: bool| opened.excludes().is_excluded(path, directory);
        let root = local.root().map_err(|error| failure(&error))?;
        Watch::start(root, &skip, Arc::clone(&wake))
    };
    let mut is_first = true;
    let mut without_effect = Vec::new();
    let ended = loop {
        say_if_deaf(&mut watch);
        let pushing = (&mut opened, &mut *target);
        match push(pushing, local, options, as_json, out, is_first) {
            Ok(Outcome::Lost) => match link_again(&mut opened, target, &wake) {
                Ok(true) => continue,
                Ok(false) => break Ok(INTERRUPTED),
                Err(failure) => break Err(failure),
            },
            Ok(Outcome::Pushed(changed)) => {
                is_first = false;
                if changed != without_effect {
                    tell_excludes(&changed);
                    without_effect = changed;
                }
            }
            Ok(Outcome::Waits) => is_first = false,
            Err(failure) => break Err(failure),
        }
        let skip = |path: &RelPath, directory: bool| opened.excludes().is_excluded(path, directory);
        let heard = match local.root() {
            Ok(root) => watch.wait(root, &skip),
            Err(error) => break Err(failure(&error)),
        };
        match heard {
            Heard::Changed(_) => {}
            Heard::Stopped => break Ok(INTERRUPTED),
        }
    };
    opened.close();
    ended
}

fn say_if_deaf(watch: &mut Watch) {
    if let Some(deaf) = watch.deaf() {
        tell(&format!(
            "labproxy: warning: edits are looked for from time to time instead of heard of: {deaf}\n"
        ));
    }
}

/// Pushes once; prints what became of it.
fn push(
    (opened, target): (&mut Opened, &mut Target),
    local: &mut Local,
    options: &PushOptions,
    as_json: bool,
    out: &mut Output,
    is_first: bool,
) -> Result<Outcome, Failure> {
    if !opened.is_linked() {
        return Ok(Outcome::Lost);
    }
    let began = opened.since_boot();
    let pushed = opened.with(local, &Unwatched, |pair, ends| pair.push(ends, options));
    let error = match pushed {
        Ok(pushed) => {
            opened.taken();
            target.pushed(&pushed, opened.pair())?;
            let passed = opened.since_boot().saturating_sub(began);
            show::pushed(&pushed, false, passed, as_json, out)?;
            out.flush()?;
            return Ok(Outcome::Pushed(pushed.excludes_changed));
        }
        Err(error) => error,
    };
    let told = failure(&error);
    let outcome = after(&error);
    match outcome {
        None => Err(told),
        Some(Outcome::Lost) => {
            opened.unlink();
            say(&told);
            Ok(Outcome::Lost)
        }
        Some(_) if is_first => Err(told),
        Some(outcome) => {
            say(&told);
            tell("labproxy: nothing is pushed until the next edit\n");
            Ok(outcome)
        }
    }
}

fn say(failure: &Failure) {
    tell(&failure.render(crate::table::Style::Plain));
}

/// What can be done after a push that failed; nothing when somebody has to decide.
fn after(error: &MirrorError) -> Option<Outcome> {
    match error.class() {
        // Also an end that waited longer for the next push than it waits for anyone.
        Class::Lost => Some(Outcome::Lost),
        Class::Edit => Some(Outcome::Waits),
        Class::Wrong | Class::Decide => None,
    }
}

/// Gets back to the other end; false when it was interrupted.
fn link_again(opened: &mut Opened, target: &Target, wake: &Wake) -> Result<bool, Failure> {
    let mut pause = RETRY_FIRST;
    loop {
        tell(&format!(
            "labproxy: the link to the other end is lost; trying again in {} s\n",
            pause.as_secs()
        ));
        if wake.rest(pause) {
            return Ok(false);
        }
        match target.ends().link(opened, &target.around) {
            Ok(()) => {
                tell("labproxy: the link is back\n");
                return Ok(true);
            }
            Err(no_link) if no_link.may_pass => say(&no_link.failure),
            Err(no_link) => return Err(no_link.failure),
        }
        pause = RETRY_MOST.min(pause.saturating_mul(2));
    }
}

/// The first Ctrl-C ends the wait, or the watch after the push that is under way; the second one
/// ends the process, as it would without this.
fn stop_by_signals(wake: &Arc<Wake>) -> io::Result<()> {
    let (mut heard, rings) = UnixStream::pair()?;
    let once = Arc::new(AtomicBool::new(false));
    for signal in [Signal::INT, Signal::TERM] {
        let number = signal.as_raw();
        // In this order: the flag is set by the first signal, after it was looked at.
        signal_hook::flag::register_conditional_default(number, Arc::clone(&once))?;
        signal_hook::flag::register(number, Arc::clone(&once))?;
        signal_hook::low_level::pipe::register(number, rings.try_clone()?)?;
    }
    let wake = Arc::clone(wake);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Ok(1..) = heard.read(&mut [0]) {
                tell("labproxy: ending; once more ends it at once\n");
            }
            wake.stop();
        })?;
    Ok(())
}
