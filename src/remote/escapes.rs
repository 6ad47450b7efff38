//! What outlives a session although every process of it ended: timers, jobs, containers, keys.
//!
//! They are listed when a session begins and again when it has ended; what is new is told, and so
//! is what could not be looked at. A process of its own does it, so that a hanging engine or bus
//! holds nothing up.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::Moment;
use super::login::Login;
use super::{own, reading};

/// How long one program may take to list what it knows.
const LIST_LIMIT: Duration = Duration::from_secs(3);
/// How long all of it may take: they are asked at once.
pub const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks whether a program that says no more has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Bytes of one list that are read.
const LIST_MAX: usize = 256 * 1024;
/// Entries of one list that are told of.
const TOLD_MAX: usize = 50;
/// Characters of an entry that are told.
const ENTRY_MAX: usize = 200;

/// What lists a kind of thing.
struct Lister {
    /// What an entry of it is called.
    what: &'static str,
    command: &'static [&'static str],
    /// How the program says on standard error that there is nothing.
    nothing: &'static str,
    /// Only the superuser's are like this.
    root: bool,
}

const LISTERS: [Lister; 6] = [
    Lister {
        what: "cron table entry",
        command: &["crontab", "-l"],
        nothing: "no crontab for",
        root: false,
    },
    Lister {
        what: "at job",
        command: &["atq"],
        nothing: "",
        root: false,
    },
    Lister {
        what: "timer of the user's systemd",
        command: &[
            "systemctl",
            "--user",
            "list-units",
            "--all",
            "--type=timer",
            "--plain",
            "--no-legend",
            "--no-pager",
        ],
        nothing: "",
        root: false,
    },
    Lister {
        what: "transient unit of the user's systemd",
        command: &[
            "systemctl",
            "--user",
            "list-units",
            "--all",
            "--plain",
            "--no-legend",
            "--no-pager",
            "run-*",
        ],
        nothing: "",
        root: false,
    },
    Lister {
        what: "transient unit of the system",
        command: &[
            "systemctl",
            "list-units",
            "--all",
            "--plain",
            "--no-legend",
            "--no-pager",
            "run-*",
        ],
        nothing: "",
        root: true,
    },
    Lister {
        what: "container",
        command: &[
            "docker",
            "ps",
            "--all",
            "--no-trunc",
            "--format",
            "{{.ID}} {{.Names}} {{.Image}}",
        ],
        nothing: "",
        root: false,
    },
];

/// What was there at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Entries by kind; why not, for a kind that could not be looked at.
    kinds: BTreeMap<String, Result<BTreeSet<String>, String>>,
}

/// What is new since, and what cannot be told.
pub fn compare(before: Option<&Snapshot>, after: Option<&Snapshot>) -> (Vec<String>, Vec<String>) {
    let Some(after) = after else {
        let why = "timers, jobs, containers and keys: they were not listed in time";
        return (Vec::new(), vec![why.to_owned()]);
    };
    let (mut escapes, mut unseen) = (Vec::new(), Vec::new());
    for (kind, entries) in &after.kinds {
        let entries = match entries {
            Ok(entries) => entries,
            Err(why) => {
                unseen.push(format!("{kind}: {why}"));
                continue;
            }
        };
        match before.and_then(|before| before.kinds.get(kind)) {
            Some(Ok(known)) => {
                let new = entries.difference(known).take(TOLD_MAX);
                escapes.extend(new.map(|entry| format!("{kind}: {entry}")));
            }
            _ if entries.is_empty() => {}
            _ => unseen.push(format!("{kind}: it was not listed when the session began")),
        }
    }
    (escapes, unseen)
}

/// A look that is under way.
#[derive(Debug)]
pub struct Look {
    child: Child,
    news: PipeReader,
    bytes: Vec<u8>,
}

impl Look {
    /// Starts one.
    pub fn start(login: &Login) -> io::Result<Self> {
        let (news, theirs) = io::pipe()?;
        rustix::io::ioctl_fionbio(&news, true)?;
        let mut command = own::role("look");
        command.envs(login.environment()).stdout(theirs);
        let child = command.spawn()?;
        Ok(Self {
            child,
            news,
            bytes: Vec::new(),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it saw; `None` while it looks, an error when it saw nothing.
    pub fn outcome(&mut self) -> Option<io::Result<Snapshot>> {
        match self.news.read_to_end(&mut self.bytes) {
            Ok(_) => Some(postcard::from_bytes(&self.bytes).map_err(io::Error::other)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl AsFd for Look {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

/// The role `look`: lists everything, and writes the snapshot to standard output.
pub fn main(login: &Login) -> u8 {
    let root = rustix::process::geteuid().is_root();
    let asked: Vec<(&'static str, Result<Listing, String>)> = LISTERS
        .iter()
        .filter(|lister| root || !lister.root)
        .filter_map(|lister| Some((lister.what, begin(lister, login)?)))
        .collect();
    let until = Moment::now().after(LIST_LIMIT);
    let mut snapshot = Snapshot::default();
    for (what, listing) in asked {
        let entries = listing.and_then(|listing| listing.finish(until));
        snapshot.kinds.insert(what.to_owned(), entries);
    }
    let keys = "key that may log in";
    snapshot
        .kinds
        .insert(keys.to_owned(), authorized_keys(login));
    let bytes = postcard::to_extend(&snapshot, Vec::new()).unwrap_or_default();
    u8::from(io::stdout().write_all(&bytes).is_err())
}

/// A program that lists.
struct Listing {
    child: Child,
    out: PipeReader,
    err: PipeReader,
    nothing: &'static str,
}

/// Starts it; nothing when there is no such program, and so nothing that it could list.
fn begin(lister: &Lister, login: &Login) -> Option<Result<Listing, String>> {
    let (program, rest) = lister.command.split_first()?;
    let started = (|| {
        let (out, out_theirs) = io::pipe()?;
        let (err, err_theirs) = io::pipe()?;
        let mut command = Command::new(program);
        command
            .args(rest)
            .env_clear()
            .envs(login.environment())
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(out_theirs)
            .stderr(err_theirs);
        let child = command.spawn()?;
        Ok::<_, io::Error>((child, out, err))
    })();
    match started {
        Ok((child, out, err)) => Some(Ok(Listing {
            child,
            out,
            err,
            nothing: lister.nothing,
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.to_string())),
    }
}

impl Listing {
    /// Its exit status: a program that closed what it writes to may go on for ever.
    fn status(&mut self, until: Moment) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Moment::now() < until => std::thread::sleep(LOOK_EVERY),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn finish(mut self, until: Moment) -> Result<BTreeSet<String>, String> {
        let read = |from| reading::whole(from, LIST_MAX, until);
        let output = (read(&self.out), read(&self.err));
        let (Ok(out), Ok(err), Some(status)) = (output.0, output.1, self.status(until)) else {
            // It may have ended meanwhile. One that waits for a device does not end by this, and is
            // left to whoever takes in orphans.
            let _gone = self.child.kill();
            return Err("it did not answer in time".to_owned());
        };
        let err = String::from_utf8_lossy(&err);
        let nothing = !self.nothing.is_empty() && err.contains(self.nothing);
        if status.success() || nothing {
            return Ok(lines(&String::from_utf8_lossy(&out)));
        }
        let first = err.lines().next().unwrap_or("it failed");
        Err(first.chars().take(ENTRY_MAX).collect())
    }
}

fn lines(text: &str) -> BTreeSet<String> {
    let all = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // A comment of a table is no entry.
    all.filter(|line| !line.starts_with('#'))
        .map(|line| line.chars().take(ENTRY_MAX).collect())
        .collect()
}

/// The user's `authorized_keys`, each by its kind and end: a key's end tells it from others.
fn authorized_keys(login: &Login) -> Result<BTreeSet<String>, String> {
    let home = login.home().ok_or("the login has no HOME")?;
    let mut keys = BTreeSet::new();
    for name in ["authorized_keys", "authorized_keys2"] {
        let path = home.join(".ssh").join(name);
        let mut text = String::new();
        match File::open(&path) {
            Ok(file) if file.metadata().is_ok_and(|facts| facts.is_file()) => {
                let most = u64::try_from(LIST_MAX).unwrap_or(u64::MAX);
                let read = file.take(most).read_to_string(&mut text);
                read.map_err(|error| error.to_string())?;
            }
            Ok(_) => return Err(format!("~/.ssh/{name} is no file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
        }
        keys.extend(
            text.lines()
                .map(str::trim)
                .filter(|line| is_key(line))
                .map(|line| {
                    let characters: Vec<char> = line.chars().collect();
                    let from = characters.len().saturating_sub(ENTRY_MAX);
                    characters.into_iter().skip(from).collect::<String>()
                }),
        );
    }
    Ok(keys)
}

fn is_key(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(kinds: &[(&str, Result<&[&str], &str>)]) -> Snapshot {
        let entries = |entries: &[&str]| entries.iter().map(|text| (*text).to_owned()).collect();
        Snapshot {
            kinds: kinds
                .iter()
                .map(|(kind, list)| ((*kind).to_owned(), list.map(entries).map_err(str::to_owned)))
                .collect(),
        }
    }

    /// A program that says it is done and does not end holds nothing up.
    #[test]
    fn a_lister_that_does_not_end_is_unseen() {
        let login = Login::take();
        for text in ["exec >&- 2>&-; exec sleep 1000", "exec sleep 1000"] {
            let words: [&'static str; 3] = ["/bin/sh", "-c", text];
            let lister = Lister {
                what: "thing",
                command: Box::leak(Box::new(words)),
                nothing: "",
                root: false,
            };
            let listing = begin(&lister, &login).unwrap().unwrap();
            let until = Moment::now().after(Duration::from_millis(50));
            let seen = listing.finish(until);
            assert_eq!(seen, Err("it did not answer in time".to_owned()));
            assert!(
                Moment::now().since(until) < Duration::from_secs(20),
                "{text}"
            );
        }
    }

    /// New entries are escapes; what one of the two looks did not see is unseen, never nothing.
    #[test]
    fn t16_what_is_new_is_an_escape_and_what_was_not_seen_is_said() {
        let before = snapshot(&[("at job", Ok(&["1"])), ("container", Err("no answer"))]);
        let after = snapshot(&[
            ("at job", Ok(&["1", "2"])),
            ("container", Ok(&["c"])),
            ("timer", Err("no bus")),
        ]);
        let (escapes, unseen) = compare(Some(&before), Some(&after));
        assert_eq!(escapes, ["at job: 2"]);
        assert_eq!(unseen.len(), 2, "{unseen:?}");
        let (escapes, unseen) = compare(None, Some(&after));
        assert_eq!((escapes.len(), unseen.len()), (0, 3));
        let (escapes, unseen) = compare(Some(&before), None);
        assert_eq!((escapes.len(), unseen.len()), (0, 1));
    }
}
