//! What is written down of a session's host, so that `stop`, `resume` and `discard` find it with the
//! same parameters, whoever owned the session.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::mirror::durable;
use crate::report::Failure;
use crate::tunnel::host::HostSpec;

/// The file's name in the session's directory.
const FILE: &str = "host.json";
/// Larger files are not ours: a record has a few paths and names.
const BYTES_MAX: u64 = 1 << 20;

/// A session's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRecord {
    /// The host, as the user named it.
    pub name: String,
    /// How it is reached.
    pub host: HostSpec,
    /// How long things there outlive their last link, milliseconds.
    pub lease_ms: u64,
    /// The number of the last link that was tried.
    pub link: u64,
    /// Whether something may be there.
    pub remains: Remains,
}

/// What may be on the host of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remains {
    /// The session runs, or its end was not confirmed.
    Unknown,
    /// Nothing: no supervisor was ever asked for.
    NotBegun,
    /// Nothing, as the host reported.
    Nothing,
    /// These, as the host reported: a line for each. One of the two lists is not empty.
    These {
        /// What is left.
        left: Vec<String>,
        /// What the host could not look at, so that something may be left there.
        unseen: Vec<String>,
    },
}

/// A session's record, and where it is.
#[derive(Clone, Debug)]
pub struct RecordFile {
    path: PathBuf,
    /// What it says.
    pub record: HostRecord,
}

impl RecordFile {
    /// The record of a session that begins on a host; links go on from those of an earlier run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(
        directory: &Path,
        name: &str,
        host: HostSpec,
        lease_ms: u64,
    ) -> Result<Self, Failure> {
        let link = Self::read(directory)?.map_or(0, |file| file.record.link);
        let file = Self {
            path: directory.join(FILE),
            record: HostRecord {
                name: name.to_owned(),
                host,
                lease_ms,
                link,
                remains: Remains::Unknown,
            },
        };
        file.write()?;
        Ok(file)
    }

    /// The record of the session in `directory`; `None` when it has no host.
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
        let record = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
        Ok(Some(Self { path, record }))
    }

    /// Takes the next link's number, durably: an owner that dies must not leave a number that its
    /// successor uses again.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn next_link(&mut self) -> Result<u64, Failure> {
        self.record.link = self.record.link.saturating_add(1);
        self.write()?;
        Ok(self.record.link)
    }

    /// Writes down what is left.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remains(&mut self, remains: Remains) -> Result<(), Failure> {
        self.record.remains = remains;
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let written = serde_json::to_vec_pretty(&self.record)
            .map_err(std::io::Error::from)
            .and_then(|text| durable::write(&self.path, &text));
        written.map_err(|error| {
            Failure::because(format!("{} cannot be written", self.path.display()), &error)
        })
    }
}
