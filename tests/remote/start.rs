//! What a program starts with: arguments, environment, directory, files, all as bytes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use labproxy::wire::bytes::ByteString;
use labproxy::wire::link::{ExecEnd, PrivateFile, StartError, ToHost};

use crate::client::{Client, shell, spec};
use crate::rig::Host;

fn bytes(text: &[u8]) -> ByteString {
    ByteString::from(OsStr::from_bytes(text))
}

/// Arguments of any bytes and lengths arrive as they are; what the kernel refuses is said.
#[test]
fn tu03_arguments_arrive_as_they_are() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let longest = vec![b'x'; 131_071];
    let odd: [&[u8]; 8] = [
        b"",
        b"new\nline",
        b"'\"`$HOME\\ ",
        "\u{e4}\u{1f980}".as_bytes(),
        b"\xff\xfe\x80",
        b"*",
        b"-n",
        &longest,
    ];
    let mut argv = spec(&["printf", "%s\\0"]);
    argv.argv.extend(odd.iter().map(|text| bytes(text)));
    let done = client.run(1, &argv, b"");
    let mut expected = Vec::new();
    for text in odd {
        expected.extend_from_slice(text);
        expected.push(0);
    }
    assert!(done.stdout == expected, "{} bytes", done.stdout.len());
    // A mebibyte in all.
    let mut argv = spec(&["printf", "%s"]);
    argv.argv
        .extend((0..16).map(|_| bytes(&vec![b'y'; 65_536])));
    assert_eq!(client.run(2, &argv, b"").stdout.len(), 16 * 65_536);
    let mut argv = spec(&["true"]);
    argv.argv.push(bytes(&vec![b'x'; 131_072]));
    assert_eq!(client.run(3, &argv, b"").failed, Some(StartError::TooLong));
    let mut argv = spec(&["true"]);
    argv.argv
        .extend((0..60).map(|_| bytes(&vec![b'x'; 131_071])));
    let done = client.run(4, &argv, b"");
    assert_eq!(
        done.failed,
        Some(StartError::TooLong),
        "{:?} {:?}",
        client.said,
        done.exited
    );
    let mut argv = spec(&["true"]);
    argv.argv.push(bytes(b"a\0b"));
    assert_eq!(
        client.run(5, &argv, b"").failed,
        Some(StartError::Malformed)
    );
    client.end(100);
}

/// The environment is what was sent and what was named of the login's, and nothing else.
#[test]
fn the_environment_is_what_was_asked_for() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let mut asked = spec(&["env", "-0"]);
    asked.inherit.push(bytes(b"NOT_THERE"));
    asked.environment = vec![
        (bytes(b"ODD"), bytes(b"\xff\n$x")),
        (bytes(b"LANG"), bytes(b"mine")),
        (
            bytes(b"PLACE"),
            bytes(b"p={port-9a1} s={socket-9a1} d={session-9a1}"),
        ),
    ];
    asked.inherit.push(bytes(b"LANG"));
    let done = client.run(1, &asked, b"");
    let mut seen: Vec<&[u8]> = done.stdout.split(|byte| *byte == 0).collect();
    seen.sort_unstable();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(seen.len(), 6, "{text}");
    assert!(seen.contains(&&b"ODD=\xff\n$x"[..]));
    assert!(seen.contains(&&b"LANG=mine"[..]));
    let home = format!("HOME={}", host.home.display());
    assert!(seen.contains(&home.as_bytes()));
    let directory = host.directory();
    let place = host.record().unwrap().place;
    let socket = place.agent_socket();
    assert!(text.contains(&format!("s={} d={}", socket.display(), directory.display())));
    let port = text.split("p=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(port.parse::<u16>().unwrap() > 0);
    client.end(100);
}

/// A private file is 0600 in a 0700 directory, has its placeholders replaced, and goes with its
/// launch.
#[test]
fn private_files_are_private_and_go() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let mut asked = shell("stat -c '%a %U' \"$1\" \"$(dirname \"$1\")\"; cat \"$1\"; echo \"$1\"");
    asked.argv.extend([bytes(b"sh"), bytes(b"{file-1}")]);
    asked.files.push(PrivateFile {
        name: "settings.json".into(),
        content: b"{\"url\": \"http://127.0.0.1:{port-9a1}\"}\n".to_vec(),
        placeholder: bytes(b"{file-1}"),
    });
    let done = client.run(1, &asked, b"");
    let text = String::from_utf8(done.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("600 ") && lines[1].starts_with("700 "),
        "{text}"
    );
    assert!(!lines[2].contains("port-9a1"), "{text}");
    let path = std::path::PathBuf::from(lines[3]);
    assert!(path.exists());
    let exec = labproxy::wire::link::ExecId(1);
    client.send(&ToHost::Forget { exec });
    crate::rig::until("the file is gone", || !path.exists());
    for name in ["", "..", "a/b", "a\u{e4}"] {
        asked.files[0].name = name.into();
        let id = 10 + name.len() as u32;
        assert_eq!(
            client.run(id, &asked, b"").failed,
            Some(StartError::Malformed)
        );
    }
    client.end(100);
}

/// A program finds the umask of the login, default signals and a session of its own; nothing of
/// ours is open to it.
#[test]
fn a_program_inherits_nothing_of_ours() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let script = "umask; ls /proc/self/fd | wc -l; cat /proc/self/status | grep -E '^Sig(Ign|Blk)'; \
                  ps -o pid=,sid=,pgid= -p $$";
    let done = client.run(1, &shell(script), b"");
    let text = String::from_utf8(done.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let umask = fs::read_to_string("/proc/self/status").unwrap();
    let umask = umask
        .lines()
        .find_map(|line| line.strip_prefix("Umask:\t"))
        .unwrap();
    assert_eq!(
        lines[0].trim_start_matches('0'),
        umask.trim_start_matches('0')
    );
    // What this test has open without wanting it, a login might have too.
    let here = std::process::Command::new("sh")
        .args(["-c", "ls /proc/self/fd | wc -l"])
        .output()
        .unwrap();
    assert_eq!(lines[1].as_bytes(), here.stdout.trim_ascii(), "{text}");
    for line in &lines[2..4] {
        let mask = line.split_whitespace().nth(1).unwrap();
        // Above 31 are signals that the C library keeps for itself.
        assert_eq!(
            u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff,
            0,
            "{text}"
        );
    }
    let ids: Vec<&str> = lines[4].split_whitespace().collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{text}");
    let mode = fs::metadata(host.directory()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    client.end(100);
}

/// A launch id names one launch for ever: what is sent again does nothing, even when the launch is
/// forgotten.
#[test]
fn t27_a_launch_id_is_used_once() {
    let host = Host::new();
    let mut client = Client::new(&host);
    let first = client.run(1, &shell("echo $$"), b"");
    let again = client.run(1, &shell("echo again"), b"");
    assert_eq!(again.stdout, first.stdout);
    let exec = labproxy::wire::link::ExecId(1);
    client.send(&ToHost::Forget { exec });
    client.execs.clear();
    client.start(1, &shell("echo third > third"));
    let last = client.run(2, &shell("cat third; echo last"), b"");
    assert_eq!(last.stdout, b"last\n");
    assert_eq!(last.end(), ExecEnd::Exited(0));
    client.end(100);
}
