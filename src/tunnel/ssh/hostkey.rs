//! Host keys in what ssh says: the one that was offered, the one that is known, and the command
//! that a user runs to decide.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::failure::LinkFailure;
use super::said::Line;
use crate::quote::shown;
use crate::tunnel::host::HostSpec;

/// A list of known hosts is not read beyond this.
const KNOWN_HOSTS_MAX: u64 = 64 << 20;

/// The failure that ssh's words about a host key tell; `None` when they are about something else.
pub(super) fn failure(lines: &[Line], host: &HostSpec) -> Option<LinkFailure> {
    let find = |begin: &str, end: &str| {
        lines
            .iter()
            .find_map(|line| Some(line.text.strip_prefix(begin)?.split_once(end)?.0.to_owned()))
    };
    let offered = lines.iter().rev().find_map(|line| {
        line.text
            .strip_prefix("Server host key: ")
            .map(str::to_owned)
    });
    if let Some(name) = find("Host key for ", " has changed and ") {
        let place = lines.iter().find_map(|line| {
            let (kind, place) = line
                .text
                .strip_prefix("Offending ")?
                .split_once(" key in ")?;
            (!kind.contains(' ')).then(|| place.trim().to_owned())
        });
        let file = place.as_deref().and_then(|place| place.rsplit_once(':'));
        let command = match file {
            Some((file, _)) => format!("ssh-keygen -f {} -R {}", shown(file), shown(&name)),
            None => format!("ssh-keygen -R {}", shown(&name)),
        };
        let known = file.and_then(|(file, line)| known(file, line.parse().ok()?));
        return Some(LinkFailure::HostKeyChanged {
            name,
            offered,
            known,
            place,
            command,
        });
    }
    let unknown = lines.iter().find_map(|line| {
        let (_, rest) = line.text.split_once(" host key is known for ")?;
        Some(rest.split_once(" and you have requested ")?.0.to_owned())
    });
    if let Some(name) = unknown {
        return Some(LinkFailure::HostKeyUnknown {
            name,
            offered,
            command: command(host),
        });
    }
    let refused = ["Host key verification failed.", "REVOKED HOST KEY DETECTED"];
    let said: Vec<&str> = lines
        .iter()
        .filter(|line| !line.debug)
        .map(|line| line.text.trim())
        .collect();
    said.iter()
        .any(|text| refused.iter().any(|refused| text.contains(refused)))
        .then(|| LinkFailure::HostKeyRefused {
            said: said.join("; "),
        })
}

/// The ssh command with which a user connects once and is asked.
pub(super) fn command(host: &HostSpec) -> String {
    let mut command = "ssh -o StrictHostKeyChecking=ask".to_owned();
    let mut add = |option: &str, value: &str| {
        command.push_str(option);
        command.push_str(&shown(value));
    };
    if let Some(path) = &host.ssh_config {
        add(" -F ", &path.to_string_lossy());
    }
    if let Some(port) = host.port() {
        add(" -p ", &port.to_string());
    }
    if let Some(user) = host.user() {
        add(" -l ", user);
    }
    if let Some(path) = &host.key_path {
        add(" -i ", &path.to_string_lossy());
    }
    add(" -- ", host.destination.name());
    command.push_str(" true");
    command
}

/// The fingerprint of a key in a list of known hosts, as ssh shows fingerprints.
fn known(file: &str, line: usize) -> Option<String> {
    let file = fs::File::open(file).ok()?;
    let lines = BufReader::new(file.take(KNOWN_HOSTS_MAX)).lines();
    let line = lines.map_while(Result::ok).nth(line.checked_sub(1)?)?;
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    // A mark such as `@cert-authority` may stand before the names.
    let _names = if first.starts_with('@') {
        words.next()?
    } else {
        first
    };
    fingerprint(words.next()?, words.next()?)
}

/// `ssh-ed25519 SHA256:…` of a public key.
fn fingerprint(kind: &str, key: &str) -> Option<String> {
    let digest = Sha256::digest(STANDARD.decode(key).ok()?);
    Some(format!("{kind} SHA256:{}", STANDARD_NO_PAD.encode(digest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAILo/7wzvXdii92yygnPubIbvf0p881Tf5aVUJzNrlq/Q";
    /// What ssh-keygen -l prints for it.
    const PRINT: &str = "ssh-ed25519 SHA256:Wkks481yY2ORBlIKkd7Opuk1nnLbOvbo+qXQq12RdzA";

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line::parse(text)).collect()
    }

    fn host() -> HostSpec {
        HostSpec::new("ssh://u@127.0.0.1:2222".parse().unwrap())
    }

    #[test]
    fn a_known_key_is_shown_as_ssh_shows_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "a ssh-rsa AAAA\n@cert-authority h ssh-ed25519 {KEY} note\nh ssh-ed25519 {KEY}\n"
        );
        fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(known(path, 2).as_deref(), Some(PRINT));
        assert_eq!(known(path, 3).as_deref(), Some(PRINT));
        assert_eq!(known(path, 0), None);
        assert_eq!(known(path, 9), None);
    }

    #[test]
    fn a_changed_key_names_both_and_the_place() {
        let failure = failure(
            &lines(&[
                "debug1: sshconnect.c:f():1 (pid=1): Server host key: ssh-ed25519 SHA256:new",
                "sshconnect.c:f():1 (pid=1): Add correct host key in /k h to get rid of this message.",
                "sshconnect.c:f():1 (pid=1): Offending ED25519 key in /k h:7",
                "sshconnect.c:f():1 (pid=1): Host key for [h]:2222 has changed and you have requested strict checking.",
                "sshconnect2.c:f():1 (pid=1): Host key verification failed.",
            ]),
            &host(),
        );
        assert_eq!(
            failure,
            Some(LinkFailure::HostKeyChanged {
                name: "[h]:2222".into(),
                offered: Some("ssh-ed25519 SHA256:new".into()),
                known: None,
                place: Some("/k h:7".into()),
                command: "ssh-keygen -f '/k h' -R '[h]:2222'".into(),
            })
        );
    }

    #[test]
    fn an_unknown_key_names_it_and_the_command() {
        let failure = failure(
            &lines(&[
                "debug1: sshconnect.c:f():1 (pid=1): Server host key: ssh-ed25519 SHA256:new",
                "sshconnect.c:f():1 (pid=1): No ED25519 host key is known for [h]:2222 and you have requested strict checking.",
            ]),
            &host(),
        );
        let Some(LinkFailure::HostKeyUnknown {
            name,
            offered,
            command,
        }) = failure
        else {
            panic!("{failure:?}");
        };
        assert_eq!(name, "[h]:2222");
        assert_eq!(offered.as_deref(), Some("ssh-ed25519 SHA256:new"));
        assert_eq!(
            command,
            "ssh -o StrictHostKeyChecking=ask -p 2222 -l u -- 127.0.0.1 true"
        );
    }
}
