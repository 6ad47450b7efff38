//! What is written down of a session's workspace: which directory here and which one on the host are
//! one, what is left out, and whether what the agent did there was brought here.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::mirror::durable;
use crate::mirror::excludes::Frozen;
use crate::mirror::state::WrittenPath;
use crate::report::Failure;
use crate::tunnel::host::HostSpec;

/// The form of the record that this program writes.
const VERSION: u32 = 1;
/// The file's name in the session's directory.
const FILE: &str = "mirror.json";
/// Held while the record is changed: the session and a `mirror pull` beside it both do.
const LOCK: &str = "mirror.lock";
/// Longest record, bytes: its only part of free length are the excludes, as in a mirror's own state.
const BYTES_MAX: u64 = crate::mirror::state::STATE_MAX;

/// A session's workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRecord {
    /// The form.
    version: u32,
    /// The directory here, by its real path.
    pub local: WrittenPath,
    /// The host, as the user named it.
    pub host: String,
    /// How it is reached, as it was when the session began.
    pub spec: HostSpec,
    /// The directory there: `<workdir>/sessions/ID/workspace`.
    pub remote: WrittenPath,
    /// What is left out, fixed when the session began.
    pub excludes: Frozen,
    /// What became of the agent's work.
    pub work: Work,
    /// The last push that ended well.
    pub last_push: Option<Push>,
    /// The last pull that made or found a generation.
    pub last_pull: Option<Pull>,
    /// All pushes and pulls so far.
    pub totals: Totals,
}

/// All pushes and pulls of a workspace that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Pushes.
    pub pushes: u64,
    /// Pulls.
    pub pulls: u64,
    /// Bytes of contents that were sent.
    pub sent_bytes: u64,
    /// Bytes of contents that were received.
    pub received_bytes: u64,
    /// Files that pulls made, changed, moved or removed here.
    pub changed_files: u64,
}

impl Totals {
    /// What came since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            pushes: self.pushes.saturating_sub(before.pushes),
            pulls: self.pulls.saturating_sub(before.pulls),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            changed_files: self.changed_files.saturating_sub(before.changed_files),
        }
    }

    const fn add(&mut self, more: Self) {
        self.pushes = self.pushes.saturating_add(more.pushes);
        self.pulls = self.pulls.saturating_add(more.pulls);
        self.sent_bytes = self.sent_bytes.saturating_add(more.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(more.received_bytes);
        self.changed_files = self.changed_files.saturating_add(more.changed_files);
    }
}

/// What became of what the agent did in the workspace there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// No agent ran there since both ends agreed.
    None,
    /// An agent runs there, or ran until its session was killed.
    Open,
    /// All of it is here: a pull was verified after the agent had ended.
    Pulled,
    /// It is there, and not in the directory here.
    Unpulled {
        /// Why not.
        why: String,
    },
}

/// A push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Push {
    /// When it had ended.
    pub at: Timestamp,
    /// The hash of the tree that both ends had then.
    pub tree: String,
    /// Bytes of contents that were sent.
    pub sent_bytes: u64,
}

/// A pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// When it had ended.
    pub at: Timestamp,
    /// The number of the generation that has what was there.
    pub generation: u64,
    /// The hash of its tree.
    pub tree: String,
    /// Bytes of contents that were received.
    pub received_bytes: u64,
}

/// A session's record, and where it is.
#[derive(Clone, Debug)]
pub struct RecordFile {
    directory: PathBuf,
    /// What it says.
    pub record: WorkspaceRecord,
}

impl WorkspaceRecord {
    /// Of a session that begins.
    pub fn new(
        local: &Path,
        (host, spec): (&str, HostSpec),
        remote: &str,
        excludes: Frozen,
    ) -> Self {
        Self {
            version: VERSION,
            local: WrittenPath::of(local.as_os_str()),
            host: host.to_owned(),
            spec,
            remote: WrittenPath::of(remote.as_ref()),
            excludes,
            work: Work::None,
            last_push: None,
            last_pull: None,
            totals: Totals::default(),
        }
    }

    /// The directory here, by its real path.
    pub fn local(&self) -> PathBuf {
        self.local.clone().into_os_string().into()
    }

    /// A push ended well.
    pub fn pushed(&mut self, push: Push) {
        self.totals.add(Totals {
            pushes: 1,
            sent_bytes: push.sent_bytes,
            ..Totals::default()
        });
        self.last_push = Some(push);
    }

    /// A pull made or found a generation, and did so much here.
    pub fn pulled(&mut self, pull: Pull, changed_files: u64) {
        self.totals.add(Totals {
            pulls: 1,
            received_bytes: pull.received_bytes,
            changed_files,
            ..Totals::default()
        });
        self.last_pull = Some(pull);
    }

    /// Whether work of the agent may be on the host and not here, when no owner of the session lives.
    pub const fn is_unpulled(&self) -> bool {
        match self.work {
            Work::None | Work::Pulled => false,
            Work::Open | Work::Unpulled { .. } => true,
        }
    }
}

impl RecordFile {
    /// Writes the record of the session in `directory` for the first time.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(directory: &Path, record: WorkspaceRecord) -> Result<Self, Failure> {
        let file = Self {
            directory: directory.to_owned(),
            record,
        };
        let _lock = file.lock()?;
        file.write()?;
        Ok(file)
    }

    /// The record of the session in `directory`; `None` when it has no mirrored workspace.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub fn read(directory: &Path) -> Result<Option<Self>, Failure> {
        let path = directory.join(FILE);
        let unreadable = |error: &dyn std::error::Error| {
            Failure::because(format!("{} cannot be read", path.display()), error)
        };
        let Some(text) = durable::read(&path, BYTES_MAX).map_err(|error| unreadable(&error))?
        else {
            return Ok(None);
        };
        let record: WorkspaceRecord =
            serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
        if record.version != VERSION {
            return Err(Failure::failed(format!(
                "{} has version {}, and this labproxy knows {VERSION}: use the newer one",
                path.display(),
                record.version
            )));
        }
        Ok(Some(Self {
            directory: directory.to_owned(),
            record,
        }))
    }

    /// Changes the record, durably, from what it says now.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn change(&mut self, change: impl FnOnce(&mut WorkspaceRecord)) -> Result<(), Failure> {
        let _lock = self.lock()?;
        if let Some(now) = Self::read(&self.directory)? {
            self.record = now.record;
        }
        change(&mut self.record);
        self.write()
    }

    fn lock(&self) -> Result<File, Failure> {
        let path = self.directory.join(LOCK);
        let locked = durable::lock_file(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| cannot(&path, "locked", &error))
    }

    fn write(&self) -> Result<(), Failure> {
        let path = self.directory.join(FILE);
        let written = serde_json::to_vec_pretty(&self.record)
            .map_err(io::Error::from)
            .and_then(|text| durable::write(&path, &text));
        written.map_err(|error| cannot(&path, "written", &error))
    }
}

fn cannot(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure::because(format!("{} cannot be {what}", path.display()), error)
}

/// Removes the record of a session that never began.
pub fn forget(directory: &Path) {
    for name in [FILE, LOCK] {
        let _absent = fs::remove_file(directory.join(name));
    }
}
