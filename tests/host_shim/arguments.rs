//! Arguments of an agent on a host, through every login shell: bytes, or a refusal that says why.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use crate::rig::World;
use crate::sshd::{SHELLS, Setup};

/// The longest argument that Linux takes: 32 pages with the zero at its end.
const LONGEST: usize = 131_071;
/// All of them together, each with a zero at its end.
const IN_ALL: usize = 1 << 20;

/// What shells, quoting and text encodings like to change, and a mebibyte in all.
fn odd() -> Vec<Vec<u8>> {
    let mut odd: Vec<Vec<u8>> = [
        &b""[..],
        b"new\nline\n",
        b"\n",
        b"'\"`",
        b"'\\''",
        b"$HOME ${HOME} $(id) `id` $",
        b"\\ \\\\ \\n \\0 \\",
        "\u{e4}\u{1f980}\u{202e}".as_bytes(),
        b"\xff\xfe\x80 \xc3",
        b"!! !$ ^a^b % %1 #x ~ ~root * ? [a-z] {a,b} ; & | < > ( )",
        b"-n",
        b"--",
        b"\x1b[31m\r\t\x01\x7f",
        b"",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    odd.push(vec![b'x'; LONGEST]);
    let mut left = IN_ALL - odd.iter().map(|text| text.len() + 1).sum::<usize>();
    while left > 0 {
        let part = left.min(LONGEST + 1);
        odd.push(vec![b'y'; part - 1]);
        left -= part;
    }
    odd
}

/// Behind each login shell, an agent gets its arguments byte for byte, a mebibyte of them.
#[test]
fn tu03_arguments_are_bytes_behind_every_login_shell() {
    let world = World::new();
    let odd = odd();
    let mut expected = odd.join(&0);
    expected.push(0);
    assert_eq!(expected.len(), IN_ALL);
    for (user, shell) in SHELLS {
        world.configure_user(user, "");
        let mut agent: Vec<OsString> = ["printf", "%s\\0"].map(OsString::from).to_vec();
        agent.extend(odd.iter().cloned().map(OsString::from_vec));
        let output = world.bare(&agent).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{shell}: {stderr}");
        assert!(
            stderr.contains(&format!("runs as t{user} (uid ")),
            "{stderr}"
        );
        let differs = (0..IN_ALL).find(|at| output.stdout.get(*at) != expected.get(*at));
        assert_eq!(differs, None, "{shell}: {} bytes", output.stdout.len());
        assert_eq!(output.stdout.len(), IN_ALL, "{shell}");
    }
    world.host.assert_quiet();
}

/// What the kernel of the host refuses is refused with its reason, and is no end of a link.
#[test]
fn tu03_what_the_hosts_kernel_refuses_is_said() {
    // Linux takes a quarter of the stack's limit in arguments; here there is no such small limit.
    let world = World::with(Setup {
        prepare: "ulimit -s 1024".to_owned(),
        ..Setup::default()
    });
    let long = OsString::from("x".repeat(LONGEST));
    let few = ["true".into(), long.clone()];
    let output = world.bare(&few).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let many = ["true".into(), long.clone(), long.clone(), long];
    let output = world.bare(&many).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(126), "{stderr}");
    let told = stderr.lines().find(|line| line.starts_with("error: "));
    let told = told.unwrap_or_else(|| panic!("{stderr}"));
    assert!(
        told.contains("the kernel of rig takes no such long argument"),
        "{told}"
    );
    assert_eq!(world.standin.requests().len(), 0);
    world.host.assert_quiet();
}
