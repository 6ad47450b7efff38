//! What a user may write for a remote machine: where ssh connects to, and where sessions are there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest destination: a name has at most 253 characters, a user and a port are short.
const DESTINATION_MAX: usize = 512;

/// Why a text is no destination. The texts say what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// Nothing, or nothing before or after a separator.
    #[error("a host is missing: write an alias, user@host or ssh://user@host:port")]
    Empty,
    /// ssh would take it for an option.
    #[error("a host cannot begin with '-'")]
    Option,
    /// White space, control characters, and what a shell would act on: ssh hands the name to
    /// `ProxyCommand` and `Match exec`.
    #[error("a host cannot hold {0:?}")]
    Character(char),
    /// A port without `ssh://`, which ssh would take for a part of the name.
    #[error("a port goes into a URL: write ssh://{0}")]
    Port(String),
    /// Not a number from 1 to 65535.
    #[error("'{0}' is no port")]
    NotAPort(String),
    /// A password, which nobody should have on a command line.
    #[error("a password cannot be given: ssh uses keys")]
    Password,
    /// Something after the port.
    #[error("nothing can follow the host in a ssh URL, and '{0}' does")]
    Path(String),
    /// Another kind of URL.
    #[error("'{0}://' is not for ssh: write ssh://user@host:port")]
    Scheme(String),
    /// Longer than any name.
    #[error("longer than {DESTINATION_MAX} characters")]
    TooLong,
}

/// Where ssh connects to: what it resolves by itself (an alias of its configuration, a name or an
/// address), and the user and port that were written with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Destination {
    name: String,
    user: Option<String>,
    port: Option<u16>,
}

impl Destination {
    /// What ssh resolves; without brackets when it is an IPv6 address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user that was written with it.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The port that was written with it.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

/// As a URL, which is read back as the same.
impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        let Destination { name, user, port } = destination;
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        if name.contains(':') {
            format!("ssh://{user}[{name}]{port}")
        } else {
            format!("ssh://{user}{name}{port}")
        }
    }
}

impl TryFrom<String> for Destination {
    type Error = DestinationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl FromStr for Destination {
    type Err = DestinationError;

    /// Takes an alias, `user@host`, `ssh://user@host:port`, and IPv6 addresses, in brackets where
    /// a port follows.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > DESTINATION_MAX {
            return Err(DestinationError::TooLong);
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            if !scheme.eq_ignore_ascii_case("ssh") {
                safe(scheme)?;
                return Err(DestinationError::Scheme(scheme.to_owned()));
            }
            return of_url(rest);
        }
        let (user, host) = user_and_host(text)?;
        let name = match host.strip_prefix('[') {
            Some(inner) => match inner.split_once(']') {
                Some((address, "")) => address,
                Some(_) | None => return Err(port_outside_url(text)),
            },
            // More than one colon is an address, one is a port in the wrong place.
            None if host.matches(':').count() == 1 => return Err(port_outside_url(text)),
            None => host,
        };
        Ok(Self {
            name: named(name)?,
            user,
            port: None,
        })
    }
}

/// Reads what follows `ssh://`.
fn of_url(rest: &str) -> Result<Destination, DestinationError> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(at) = rest.find(['/', '?', '#']) {
        let (_, tail) = rest.split_at(at);
        return Err(DestinationError::Path(tail.to_owned()));
    }
    let (user, host) = user_and_host(rest)?;
    let (name, port) = match host.strip_prefix('[') {
        Some(inner) => {
            let (address, after) = inner.split_once(']').ok_or(DestinationError::Empty)?;
            match after.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if after.is_empty() => (address, None),
                None => return Err(DestinationError::Path(after.to_owned())),
            }
        }
        None if host.matches(':').count() > 1 => (host, None),
        None => host
            .split_once(':')
            .map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let port = port
        .map(|text| match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(port),
            Ok(_) | Err(_) => Err(DestinationError::NotAPort(text.to_owned())),
        })
        .transpose()?;
    Ok(Destination {
        name: named(name)?,
        user,
        port,
    })
}

/// Splits at the last `@`, and refuses what is no user.
fn user_and_host(text: &str) -> Result<(Option<String>, &str), DestinationError> {
    let Some((user, host)) = text.rsplit_once('@') else {
        return Ok((None, text));
    };
    if user.contains(':') {
        return Err(DestinationError::Password);
    }
    Ok((Some(named(user)?), host))
}

/// A name that is safe as an argument of ssh and of whatever ssh hands it to.
fn named(name: &str) -> Result<String, DestinationError> {
    if name.is_empty() {
        return Err(DestinationError::Empty);
    }
    if name.starts_with('-') {
        return Err(DestinationError::Option);
    }
    safe(name)?;
    Ok(name.to_owned())
}

fn safe(text: &str) -> Result<(), DestinationError> {
    // Letters and digits of every language may be in an alias; of the rest only what no shell acts
    // on. `%` begins an IPv6 zone; ssh expands it in its own texts only.
    let allowed = |character: char| character.is_alphanumeric() || ".-_:%+=,@/".contains(character);
    match text.chars().find(|character| !allowed(*character)) {
        Some(character) => Err(DestinationError::Character(character)),
        None => Ok(()),
    }
}

fn port_outside_url(text: &str) -> DestinationError {
    match safe(&text.replace(['[', ']'], "")) {
        Ok(()) => DestinationError::Port(text.to_owned()),
        Err(error) => error,
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(out, "{user}@")?;
        }
        match self.port {
            Some(port) if self.name.contains(':') => write!(out, "[{}]:{port}", self.name),
            Some(port) => write!(out, "{}:{port}", self.name),
            None => out.write_str(&self.name),
        }
    }
}

/// Why a text is no directory for sessions on a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a workdir is an absolute path below / or begins with ~/, without '..' and control characters"
)]
pub struct WorkdirError;

/// The directory on a host that holds `sessions/` and `bin/`: absolute, or below the user's home.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Workdir(String);

impl From<Workdir> for String {
    fn from(workdir: Workdir) -> Self {
        workdir.0
    }
}

impl TryFrom<String> for Workdir {
    type Error = WorkdirError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl Workdir {
    /// As it was written: with `~` in front when it is below the home.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Workdir {
    fn default() -> Self {
        Self("~/.labproxy".to_owned())
    }
}

impl FromStr for Workdir {
    type Err = WorkdirError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let anchored = text.starts_with('/') || text == "~" || text.starts_with("~/");
        let climbs = text.split('/').any(|part| part == "..");
        if !anchored || climbs || text == "/" || text.chars().any(char::is_control) {
            return Err(WorkdirError);
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, Option<String>, Option<u16>) {
        let parsed: Destination = text.parse().unwrap();
        (parsed.name, parsed.user, parsed.port)
    }

    #[test]
    fn every_form_of_a_destination_is_taken() {
        let user = |name: &str| Some(name.to_owned());
        assert_eq!(parts("gpu1"), ("gpu1".into(), None, None));
        assert_eq!(parts("u@gpu.lab"), ("gpu.lab".into(), user("u"), None));
        assert_eq!(parts("ssh://h"), ("h".into(), None, None));
        assert_eq!(parts("SSH://h/"), ("h".into(), None, None));
        assert_eq!(parts("ssh://u@h:22"), ("h".into(), user("u"), Some(22)));
        assert_eq!(parts("::1"), ("::1".into(), None, None));
        assert_eq!(parts("u@[::1]"), ("::1".into(), user("u"), None));
        assert_eq!(parts("ssh://[fe80::1%eth0]:2222").2, Some(2222));
        assert_eq!(parts("ssh://::1").0, "::1");
        assert_eq!(parts("d.name@corp@h").1, user("d.name@corp"));
    }

    /// A destination that was written down is the same when it is read.
    #[test]
    fn a_destination_is_read_back_as_it_was_written() {
        for text in [
            "gpu1",
            "u@h",
            "ssh://u@h:22",
            "::1",
            "ssh://d.name@corp@[::1]:2222",
        ] {
            let destination: Destination = text.parse().unwrap();
            let json = serde_json::to_string(&destination).unwrap();
            assert_eq!(
                serde_json::from_str::<Destination>(&json).unwrap(),
                destination
            );
        }
        assert!(serde_json::from_str::<Destination>("\"-oX\"").is_err());
    }

    #[test]
    fn what_ssh_or_a_shell_would_misread_is_refused() {
        use DestinationError as E;
        let refused = |text: &str| text.parse::<Destination>().unwrap_err();
        assert_eq!(refused(""), E::Empty);
        assert_eq!(refused("@h"), E::Empty);
        assert_eq!(refused("u@"), E::Empty);
        assert_eq!(refused("ssh://"), E::Empty);
        assert_eq!(refused("ssh://[::1"), E::Empty);
        assert_eq!(refused("-oProxyCommand=x"), E::Option);
        assert_eq!(refused("u@-h"), E::Option);
        assert_eq!(refused("-u@h"), E::Option);
        assert_eq!(refused("ssh://-oX"), E::Option);
        assert_eq!(refused("a b"), E::Character(' '));
        assert_eq!(refused("a\n"), E::Character('\n'));
        assert_eq!(refused("a\u{0}"), E::Character('\0'));
        assert_eq!(refused("a\u{202e}b"), E::Character('\u{202e}'));
        for shell in "'\"`$\\;&|<>(){}*?[!#~".chars() {
            assert_eq!(refused(&format!("h{shell}x")), E::Character(shell));
            assert_eq!(refused(&format!("u{shell}x@h")), E::Character(shell));
        }
        assert_eq!(refused("h:22"), E::Port("h:22".into()));
        assert_eq!(refused("[::1]:22"), E::Port("[::1]:22".into()));
        assert_eq!(refused("ssh://h:0"), E::NotAPort("0".into()));
        assert_eq!(refused("ssh://h:65536"), E::NotAPort("65536".into()));
        assert_eq!(refused("ssh://h:"), E::NotAPort(String::new()));
        assert_eq!(refused("ssh://u:p@h"), E::Password);
        assert_eq!(refused("ssh://h/x"), E::Path("/x".into()));
        assert_eq!(refused("ssh://h?q"), E::Path("?q".into()));
        assert_eq!(refused("tcp://h"), E::Scheme("tcp".into()));
        assert_eq!(refused(&"a".repeat(513)), E::TooLong);
    }

    #[test]
    fn a_workdir_is_absolute_or_at_home() {
        for good in ["/data/lp", "~", "~/.labproxy", "/with space/and'quote"] {
            assert_eq!(good.parse::<Workdir>().unwrap().as_str(), good);
        }
        for bad in ["", "lp", "~other/x", "/a\nb", "./x", "/", "~/..", "/a/../b"] {
            assert!(bad.parse::<Workdir>().is_err(), "{bad}");
        }
    }
}
