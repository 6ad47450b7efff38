//! The configuration that ssh gets: our settings, the user's, and what must stand last.
//!
//! ssh takes the first value it finds for a keyword, so ours come first; lists such as `SendEnv`
//! add up, and are emptied last.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use super::check::Shown;
use super::failure::LinkFailure;
use crate::tunnel::host::HostSpec;

/// A setting of ours.
pub(super) struct Setting {
    /// As it is written.
    pub(super) keyword: &'static str,
    /// As it is written.
    pub(super) value: &'static str,
    /// As `ssh -G` shows it; `None` when it then shows nothing.
    pub(super) shown: Option<&'static str>,
}

const fn setting(
    keyword: &'static str,
    value: &'static str,
    shown: Option<&'static str>,
) -> Setting {
    Setting {
        keyword,
        value,
        shown,
    }
}

/// What holds for every link. A keyword that this ssh does not know is left out: what it would
/// switch off is not there either.
pub(super) const OURS: [Setting; 33] = [
    // Nobody answers questions.
    setting("BatchMode", "yes", Some("yes")),
    setting("StrictHostKeyChecking", "yes", Some("true")),
    setting("NoHostAuthenticationForLocalhost", "no", Some("no")),
    setting("UpdateHostKeys", "no", Some("false")),
    // Nothing of this machine is lent to the host.
    setting("ForwardAgent", "no", Some("no")),
    setting("AddKeysToAgent", "no", Some("false")),
    setting("ForwardX11", "no", Some("no")),
    setting("ForwardX11Trusted", "no", Some("no")),
    setting("GSSAPIDelegateCredentials", "no", Some("no")),
    setting("Tunnel", "no", Some("false")),
    setting("GatewayPorts", "no", Some("no")),
    // Forwards are made through the control socket only.
    setting("ClearAllForwardings", "yes", Some("yes")),
    setting("ExitOnForwardFailure", "yes", Some("yes")),
    setting("StreamLocalBindUnlink", "no", Some("no")),
    setting("StreamLocalBindMask", "0177", Some("0177")),
    // What runs, here and there, is ours.
    setting("PermitLocalCommand", "no", Some("no")),
    setting("LocalCommand", "none", None),
    setting("RemoteCommand", "none", None),
    setting("RequestTTY", "no", Some("false")),
    setting("EscapeChar", "none", Some("none")),
    setting("EnableEscapeCommandline", "no", Some("no")),
    setting("SessionType", "default", Some("default")),
    setting("StdinNull", "no", Some("no")),
    setting("ForkAfterAuthentication", "no", Some("no")),
    // It must have a value, else a later line of the user's would count; and it keeps start-up
    // files quiet.
    setting("SetEnv", "TERM=dumb", Some("TERM=dumb")),
    // Jump hosts read this file too and must not keep a connection of their own; ours is made a
    // master by arguments, which come before every file.
    setting("ControlMaster", "no", Some("true")),
    setting("ControlPersist", "no", Some("no")),
    // One address may take ten seconds; a dead link is seen after fifteen.
    setting("ConnectTimeout", "10", Some("10")),
    setting("ConnectionAttempts", "1", Some("1")),
    setting("ServerAliveInterval", "5", Some("5")),
    setting("ServerAliveCountMax", "3", Some("3")),
    setting("LogLevel", "INFO", Some("INFO")),
    // How far it came and which keys were seen, without a word for every channel later on.
    setting(
        "LogVerbose",
        "sshconnect.c:*,sshconnect2.c:*",
        Some("sshconnect.c:*,sshconnect2.c:*"),
    ),
];

/// What stands last. The cipher is the fastest where processors help with AES, twice the default;
/// a list of the user's own comes first.
const LAST: &str = "SendEnv -*\nCiphers ^aes128-gcm@openssh.com\n";

/// Characters that `Include` would act on: quotes, and patterns of file names.
const NOT_IN_INCLUDE: [char; 9] = ['"', '\\', '*', '?', '[', '{', '~', '$', '%'];

/// Writes the configuration for a host; `known` is what this ssh shows without any configuration, nothing
/// when that is not known yet: then with every keyword.
///
/// # Errors
/// When the path of the user's configuration cannot be written in one.
pub(super) fn text(host: &HostSpec, known: Option<&Shown>) -> Result<String, LinkFailure> {
    let mut text = String::new();
    for Setting { keyword, value, .. } in OURS {
        if known.is_none_or(|known| knows(known, keyword)) {
            let _written = writeln!(text, "{keyword} {value}");
        }
    }
    match &host.ssh_config {
        Some(path) => {
            let _written = writeln!(text, "Include \"{}\"", included(path)?);
        }
        // As without `-F`: the user's own file, which may be absent, then the system's.
        None => text.push_str("Include ~/.ssh/config\nInclude /etc/ssh/ssh_config\n"),
    }
    text.push_str(LAST);
    Ok(text)
}

/// Whether this ssh knows a keyword of ours.
fn knows(shown: &Shown, keyword: &str) -> bool {
    // What has no default is not shown, and every ssh since 7.8 knows it.
    ["LocalCommand", "RemoteCommand", "SetEnv"].contains(&keyword) || shown.has(keyword)
}

/// Whether this ssh knows every keyword of ours.
pub(super) fn knows_all(shown: &Shown) -> bool {
    OURS.iter().all(|ours| knows(shown, ours.keyword))
}

/// The path as `Include` takes it.
fn included(path: &Path) -> Result<&str, LinkFailure> {
    let refuse = |why: &str| LinkFailure::Here {
        what: format!("'{}' cannot be the ssh_config of the host", path.display()),
        why: why.to_owned(),
    };
    let text = path.to_str().ok_or_else(|| refuse("its name is no text"))?;
    if !path.is_absolute() {
        return Err(refuse("it is not absolute"));
    }
    if text.contains(NOT_IN_INCLUDE) || text.chars().any(char::is_control) {
        return Err(refuse("ssh would read its name as a pattern"));
    }
    // ssh ignores a file that is not there.
    std::fs::metadata(path).map_err(|error| refuse(&error.to_string()))?;
    Ok(text)
}

/// The arguments that are the same for a look at the configuration and for the connection: what
/// jump hosts must not get, which read the file.
pub(super) fn arguments(host: &HostSpec, file: &Path, control: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["-F".into(), file.into()];
    arguments.extend(["-M".into(), "-S".into(), control.into(), "-T".into()]);
    if host.accept_new {
        arguments.extend(["-o".into(), "StrictHostKeyChecking=accept-new".into()]);
    }
    if let Some(user) = host.user() {
        arguments.extend(["-l".into(), user.into()]);
    }
    if let Some(port) = host.port() {
        arguments.extend(["-p".into(), port.to_string().into()]);
    }
    if let Some(key) = &host.key_path {
        arguments.extend(["-o".into(), "IdentitiesOnly=yes".into()]);
        arguments.extend(["-i".into(), key.into()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn host() -> HostSpec {
        HostSpec::new("gpu1".parse().unwrap())
    }

    /// ssh takes the first value: ours stand before the user's, and its lists are emptied last.
    #[test]
    fn ours_come_first_and_lists_are_emptied_last() {
        let known = Shown::parse("batchmode no\nforwardagent no\ntunnel false\n");
        let text = text(&host(), Some(&known)).unwrap();
        let at = |wanted: &str| text.find(wanted).unwrap_or_else(|| panic!("{wanted}"));
        let user = at("Include ~/.ssh/config\n");
        assert!(at("BatchMode yes\n") < user);
        assert!(at("ForwardAgent no\n") < user);
        assert!(at("RemoteCommand none\n") < user);
        assert!(user < at("Include /etc/ssh/ssh_config\n"));
        assert!(at("Include /etc/ssh/ssh_config\n") < at("SendEnv -*\n"));
        // An older ssh does not know it.
        assert!(!text.contains("EnableEscapeCommandline"));
        assert!(!knows_all(&known));
        let every = super::text(&host(), None).unwrap();
        let lines = OURS.map(|ours| format!("{} {}\n", ours.keyword, ours.value));
        let shown = lines.concat();
        assert!(every.starts_with(&shown) && knows_all(&Shown::parse(&shown)));
    }

    #[test]
    fn another_configuration_replaces_both() {
        let directory = tempfile::tempdir().unwrap();
        let mut host = host();
        let path = directory.path().join("with space");
        std::fs::write(&path, "").unwrap();
        host.ssh_config = Some(path.clone());
        let written = text(&host, Some(&Shown::parse(""))).unwrap();
        assert!(written.contains(&format!("Include \"{}\"\n", path.display())));
        assert!(!written.contains("/etc/ssh"));
        for bad in ["relative", "/a*", "/a\"b", "/a\nb", "/no/such/file"] {
            host.ssh_config = Some(PathBuf::from(bad));
            assert!(text(&host, Some(&Shown::parse(""))).is_err(), "{bad}");
        }
    }

    /// A jump host reads the file and gets no argument: what is for the host alone is an argument.
    #[test]
    fn what_is_for_the_host_alone_is_an_argument() {
        let mut host = HostSpec::new("ssh://u@gpu1:2222".parse().unwrap());
        host.accept_new = true;
        host.key_path = Some("/k".into());
        let arguments = arguments(&host, Path::new("/c"), Path::new("/s"));
        let wanted = [
            "-F",
            "/c",
            "-M",
            "-S",
            "/s",
            "-T",
            "-o",
            "StrictHostKeyChecking=accept-new",
            "-l",
            "u",
            "-p",
            "2222",
            "-o",
            "IdentitiesOnly=yes",
            "-i",
            "/k",
        ];
        assert_eq!(arguments, wanted.map(OsString::from));
        let text = text(&host, Some(&Shown::parse(""))).unwrap();
        for word in ["2222", "/k", "accept-new"] {
            assert!(!text.contains(word), "{word}");
        }
    }
}
