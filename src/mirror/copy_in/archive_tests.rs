//! What an archive may hold, with small limits.

use std::io::Write as _;
use std::path::PathBuf;

use super::*;
use crate::tree::path::NAME_MAX;

const SMALL: Limits = Limits {
    entries: 5,
    file: 1000,
    tree: 3000,
};

struct Bench {
    place: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            place: tempfile::tempdir().unwrap(),
        }
    }

    fn write(&self, bytes: &[u8]) -> PathBuf {
        let path = self.place.path().join("archive");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// What is refused of it, and what it would be.
    fn read(&self, bytes: &[u8]) -> Result<(Refusals, Vec<String>), CopyInError> {
        let path = self.write(bytes);
        let mut tree = Growing::new(SMALL);
        let mut staging = Staging::begin(self.place.path()).unwrap();
        let refusals = read(&path, &RelPath::ROOT, (&mut tree, &mut staging))?;
        let mut paths = Vec::new();
        tree.finish().unwrap().walk(&mut |path, _| {
            paths.push(String::from_utf8_lossy(path.as_bytes()).into_owned());
        });
        Ok((refusals, paths))
    }

    fn refused(&self, bytes: &[u8]) -> Refusal {
        let (refusals, _) = self.read(bytes).unwrap();
        assert_eq!(refusals.count, 1, "{refusals:?}");
        refusals.first[0].1.clone()
    }

    fn unreadable(&self, bytes: &[u8]) -> String {
        match self.read(bytes) {
            Err(CopyInError::Unreadable { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Bench {
    /// Nothing staged is left, however the reading ended.
    fn drop(&mut self) {
        assert!(!self.place.path().join("copy-in").exists());
    }
}

fn member(name: &[u8], kind: EntryType, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(u64::try_from(content.len()).unwrap());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    member(name.as_bytes(), EntryType::Regular, content)
}

fn ended(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn an_archive_is_read_by_what_its_first_bytes_say() {
    let bench = Bench::new();
    let plain = ended(&[
        member(b"./", EntryType::Directory, b""),
        member(b"./d/", EntryType::Directory, b""),
        file("./d/a", b"one"),
        file("implied/b", b"two"),
    ]);
    let zstd = zstd::stream::encode_all(&plain[..], 1).unwrap();
    for bytes in [plain.clone(), gzip(&plain), zstd] {
        let (refusals, paths) = bench.read(&bytes).unwrap();
        assert_eq!(refusals.count, 0, "{refusals:?}");
        assert_eq!(paths, ["d", "d/a", "implied", "implied/b"]);
    }
}

/// Members that could leave the tree, or that it cannot be.
#[test]
fn what_a_member_may_not_be_is_refused() {
    let bench = Bench::new();
    let mut setuid = tar::Header::new_ustar();
    setuid.set_path("s").unwrap();
    setuid.set_entry_type(EntryType::Regular);
    setuid.set_mode(0o4755);
    setuid.set_size(0);
    setuid.set_cksum();
    for (bytes, why) in [
        (file("/etc/passwd", b""), Refusal::Absolute),
        (file("a/../../b", b""), Refusal::Climbs),
        (
            file("a//b", b""),
            Refusal::Name(crate::tree::path::BadName::Empty),
        ),
        (member(b"l", EntryType::Symlink, b""), Refusal::Symlink),
        (member(b"l", EntryType::Link, b""), Refusal::HardLink),
        (member(b"c", EntryType::Char, b""), Refusal::Device),
        (member(b"b", EntryType::Block, b""), Refusal::Device),
        (member(b"f", EntryType::Fifo, b""), Refusal::Fifo),
        (
            member(b"x", EntryType::new(b'Z'), b"data"),
            Refusal::Kind(b'Z'),
        ),
        (setuid.as_bytes().to_vec(), Refusal::Setuid),
        (
            [file("a", b"1"), file("./a", b"2")].concat(),
            Refusal::Twice,
        ),
        (
            [file("a", b"1"), file("a/b", b"2")].concat(),
            Refusal::FileThere,
        ),
        (
            [file("a/b", b"1"), file("a", b"2")].concat(),
            Refusal::DirectoryThere,
        ),
    ] {
        // What comes after it is read all the same.
        let all = ended(&[bytes, file("last", b"x")]);
        assert_eq!(bench.refused(&all), why);
    }
    let mut extended = tar::Builder::new(Vec::new());
    let sparse = [("GNU.sparse.major", &b"1"[..])];
    extended.append_pax_extensions(sparse).unwrap();
    let mut sparse = extended.into_inner().unwrap();
    sparse.truncate(1024);
    assert_eq!(
        bench.refused(&ended(&[sparse, file("a", b"1")])),
        Refusal::Sparse
    );
    let long = "n".repeat(NAME_MAX + 1);
    let mut long_name = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    header.set_mode(0o644);
    long_name.append_data(&mut header, &long, &b""[..]).unwrap();
    let why = bench.refused(&long_name.into_inner().unwrap());
    assert!(matches!(why, Refusal::Name(_)), "{why:?}");
}

/// Little that becomes much: it ends at a limit, whatever the headers say.
#[test]
fn a_bomb_ends_at_a_limit() {
    let bench = Bench::new();
    let zeros = vec![0; 1001];
    let large = gzip(&ended(&[file("a", &zeros)]));
    let (size, limit) = (1001, 1000);
    assert_eq!(bench.refused(&large), Refusal::TooLarge { size, limit });
    let many: Vec<_> = (0..4)
        .map(|at| file(&format!("{at}"), &zeros[..900]))
        .collect();
    assert_eq!(
        bench.refused(&gzip(&ended(&many))),
        Refusal::TreeTooLarge(3000)
    );
    let many: Vec<_> = (0..6).map(|at| file(&format!("{at}"), b"")).collect();
    assert_eq!(bench.refused(&gzip(&ended(&many))), Refusal::TooMany(5));
    let deep = file("a/b/c/d/e/f", b"");
    assert_eq!(bench.refused(&ended(&[deep])), Refusal::TooMany(5));
    // A name, and extensions, that would be held in memory; and what would be passed over.
    let much = vec![b'n'; usize::try_from(HEADERS_MAX).unwrap() + 1];
    for kind in [
        EntryType::GNULongName,
        EntryType::XHeader,
        EntryType::Symlink,
    ] {
        let bytes = gzip(&ended(&[member(b"x", kind, &much), file("a", b"1")]));
        let why = bench.unreadable(&bytes);
        assert!(
            why.contains("more bytes than its members may have"),
            "{why}"
        );
    }
    let tail = ended(&[file("a", b"1"), vec![0; much.len()]]);
    let why = bench.unreadable(&gzip(&tail));
    assert!(why.contains("more bytes than"), "{why}");
}

/// Half an archive is none, wherever it ends, and two are not one.
#[test]
fn an_archive_that_is_not_whole_is_refused() {
    let bench = Bench::new();
    let whole = ended(&[file("a", b"one"), file("b", b"two")]);
    let ends = whole.len() - 1024;
    for at in [
        0,
        1,
        511,
        512,
        514,
        1024,
        1500,
        ends,
        ends + 512,
        ends + 1023,
    ] {
        bench.unreadable(&whole[..at]);
    }
    let zeros = ended(&[file("zeros", &[0; 900])]);
    bench.unreadable(&zeros[..1536]);
    let packed = gzip(&whole);
    for at in [10, packed.len() - 8, packed.len() - 1] {
        bench.unreadable(&packed[..at]);
    }
    let mut bent = packed;
    let check = bent.len() - 5;
    bent[check] ^= 1;
    bench.unreadable(&bent);
    let two = [whole.clone(), whole].concat();
    let why = bench.unreadable(&two);
    assert!(why.contains("something follows the end"), "{why}");
    let text = vec![b'x'; 4096];
    bench.unreadable(&text);
}
