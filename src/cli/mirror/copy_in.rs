//! `labproxy mirror copy-in`: an archive or a directory into the workspace, and a push.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use super::target::{EndArgs, Target};
use super::{AllowArgs, line, show, tell_excludes};
use crate::cli::Context;
use crate::escape::escape;
use crate::mirror::copy_in::{CopyIn, Source};
use crate::mirror::failure::failure;
use crate::mirror::far::Far;
use crate::mirror::guard;
use crate::mirror::pair::Local;
use crate::mirror::places;
use crate::mirror::push::PushOptions;
use crate::report::{Exit, Failure, Output};
use crate::session::workspace::plan::secret_paths;
use crate::tree::path::RelPath;

/// Options of `mirror copy-in`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct CopyInArgs {
    /// What to put: a tar archive (plain, gzip or zstd), or a directory whose content is put
    #[arg(value_name = "ARCHIVE|DIR")]
    source: PathBuf,
    #[command(flatten)]
    ends: EndArgs,
    /// Put it into this directory of the directory here, which is made where it is missing
    #[arg(long, value_name = "PATH")]
    to: Option<OsString>,
    /// Replace files that are there and are other ones
    #[arg(long)]
    replace: bool,
    /// Say what would be put, item by item, and do nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Overwrite what changed at the other end, after it was pulled into a generation
    #[arg(long)]
    force: bool,
    /// Push PATH although its name says that it holds a secret (repeatable)
    #[arg(long, value_name = "PATH")]
    allow_secret: Vec<OsString>,
    #[command(flatten)]
    allow: AllowArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CopyInArgs, ctx: &Context, out: &mut Output) -> Result<Exit, Failure> {
    let began = ctx.clock().since_boot();
    let mut target = Target::to_change(&args.ends, ctx)?;
    let brought = CopyIn {
        source: source(&args.source, &target, ctx)?,
        to: into(args.to.as_ref())?,
        replace: args.replace,
    };
    let mut local = Local::open(target.ends().local()).map_err(|error| failure(&error))?;
    local.root().map_err(|error| failure(&error))?;
    let options = PushOptions {
        allowed: args.allow.allowed(),
        force: args.force,
        secrets: secret_paths(&args.allow_secret)?,
        dry_run: args.dry_run,
        canary: guard::canary(&target.around, &ctx.config()?)?,
        expected: None,
    };
    let mut opened = target.open(&local, &[])?;
    let line = line(&target);
    let done = opened.with(&mut local, &line, |pair, ends| {
        pair.copy_in(ends, &brought, &options)
    });
    drop(line);
    let pushed = done.as_ref().ok().and_then(|done| done.pushed.as_ref());
    let written = match pushed {
        Some(pushed) => target.pushed(pushed, opened.pair()),
        None => Ok(()),
    };
    opened.close();
    let done = done.map_err(|error| failure(&error))?;
    if let Some(pushed) = &done.pushed {
        tell_excludes(&pushed.excludes_changed);
    }
    let passed = ctx.clock().since_boot().saturating_sub(began);
    show::copied_in(&done, passed, args.json, out)?;
    written.map(|()| Exit::SUCCESS)
}

/// What is brought: a directory is judged as an end is, and neither end may lie in it or hold it.
fn source(given: &Path, target: &Target, ctx: &Context) -> Result<Source, Failure> {
    let around = &target.around;
    let path = around.directory.join(given);
    if !path.is_dir() {
        return Ok(Source::Archive(path));
    }
    let usage = |error: &dyn std::error::Error| Failure::usage(error.to_string());
    let path = places::resolve_root(&path).map_err(|error| usage(&error))?;
    let places = (&around.paths, around.directory.as_path());
    guard::judge(&path, places, &ctx.config()?, &[])?;
    let ends = target.ends();
    places::judge_pair(&path, ends.local()).map_err(|error| usage(&error))?;
    if let Far::Here(far) = ends.far() {
        places::judge_pair(&path, far).map_err(|error| usage(&error))?;
    }
    Ok(Source::Directory(path))
}

fn into(given: Option<&OsString>) -> Result<RelPath, Failure> {
    let Some(given) = given else {
        return Ok(RelPath::ROOT);
    };
    RelPath::new(given.as_encoded_bytes()).map_err(|error| {
        let path = escape(given.as_encoded_bytes());
        Failure::usage(format!("--to {path}: {error}; give a path in the tree"))
    })
}
