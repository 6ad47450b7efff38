//! `labproxy mirror`: keeping a directory here and one elsewhere the same.

mod copy_in;
mod look;
mod show;
mod target;
mod watch;

use std::ffi::OsString;
use std::sync::Arc;

use clap::{Args, Subcommand};

use self::copy_in::CopyInArgs;
use self::look::{AcceptArgs, LookArgs};
use self::target::{EndArgs, Target};
use super::{Context, examples};
use crate::mirror::brakes::Allowed;
use crate::mirror::ends::Opened;
use crate::mirror::excludes::FILE;
use crate::mirror::failure::failure;
use crate::mirror::guard;
use crate::mirror::line::Line;
use crate::mirror::pair::Local;
use crate::mirror::pull::PullOptions;
use crate::mirror::push::PushOptions;
use crate::report::{self, Exit, Failure, Output};
use crate::session::workspace::plan::secret_paths;
use crate::tree::path::RelPath;

/// What `labproxy mirror` can do.
#[derive(Debug, Subcommand)]
pub enum MirrorCommand {
    /// Make the other end what the directory here is
    #[command(after_long_help = examples::MIRROR_PUSH)]
    Push(PushArgs),
    /// Make the directory here what the other end is, by way of a generation that is kept
    #[command(after_long_help = examples::MIRROR_PULL)]
    Pull(PullArgs),
    /// Put an archive or a directory into the directory here, and push
    #[command(after_long_help = examples::MIRROR_COPY_IN)]
    CopyIn(CopyInArgs),
    /// Compare both ends with what they last agreed on
    #[command(after_long_help = examples::MIRROR_STATUS)]
    Status(LookArgs),
    /// List what differs between both ends, path by path
    #[command(after_long_help = examples::MIRROR_DIFF)]
    Diff(LookArgs),
    /// Read everything again: the last generation, the directory here, the other end
    #[command(after_long_help = examples::MIRROR_VERIFY)]
    Verify(LookArgs),
    /// Let into the directory here what a pull held back
    #[command(after_long_help = examples::MIRROR_ACCEPT)]
    Accept(AcceptArgs),
    /// List the generations that are kept
    #[command(after_long_help = examples::MIRROR_LIST)]
    List(LookArgs),
}

/// What is allowed although it looks like an accident.
#[derive(Debug, Args)]
pub struct AllowArgs {
    /// Go on although the source is empty
    #[arg(long)]
    allow_empty: bool,
    /// Go on although a large share of the files would be deleted
    #[arg(long)]
    allow_deletes: bool,
}

impl AllowArgs {
    const fn allowed(&self) -> Allowed {
        Allowed {
            empty: self.allow_empty,
            deletes: self.allow_deletes,
        }
    }
}

/// What moves the contents of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// labproxy's own channel
    #[default]
    Own,
    /// The system's rsync, 3.5.0 or newer at both ends; everything else stays as it is
    Rsync,
}

/// Options of `mirror push`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct PushArgs {
    #[command(flatten)]
    ends: EndArgs,
    /// Say what would be done, item by item, and do nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Push again whenever something is edited here, until Ctrl-C
    #[arg(long, conflicts_with_all = ["dry_run", "force"])]
    watch: bool,
    /// Overwrite what changed at the other end, after it was pulled into a generation
    #[arg(long)]
    force: bool,
    /// Leave out what matches, as in a .gitignore (repeatable; fixed at the first push)
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Push PATH although its name says that it holds a secret (repeatable)
    #[arg(long, value_name = "PATH")]
    allow_secret: Vec<OsString>,
    /// What moves the contents of files
    #[arg(long, value_enum, default_value_t)]
    engine: Engine,
    #[command(flatten)]
    allow: AllowArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Options of `mirror pull`.
#[derive(Debug, Args)]
pub struct PullArgs {
    #[command(flatten)]
    ends: EndArgs,
    /// Only make the generation; leave the directory here as it is
    #[arg(long)]
    generation_only: bool,
    /// What moves the contents of files
    #[arg(long, value_enum, default_value_t)]
    engine: Engine,
    #[command(flatten)]
    allow: AllowArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Engine {
    /// Makes ready what moves the contents; the other end is left again where that fails.
    fn prepare(self, opened: &mut Opened, target: &Target) -> Result<(), Failure> {
        if self == Self::Own {
            return Ok(());
        }
        let ready = opened.use_rsync(&target.around);
        if ready.is_err() {
            opened.unlink();
        }
        ready
    }
}

/// Does it.
///
/// # Errors
/// Why it could not be done.
pub fn run(command: MirrorCommand, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        MirrorCommand::Push(args) => push(&args, ctx, out),
        MirrorCommand::Pull(args) => pull(&args, ctx, out),
        MirrorCommand::CopyIn(args) => copy_in::run(&args, ctx, out),
        MirrorCommand::Status(args) => look::status(&args, ctx, out),
        MirrorCommand::Diff(args) => look::diff(&args, ctx, out),
        MirrorCommand::Verify(args) => look::verify(&args, ctx, out),
        MirrorCommand::Accept(args) => look::accept(&args, ctx, out),
        MirrorCommand::List(args) => look::list(&args, ctx, out),
    }
}

fn push(args: &PushArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let began = ctx.clock().since_boot();
    if args.watch && args.engine == Engine::Rsync {
        let text = "--watch keeps one connection, and rsync needs a new one for each push";
        return Err(Failure::usage(text).hint("leave out --engine rsync, or --watch"));
    }
    let mut target = Target::to_change(&args.ends, ctx)?;
    let mut local = Local::open(target.ends().local()).map_err(|error| failure(&error))?;
    let options = PushOptions {
        allowed: args.allow.allowed(),
        force: args.force,
        secrets: secret_paths(&args.allow_secret)?,
        dry_run: args.dry_run,
        canary: guard::canary(&target.around, &ctx.config()?)?,
        expected: None,
    };
    let mut opened = target.open(&local, &args.exclude)?;
    args.engine.prepare(&mut opened, &target)?;
    if args.watch {
        let watched = watch::Watched {
            opened,
            target: &mut target,
            options: &options,
        };
        return watch::run(watched, &mut local, args.json, out);
    }
    let line = line(&target);
    let pushed = opened.with(&mut local, &line, |pair, ends| pair.push(ends, &options));
    drop(line);
    let written = match &pushed {
        Ok(pushed) if !args.dry_run => target.pushed(pushed, opened.pair()),
        Ok(_) | Err(_) => Ok(()),
    };
    opened.close();
    let pushed = pushed.map_err(|error| failure(&error))?;
    tell_excludes(&pushed.excludes_changed);
    let passed = ctx.clock().since_boot().saturating_sub(began);
    show::pushed(&pushed, args.dry_run, passed, args.json, out)?;
    written.map(|()| Exit::SUCCESS)
}

/// Says which files of excludes have no effect.
fn tell_excludes(changed: &[RelPath]) {
    for directory in changed {
        let path = show::shown(directory);
        let slash = if path.is_empty() { "" } else { "/" };
        report::tell(&format!(
            "labproxy: note: {path}{slash}{FILE} is not what it was when both ends first agreed; \
             what it says now has no effect\n"
        ));
    }
}

fn pull(args: &PullArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let began = ctx.clock().since_boot();
    let mut target = Target::to_change(&args.ends, ctx)?;
    let opened = Local::open_or_make(target.ends().local());
    let (mut local, made) = opened.map_err(|error| failure(&error))?;
    let options = PullOptions {
        allowed: args.allow.allowed(),
        generation_only: args.generation_only,
    };
    let pulled = target.open(&local, &[]).and_then(|mut opened: Opened| {
        args.engine.prepare(&mut opened, &target)?;
        let line = line(&target);
        let pulled = opened.with(&mut local, &line, |pair, ends| pair.pull(ends, options));
        opened.close();
        pulled.map_err(|error| failure(&error))
    });
    if made && pulled.is_err() {
        local.unmake();
    }
    let pulled = pulled?;
    let written = target.pulled(&pulled);
    let passed = ctx.clock().since_boot().saturating_sub(began);
    let exit = show::pulled(&pulled, passed, &target.words(), args.json, out)?;
    written.map(|()| exit)
}

/// The line of how far it is, for whoever waits.
fn line(target: &Target) -> Line {
    let around = &target.around;
    let far = target.ends().far_text();
    Line::new(&around.environment, Arc::clone(&around.clock), far)
}
