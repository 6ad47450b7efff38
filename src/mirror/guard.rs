//! What is refused before anything is opened: roots that hold more than work. And what a push must
//! not carry.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::canary::Canary;
use super::ends::Around;
use super::places::{self, Guarded, What};
use crate::config::{Config, CredentialChoice, CredentialReference, Paths, Source};
use crate::proxy::credential::{CredentialSource, CredentialStore};
use crate::report::Failure;

/// Refuses a directory of this machine that is no root of a mirror; `more` is what else no mirror may
/// touch.
///
/// # Errors
/// With the reason, as a wrong command line.
pub fn judge(
    root: &Path,
    (paths, directory): (&Paths, &Path),
    config: &Config,
    more: &[(What, PathBuf)],
) -> Result<(), Failure> {
    let usage = |error: &dyn std::error::Error| Failure::usage(error.to_string());
    let mounts = places::mountpoints_of(root)
        .map_err(|error| Failure::because("the system does not tell what is mounted", &error))?;
    let resolve = |path: &Path| places::resolve(path).map_err(|error| usage(&error));
    let mut guarded = Guarded {
        home: paths.home().map(resolve).transpose()?,
        mounts,
        places: Vec::new(),
    };
    for (what, place) in kept_by(paths, directory, config).iter().chain(more) {
        guarded.places.push((*what, resolve(place)?));
    }
    guarded.judge(root).map_err(|refused| usage(&refused))
}

/// What labproxy and ssh keep.
fn kept_by(paths: &Paths, directory: &Path, config: &Config) -> Vec<(What, PathBuf)> {
    let mut kept = vec![
        (What::Configuration, paths.config().to_owned()),
        (What::Store, paths.state().join("mirrors")),
        (What::State, paths.state().to_owned()),
        (What::State, paths.runtime().to_owned()),
    ];
    if let Some(home) = paths.home() {
        let keys = [".ssh", ".gnupg"].map(|name| (What::Ssh, home.join(name)));
        kept.extend(keys);
    }
    for host in config.hosts.values() {
        let key = host.key_path.as_ref();
        kept.extend(key.map(|key| (What::Key, key.value.clone())));
    }
    if let CredentialChoice::Named(CredentialReference::File { path, .. }) =
        &config.upstream.credential.value
    {
        kept.push((What::Key, path.clone()));
    }
    // A key without a directory is one of the directory that labproxy was started in.
    kept.into_iter()
        .map(|(what, place)| (what, directory.join(place)))
        .collect()
}

/// The configured credential, for finding it in what would be sent. Nothing where none is: the
/// variable that is looked at without a configuration is not set.
///
/// # Errors
/// When it is configured and cannot be read: then a push cannot be searched for it.
pub fn canary(around: &Around, config: &Config) -> Result<Option<Canary>, Failure> {
    let choice = &config.upstream.credential;
    if let (CredentialChoice::Named(CredentialReference::Env { name, .. }), Source::Default) =
        (&choice.value, &choice.source)
        && !around.environment.is_set(name)
    {
        return Ok(None);
    }
    let source = match choice.value.open(&around.environment)? {
        CredentialSource::Dummy => return Ok(None),
        CredentialSource::Given(credential) => {
            return Ok(Some(Canary::new(Arc::new(credential))));
        }
        source @ (CredentialSource::File { .. } | CredentialSource::Command { .. }) => source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::because("no threads can be started", &error))?;
    let store = runtime.block_on(CredentialStore::open(source, Arc::clone(&around.clock)));
    let store = store.map_err(|error| {
        Failure::because(
            "the configured credential cannot be read, so that the files cannot be searched for it",
            &error,
        )
    })?;
    Ok(Some(Canary::new(store.current())))
}
