//! The journal of a workspace's way to another tree, and the state of a mirror.

use std::fs;
use std::path::Path;

use labproxy::mirror::excludes::Frozen;
use labproxy::mirror::journal::{Journal, JournalError, TreeOf};
use labproxy::mirror::plan::{Options, plan};
use labproxy::mirror::state::{MirrorDirectory, MirrorState, StateError};
use labproxy::mirror::store::GenerationNumber;
use labproxy::mirror::way::Way;
use labproxy::tree::directory::Directory;
use labproxy::tree::entry::{Entry, Seen};
use labproxy::tree::limits::Limits;
use labproxy::tree::mirror_id::MirrorId;
use labproxy::tree::path::{Name, RelPath};
use labproxy::tree::root::RootIdentity;
use labproxy::tree::step::Step;

use crate::trees::{MIRROR, file, tree};

const ROOT: RootIdentity = RootIdentity {
    device: 1,
    inode: 2,
    born: Some((3, 4)),
};

fn journal() -> Journal {
    let old = tree([("a", b"1".as_slice())]);
    Journal {
        mirror: MIRROR,
        root: ROOT,
        generation: GenerationNumber(5),
        old: TreeOf::Here(old.clone()),
        new: TreeOf::Generation {
            number: GenerationNumber(5),
            tree: old.hash(),
        },
    }
}

fn read(place: &Path) -> Result<Option<Journal>, JournalError> {
    let read = Journal::read(place, MIRROR, ROOT, &Limits::default())?;
    Ok(read.map(|(journal, _)| journal))
}

#[test]
fn a_journal_is_there_until_it_is_finished() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(read(place.path()).unwrap(), None);
    let open = journal().begin(place.path()).unwrap();
    assert_eq!(read(place.path()).unwrap(), Some(journal()));
    let second = journal().begin(place.path());
    assert!(matches!(second, Err(JournalError::Unfinished { .. })));
    open.finish().unwrap();
    assert_eq!(read(place.path()).unwrap(), None);
}

/// A journal that somebody forged or copied is never followed, and says why; one in the workspace
/// is a file like others.
#[test]
fn t30_a_forged_or_foreign_journal_stops() {
    let place = tempfile::tempdir().unwrap();
    drop(journal().begin(place.path()).unwrap());
    let path = place.path().join("journal");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut forged = whole.clone();
        forged[at] ^= 1;
        fs::write(&path, forged).unwrap();
        let error = read(place.path()).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { .. }), "byte {at}");
    }
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(
        read(place.path()),
        Err(JournalError::Damaged { .. })
    ));
    fs::write(&path, &whole).unwrap();
    let limits = Limits::default();
    let other = MirrorId::from_random([1; 16]);
    let error = Journal::read(place.path(), other, ROOT, &limits).unwrap_err();
    assert!(matches!(
        error,
        JournalError::Foreign { what: "mirror", .. }
    ));
    let root = RootIdentity { inode: 3, ..ROOT };
    let error = Journal::read(place.path(), MIRROR, root, &limits).unwrap_err();
    assert!(matches!(error, JournalError::Foreign { what: "root", .. }));
    let workspace = tempfile::tempdir_in(place.path()).unwrap();
    fs::rename(&path, workspace.path().join("journal")).unwrap();
    assert_eq!(read(place.path()).unwrap(), None);
}

fn with<'a>(mut entries: Vec<(&'a str, Entry)>, more: Vec<(&'a str, Entry)>) -> Directory {
    entries.extend(more);
    let named = entries
        .into_iter()
        .map(|(name, entry)| (Name::new(name.as_bytes()).unwrap(), entry));
    Directory::new(named.collect(), Seen::default()).unwrap()
}

/// Edits between the crash and the recovery are told from what the run did, also where it had nothing
/// to do.
#[test]
fn t30_only_what_is_exactly_old_is_done_again() {
    let file = |bytes: &[u8]| Entry::File(file(bytes));
    let directory = |entries| Entry::Directory(with(entries, vec![]));
    let both = || vec![("same", file(b"s"))];
    let old = with(
        both(),
        vec![
            ("todo", file(b"1")),
            ("finished", file(b"1")),
            ("edited", file(b"1")),
            ("removed", file(b"1")),
            ("goes", file(b"1")),
            ("turns", file(b"1")),
            ("dir", directory(vec![("x", file(b"1"))])),
        ],
    );
    let new = with(
        both(),
        vec![
            ("todo", file(b"2")),
            ("finished", file(b"2")),
            ("edited", file(b"2")),
            ("removed", file(b"2")),
            ("turns", directory(vec![("y", file(b"2"))])),
            ("dir", directory(vec![("x", file(b"2"))])),
            ("comes", file(b"2")),
        ],
    );
    let now = with(
        vec![("same", file(b"edited, and nothing to the journal"))],
        vec![
            ("todo", file(b"1")),
            ("finished", file(b"2")),
            ("edited", file(b"3")),
            ("goes", file(b"1")),
            ("dir", directory(vec![("x", file(b"4"))])),
            ("more", file(b"m")),
        ],
    );
    let paths = |names: &[&str]| -> Vec<RelPath> {
        names
            .iter()
            .map(|name| RelPath::new(*name).unwrap())
            .collect()
    };
    let steps = plan(&new, &old, Options::default()).steps;
    let way = Way::of(&old, &steps);
    let strangers = ["dir/x", "edited", "more", "removed", "same"];
    assert_eq!(way.strangers(&now), paths(&strangers));
    assert_eq!(way.strangers(&new), []);
    assert_eq!(way.strangers(&old), []);
}

/// A directory that was renamed stands under its new name with old contents for a while, and what an
/// applier had not finished lies beside: both are our own. A directory of such a name is not.
#[test]
fn t30_a_run_that_was_cut_off_knows_its_own_half_done_work() {
    let file = |bytes: &[u8]| Entry::File(file(bytes));
    let directory = |entries| Entry::Directory(with(entries, vec![]));
    let many = |edited: &'static [u8]| {
        vec![
            ("edited", file(edited)),
            ("one", file(b"1")),
            ("two", file(b"2")),
            ("three", file(b"3")),
        ]
    };
    let old = with(vec![("a", directory(many(b"old")))], vec![]);
    let new = with(vec![("b", directory(many(b"new")))], vec![]);
    let steps = plan(&new, &old, Options::default()).steps;
    let way = Way::of(&old, &steps);
    assert!(steps.iter().any(|step| matches!(step, Step::Move { .. })));
    let unfinished = format!(".labproxy-{}.tmp", "0123456789abcdef".repeat(2));
    let moved = || vec![("b", directory(many(b"old")))];
    let half = with(moved(), vec![(&unfinished, file(b"ne"))]);
    assert_eq!(way.strangers(&half), []);
    let deeper = with(vec![("a", directory(many(b"new")))], vec![]);
    assert_eq!(way.strangers(&deeper), [RelPath::new("a/edited").unwrap()]);
    let odd = with(moved(), vec![(&unfinished, directory(vec![]))]);
    assert_eq!(
        way.strangers(&odd),
        [RelPath::new(unfinished.as_str()).unwrap()]
    );
}

/// What a mirror is bound to reads back; what somebody edited is refused.
#[test]
fn a_mirrors_state_is_kept_and_its_excludes_are_frozen() {
    use std::os::unix::ffi::OsStringExt as _;
    let place = tempfile::tempdir().unwrap();
    let directory = MirrorDirectory::take(&place.path().join("mirror")).unwrap();
    assert_eq!(directory.state().unwrap(), None);
    let state = MirrorState {
        mirror: MIRROR,
        local: std::ffi::OsString::from_vec(b"/not/\xfftext".to_vec()).into(),
        identity: ROOT,
        remote: "gpu:/work".into(),
        excludes: Frozen {
            flags: vec!["*.pem".into()],
            ..Frozen::default()
        },
    };
    directory.save(&state).unwrap();
    assert_eq!(directory.state().unwrap(), Some(state));
    let path = directory.path().join("mirror.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("*.pem", "*.txt")).unwrap();
    assert!(matches!(directory.state(), Err(StateError::Damaged { .. })));
    fs::write(&path, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    assert!(matches!(
        directory.state(),
        Err(StateError::Version { version: 2, .. })
    ));
}

/// One process at a time works with a mirror, and the next is told which; others may not look in.
#[test]
fn a_mirror_is_taken_once() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("mirror");
    let first = MirrorDirectory::take(&path).unwrap();
    let error = MirrorDirectory::take(&path).unwrap_err();
    let pid = std::process::id();
    assert!(
        error
            .to_string()
            .ends_with(&format!("is used by pid {pid}")),
        "{error}"
    );
    drop(first);
    drop(MirrorDirectory::take(&path).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(MirrorDirectory::take(&path).is_err());
}
