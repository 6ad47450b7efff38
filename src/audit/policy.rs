//! What a tree may hold for a tool to look at it.
//!
//! Judged by the manifest alone: nothing is opened, no link is followed, so a finding costs nothing
//! and can do nothing. Every finding is listed, not the first.

use std::collections::HashMap;

use crate::config::AuditConfig;
use crate::config::audit::{LinkRule, OddRule};
use crate::mirror::excludes::{Excludes, Frozen};
use crate::mirror::links::links_that_leave;
use crate::report::Failure;
use crate::tree::directory::Directory;
use crate::tree::entry::{Entry, SpecialKind};
use crate::tree::path::RelPath;

/// What a tree may hold.
#[derive(Debug)]
pub struct Policy {
    links: LinkRule,
    special: OddRule,
    setuid: OddRule,
    max_entries: u64,
    max_file_bytes: u64,
    max_bytes: u64,
    deny: Excludes,
}

/// One thing that a policy refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where; the root for the whole tree.
    pub path: RelPath,
    /// What is wrong; foreign bytes in it are escaped.
    pub what: String,
}

impl Policy {
    /// The policy that is configured.
    ///
    /// # Errors
    /// When a pattern is none.
    pub fn of(config: &AuditConfig) -> Result<Self, Failure> {
        let frozen = Frozen {
            configured: config.deny.value.clone(),
            ..Frozen::default()
        };
        let deny = Excludes::new(&frozen).map_err(|error| {
            Failure::usage(format!("audit.deny ({}): {error}", config.deny.source))
        })?;
        Ok(Self {
            links: config.symlinks.value,
            special: config.special.value,
            setuid: config.setuid.value,
            max_entries: config.max_entries.value,
            max_file_bytes: config.max_file_bytes.value,
            max_bytes: config.max_bytes.value,
            deny,
        })
    }

    /// Everything in a tree that is refused, by path.
    pub fn judge(&self, tree: &Directory) -> Vec<Finding> {
        let mut findings = self.sizes(tree);
        let leaving: HashMap<RelPath, String> = match self.links {
            LinkRule::Inside => links_that_leave(tree)
                .into_iter()
                .map(|link| (link.path, link.way.to_string()))
                .collect(),
            LinkRule::Refuse | LinkRule::Allow => HashMap::new(),
        };
        let mut denied: Option<RelPath> = None;
        tree.walk(&mut |path, entry| {
            let is_directory = matches!(entry, Entry::Directory(_));
            let is_below = denied.as_ref().is_some_and(|above| path.is_within(above));
            if !is_below && self.deny.is_excluded(path, is_directory) {
                denied = is_directory.then(|| path.clone());
                findings.push(Finding {
                    path: path.clone(),
                    what: "a denied path (audit.deny)".to_owned(),
                });
            }
            let what = match entry {
                Entry::Link(text) => self.link(text.as_bytes(), leaving.get(path)),
                Entry::Special(kind) if self.special == OddRule::Refuse => {
                    Some(format!("{} (audit.special)", kind_text(*kind)))
                }
                Entry::File(file) => self.file(file.size, file.seen.setuid, file.seen.setgid),
                // A directory's setgid bit only hands its group on.
                Entry::Directory(_) | Entry::Special(_) => None,
            };
            findings.extend(what.map(|what| Finding {
                path: path.clone(),
                what,
            }));
        });
        findings
    }

    fn sizes(&self, tree: &Directory) -> Vec<Finding> {
        let totals = tree.totals();
        let mut findings = Vec::new();
        let mut above = |count: u64, limit: u64, of: &str, key: &str| {
            if count > limit {
                findings.push(Finding {
                    path: RelPath::ROOT,
                    what: format!("{count} {of}, and {limit} is the limit (audit.{key})"),
                });
            }
        };
        above(totals.entries, self.max_entries, "entries", "max_entries");
        above(totals.bytes, self.max_bytes, "bytes in all", "max_bytes");
        findings
    }

    fn link(&self, text: &[u8], leaving: Option<&String>) -> Option<String> {
        let shown = text.escape_ascii();
        match (self.links, leaving) {
            (LinkRule::Refuse, _) => Some(format!("a symlink to '{shown}' (audit.symlinks)")),
            (LinkRule::Inside, Some(way)) => Some(format!(
                "a symlink to '{shown}' that leads out: {way} (audit.symlinks)"
            )),
            (LinkRule::Inside, None) | (LinkRule::Allow, _) => None,
        }
    }

    fn file(&self, size: u64, setuid: bool, setgid: bool) -> Option<String> {
        if size > self.max_file_bytes {
            let limit = self.max_file_bytes;
            return Some(format!(
                "a file of {size} bytes, and {limit} is the limit (audit.max_file_bytes)"
            ));
        }
        let bits = match (setuid, setgid) {
            (true, true) => "setuid and setgid",
            (true, false) => "setuid",
            (false, true) => "setgid",
            (false, false) => return None,
        };
        (self.setuid == OddRule::Refuse).then(|| format!("a {bits} file (audit.setuid)"))
    }
}

const fn kind_text(kind: SpecialKind) -> &'static str {
    match kind {
        SpecialKind::Fifo => "a named pipe",
        SpecialKind::Socket => "a socket",
        SpecialKind::CharacterDevice => "a character device",
        SpecialKind::BlockDevice => "a block device",
        SpecialKind::Mountpoint => "another file system is mounted there",
    }
}
