//! What a tool of `audit run --restore` made of its copy becomes the workspace's content.

use std::collections::BTreeSet;

use crate::audit::change::Change;
use crate::audit::policy::Policy;
use crate::audit::run::Run;
use crate::cli::Context;
use crate::config::Config;
use crate::ledger::Audit;
use crate::mirror::failure::failure;
use crate::mirror::guard;
use crate::mirror::line::Line;
use crate::mirror::push::PushOptions;
use crate::mirror::stop::Stop;
use crate::mirror::store::GenerationHead;
use crate::report::Failure;
use crate::session::workspace::mirror::SessionMirror;
use crate::tree::path::RelPath;

/// Judges the change, and brings it here and to the host; whatever comes of it is written down.
pub(super) fn bring(
    run: &Run<'_>,
    change: Change,
    mirror: &mut SessionMirror,
    (ctx, config, policy): (&Context, &Config, &Policy),
    secrets: BTreeSet<RelPath>,
) -> Result<Audit, Failure> {
    let findings = change.judge(policy);
    if !findings.is_empty() {
        super::run::tell_findings(&findings);
        return run.refused(change, &findings);
    }
    if change.is_empty() {
        return run.unchanged(change);
    }
    let mut kept = None;
    match put(run, &change, mirror, (ctx, config), secrets, &mut kept) {
        Ok((kept, pushed)) => run.restored(change, &kept, pushed),
        Err(failure) => {
            let failure = failure.within("the tool passed, and its change was not restored");
            run.not_restored(change, kept.as_ref(), &failure)?;
            Err(failure)
        }
    }
}

/// Stores it, and has both ends become it; gives the generation that has it, and the hash of what was
/// pushed. What was stored before something failed is `kept`.
fn put(
    run: &Run<'_>,
    change: &Change,
    mirror: &mut SessionMirror,
    (ctx, config): (&Context, &Config),
    secrets: BTreeSet<RelPath>,
    kept: &mut Option<GenerationHead>,
) -> Result<(GenerationHead, String), Failure> {
    let around = ctx.around()?;
    // The brakes stay on: no person looked at what the tool deleted.
    let options = PushOptions {
        secrets,
        canary: guard::canary(&around, config)?,
        expected: Some(change.before().clone()),
        ..PushOptions::default()
    };
    let mut local = mirror.local()?;
    let mut opened = mirror.open_in_turn(&local, &around, Stop::default())?;
    let head = match change.keep(opened.pair().store(), run) {
        Ok(head) => head,
        Err(failure) => {
            opened.close();
            return Err(failure);
        }
    };
    *kept = Some(head.clone());
    let line = Line::new(ctx.environment(), ctx.clock(), mirror.ends().far_text());
    let tree = change.after();
    let done = opened.with(&mut local, &line, |pair, ends| {
        pair.replace(ends, &tree, &options)
    });
    drop(line);
    let written = match done {
        Ok((_, pushed)) => mirror
            .pushed(&pushed, opened.pair(), &around)
            .map(|()| pushed.tree.to_string()),
        Err(error) => Err(failure(&error)),
    };
    opened.close();
    written.map(|pushed| (head, pushed))
}
