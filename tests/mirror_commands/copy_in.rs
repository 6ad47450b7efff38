//! `mirror copy-in`: what is put, and what is refused before anything is changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tar::EntryType;

use crate::rig::{Ran, Rig};

impl Rig {
    /// `mirror copy-in SOURCE local far MORE…`
    fn copy_in(&self, source: &str, more: &str) -> Ran {
        let (source, local, far) = (self.path(source), self.path("local"), self.path("far"));
        let words = ["mirror", "copy-in"].map(OsStr::new).into_iter();
        let ends = [&source, &local, &far].map(|path| path.as_os_str());
        self.run(
            words
                .chain(ends)
                .chain(more.split_whitespace().map(OsStr::new)),
        )
    }

    /// Every path of both ends with what is there.
    fn everything(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for end in ["local", "far"] {
            collect(&self.path(end), end, &mut all);
        }
        all
    }

    /// Refused with these words, this status, and nothing changed or left behind.
    #[track_caller]
    fn refuses(&self, source: &str, more: &str, (code, words): (i32, &[&str])) {
        let before = self.everything();
        let ran = self.copy_in(source, more).expect(code);
        for word in words {
            assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
        }
        assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
        assert_eq!(self.everything(), before, "{}", ran.stderr);
        self.nothing_is_staged();
    }

    fn nothing_is_staged(&self) {
        let mirrors = self.path("home/.local/state/labproxy/mirrors");
        for mirror in fs::read_dir(mirrors).unwrap() {
            assert!(!mirror.unwrap().path().join("copy-in").exists());
        }
    }
}

fn collect(path: &Path, name: &str, all: &mut BTreeMap<String, String>) {
    let Ok(seen) = path.symlink_metadata() else {
        return;
    };
    let mode = seen.permissions().mode();
    let text = if seen.is_symlink() {
        format!("-> {}", fs::read_link(path).unwrap().display())
    } else if seen.is_file() {
        format!("{mode:o} {}", fs::read(path).unwrap().escape_ascii())
    } else {
        format!("{mode:o}")
    };
    all.insert(name.to_owned(), text);
    if seen.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{name}/{}", entry.file_name().display());
            collect(&entry.path(), &name, all);
        }
    }
}

/// One member, whatever its name is.
fn member(name: &str, kind: EntryType, mode: u32, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(u64::try_from(content.len()).unwrap());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &str) -> Vec<u8> {
    member(name, EntryType::Regular, 0o644, content.as_bytes())
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// A mirror that both ends agree on.
fn mirrored() -> Rig {
    let rig = Rig::new();
    rig.write("local/a", "mine");
    rig.write("local/d/b", "kept");
    symlink("a", rig.path("local/link")).unwrap();
    rig.push("");
    rig
}

#[test]
fn an_archive_is_put_and_pushed() {
    let rig = Rig::new();
    let plain = archive(&[
        member("./", EntryType::Directory, 0o755, b""),
        member("./sub/", EntryType::Directory, 0o755, b""),
        file("./sub/data", "one"),
        member("./run.sh", EntryType::Regular, 0o755, b"#!/bin/sh\n"),
        file(".envrc", "the user's own"),
    ]);
    let zstd = zstd::stream::encode_all(&plain[..], 1).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &plain).unwrap();
    rig.write("x.tar", &plain);
    rig.write("x.tar.zst", zstd);
    rig.write("x.tgz", gzip.finish().unwrap());
    let dry = rig.copy_in("x.tar", "--dry-run --to in/x").expect(0);
    assert!(
        dry.stdout.contains("new      in/x/sub/data\n"),
        "{}",
        dry.stdout
    );
    assert!(
        dry.stdout.ends_with("would copy in 6 new, 0 replaced\n"),
        "{}",
        dry.stdout
    );
    assert!(!rig.has("local/in") && !rig.has("far"));
    for (source, to) in [("x.tar", "t"), ("x.tgz", "g"), ("x.tar.zst", "in/z")] {
        let ran = rig
            .copy_in(source, &format!("--to {to} --json"))
            .expect(0)
            .json();
        assert_eq!(ran["created"], if to == "in/z" { 6 } else { 5 }, "{ran}");
        let count = |name: &str| ran["push"][name].as_u64().unwrap();
        assert_eq!(count("created") + count("copied"), ran["created"], "{ran}");
        for end in ["local", "far"] {
            assert_eq!(rig.read(format!("{end}/{to}/sub/data")), b"one");
            assert_eq!(rig.read(format!("{end}/{to}/.envrc")), b"the user's own");
            let script = rig.path(format!("{end}/{to}/run.sh"));
            let mode = script.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if end == "local" { 0o700 } else { 0o755 });
        }
    }
    let again = rig.copy_in("x.tar", "--to t").expect(0);
    assert!(
        again
            .stdout
            .starts_with("copied in 0 new, 0 replaced\npushed 0 new")
    );
    rig.nothing_is_staged();
    assert_eq!(rig.mirror("diff", "").expect(0).stdout, "");
}

#[test]
fn a_directory_is_put_and_pushed() {
    let rig = mirrored();
    rig.write("from/d/c", "new");
    rig.write("from/d/empty", "");
    fs::create_dir(rig.path("from/nothing")).unwrap();
    let ran = rig.copy_in("from", "").expect(0);
    assert!(
        ran.stdout
            .starts_with("copied in 3 new, 0 replaced\npushed 3 new"),
        "{}",
        ran.stdout
    );
    for end in ["local", "far"] {
        assert_eq!(rig.read(format!("{end}/d/c")), b"new");
        assert_eq!(rig.read(format!("{end}/d/empty")), b"");
        assert_eq!(rig.read(format!("{end}/d/b")), b"kept");
        assert!(rig.path(format!("{end}/nothing")).is_dir());
    }
    for inside in ["local/d", "local", "far", "far/d"] {
        rig.refuses_as_end(inside);
    }
    rig.refuses_as_end("home");
}

impl Rig {
    #[track_caller]
    fn refuses_as_end(&self, source: &str) {
        let before = self.everything();
        self.copy_in(source, "").expect(2);
        assert_eq!(self.everything(), before);
    }
}

/// What is there is replaced only when that is asked for, and what is no file never.
#[test]
fn what_is_there_is_replaced_only_by_replace() {
    let rig = mirrored();
    rig.write(
        "x.tar",
        archive(&[
            file("a", "theirs"),
            file("link", "a file"),
            file("n", "new"),
        ]),
    );
    rig.refuses(
        "x.tar",
        "",
        (
            1,
            &[
                "other files are there",
                "\n  a\n  link\nhint: ",
                "--replace",
            ],
        ),
    );
    rig.refuses("x.tar", "--dry-run", (1, &["\n  a\n  link\n"]));
    let ran = rig.copy_in("x.tar", "--replace").expect(0);
    assert!(
        ran.stdout.starts_with("copied in 1 new, 2 replaced\n"),
        "{}",
        ran.stdout
    );
    for end in ["local", "far"] {
        assert_eq!(rig.read(format!("{end}/a")), b"theirs");
        assert_eq!(rig.read(format!("{end}/link")), b"a file");
        assert_eq!(rig.read(format!("{end}/n")), b"new");
    }
    symlink("d", rig.path("local/way")).unwrap();
    rig.push("");
    for (name, why) in [
        ("d", "d: a directory is there"),
        ("a/b", "a: a file is there"),
        ("way/b", "way: a symlink is there"),
    ] {
        rig.write("y.tar", archive(&[file("first", "x"), file(name, "x")]));
        rig.refuses("y.tar", "--replace", (1, &[why]));
    }
    rig.refuses(
        "x.tar",
        "--replace --to way",
        (1, &["way: a symlink is there"]),
    );
    let to = rig.copy_in("x.tar", "--to ../out").expect(2);
    assert!(to.stderr.contains("--to ../out: "), "{}", to.stderr);
}

/// All that is wrong is told at once, and good members beside it are not put.
#[test]
fn what_an_archive_may_not_hold_is_refused() {
    let rig = mirrored();
    let members = [
        file("good", "x"),
        file("/abs", "x"),
        file("d/../../up", "x"),
        file("d//x", "x"),
        member("sym", EntryType::Symlink, 0o777, b""),
        member("hard", EntryType::Link, 0o644, b""),
        member("dev", EntryType::Block, 0o644, b""),
        member("fifo", EntryType::Fifo, 0o644, b""),
        member("suid", EntryType::Regular, 0o4755, b"x"),
        member("e\x1b[2J", EntryType::Symlink, 0o777, b""),
        file("good", "twice"),
        file("good/below", "x"),
    ];
    rig.write("x.tar", archive(&members));
    let told = [
        "\n  /abs: an absolute path\n",
        "\n  d/../../up: a path with '..'\n",
        "\n  d//x: an empty name\n",
        "\n  sym: a symlink\n",
        "\n  hard: a hard link\n",
        "\n  dev: a device\n",
        "\n  fifo: a FIFO\n",
        "\n  suid: it has the setuid or setgid bit\n",
        "\n  good: it comes twice\n",
        "\n  good/below: a file is where a directory is to be\n",
    ];
    rig.refuses("x.tar", "--replace", (1, &told));
    let ran = rig.copy_in("x.tar", "").expect(1);
    assert!(!ran.stderr.contains('\x1b'), "{}", ran.stderr);
    rig.write("half.tar", &archive(&members[..1])[..1024]);
    rig.refuses(
        "half.tar",
        "",
        (2, &["half.tar cannot be read: ", "cut off"]),
    );
    rig.write("text.tar", "x".repeat(5000));
    rig.refuses("text.tar", "", (2, &["text.tar cannot be read: "]));
    rig.refuses("missing.tar", "", (2, &["missing.tar cannot be read: "]));
}

#[test]
fn what_a_directory_may_not_hold_is_refused() {
    let rig = mirrored();
    rig.write("from/good", "x");
    symlink("/etc/passwd", rig.path("from/sym")).unwrap();
    rig.write("from/one", "x");
    fs::hard_link(rig.path("from/one"), rig.path("from/other")).unwrap();
    mknodat(CWD, rig.path("from/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = UnixListener::bind(rig.path("from/socket")).unwrap();
    rig.write("from/suid", "x");
    let mode = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(rig.path("from/suid"), mode).unwrap();
    let told = [
        "\n  sym: a symlink\n",
        "\n  one: a hard link\n",
        "\n  other: a hard link\n",
        "\n  fifo: a FIFO\n",
        "\n  socket: a socket\n",
        "\n  suid: it has the setuid or setgid bit\n",
    ];
    rig.refuses("from", "", (1, &told));
}

/// Headers that announce more than a mirror may have, and names of megabytes in a few KiB.
#[test]
fn a_bomb_is_refused() {
    let rig = mirrored();
    let mut header = tar::Header::new_gnu();
    header.set_path("bomb").unwrap();
    header.set_mode(0o644);
    header.set_size(8 * 1024 * 1024 * 1024 + 1);
    header.set_cksum();
    let large = [file("good", "x"), header.as_bytes().to_vec()].concat();
    rig.write("x.tar", large);
    rig.refuses(
        "x.tar",
        "",
        (1, &["bomb: a file of 8589934593 bytes, and 8589934592 is"]),
    );
    let name = member("long", EntryType::GNULongName, 0o644, &vec![b'n'; 64 << 20]);
    let packed = zstd::stream::encode_all(&archive(&[name, file("x", "x")])[..], 1).unwrap();
    assert!(packed.len() < 64 << 10);
    rig.write("y.tar.zst", packed);
    rig.refuses(
        "y.tar.zst",
        "",
        (2, &["more bytes than its members may have"]),
    );
}

/// What the push would refuse is refused before anything is put.
#[test]
fn what_a_push_would_refuse_changes_nothing() {
    const KEY: &str = "sk-ant-canary-0123456789";
    let rig = mirrored();
    rig.write("x.tar", archive(&[file("new", "x"), file(".env", "KEY=1")]));
    rig.refuses(
        "x.tar",
        "",
        (1, &["looks like secrets", "\n  .env: ", "--allow-secret"]),
    );
    rig.write("far/theirs", "an agent's");
    rig.refuses(
        "x.tar",
        "--allow-secret .env",
        (1, &["has changed", "\n  theirs\n"]),
    );
    rig.pull("");
    rig.copy_in("x.tar", "--allow-secret .env").expect(0);
    assert_eq!(rig.read("far/.env"), b"KEY=1");
    rig.write("from/notes", format!("key: {KEY}"));
    let before = rig.everything();
    let ends = ["from", "local", "far"].map(|end| rig.path(end));
    let words = ["mirror", "copy-in"].map(OsStr::new).into_iter();
    let mut command = rig.command(words.chain(ends.iter().map(|end| end.as_os_str())));
    let ran = Ran::of(
        &command
            .args(["--allow-secret", ".env"])
            .env("ANTHROPIC_API_KEY", KEY)
            .output()
            .unwrap(),
    )
    .expect(1);
    assert!(
        ran.stderr.contains("credential\n  notes\n"),
        "{}",
        ran.stderr
    );
    assert_eq!(rig.everything(), before);
}

/// What is excluded would never be there, and no bundle says what is.
#[test]
fn excludes_are_not_gone_around() {
    let rig = Rig::new();
    rig.write(
        "x.tar",
        archive(&[file("d/.labproxyignore", "out\n"), file("d/out", "x")]),
    );
    rig.refuses(
        "x.tar",
        "",
        (1, &["d/.labproxyignore: excludes are read before"]),
    );
    rig.write("local/.labproxyignore", "out\n");
    rig.push("");
    rig.refuses("x.tar", "", (1, &["d/out: it is excluded from the mirror"]));
}
