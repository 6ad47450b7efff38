//! The failures of a link as a person reads them. Foreign text is escaped here.

use std::fmt;

use super::{LinkFailure, RefusedDirectory, RefusedSetting};
use crate::escape::{escape, escape_line};

impl std::error::Error for LinkFailure {}

impl fmt::Display for LinkFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSsh => out.write_str("'ssh' was not found"),
            Self::Here { what, why } => write!(out, "{}: {}", escape(what), escape(why)),
            Self::PathTooLong { directory, limit } => write!(
                out,
                "the directory of ssh's control socket, {}, is longer than {limit} bytes",
                escape(directory.as_os_str().as_encoded_bytes())
            ),
            Self::ConfigurationUnread { said } => {
                write!(out, "ssh refuses its configuration: {}", escape_line(said))
            }
            Self::ConfigurationRefused { settings } => refused_settings(out, settings),
            Self::Unresolved { .. }
            | Self::Unreachable { .. }
            | Self::Throttled { .. }
            | Self::NoAgreement { .. } => self.on_the_way(out),
            Self::HostKeyUnknown { .. }
            | Self::HostKeyChanged { .. }
            | Self::HostKeyRefused { .. } => self.host_key(out),
            Self::AuthRefused { said, .. } => {
                write!(out, "the host refuses this user: {}", escape_line(said))
            }
            Self::TimedOut { what, after } => write!(
                out,
                "nothing happened for {} s while {what}",
                after.as_secs()
            ),
            Self::LinkLost { said } if said.is_empty() => out.write_str("the connection was lost"),
            Self::LinkLost { said } => {
                write!(out, "the connection was lost: {}", escape_line(said))
            }
            Self::Closed => out.write_str("the connection was closed"),
            Self::ChannelRefused { .. }
            | Self::ForwardRefused { .. }
            | Self::GreetingNotSeen { .. }
            | Self::ShellNoise { .. }
            | Self::OtherVersion { .. }
            | Self::OtherSystem { .. }
            | Self::NoHelper { .. }
            | Self::HelperAltered { .. }
            | Self::NoDirectory { .. }
            | Self::DiskFull { .. }
            | Self::HelperCannotRun { .. } => self.on_the_host(out),
        }
    }
}

fn refused_settings(out: &mut fmt::Formatter<'_>, settings: &[RefusedSetting]) -> fmt::Result {
    out.write_str("the ssh configuration of this host asks for what a link must not do:")?;
    for (at, RefusedSetting { keyword, value }) in settings.iter().enumerate() {
        let separator = if at == 0 { " " } else { ", " };
        write!(out, "{separator}{}", escape(format!("{keyword} {value}")))?;
    }
    Ok(())
}

impl LinkFailure {
    fn host_key(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |fingerprint: &Option<String>| {
            fingerprint
                .as_deref()
                .map_or_else(|| "one that ssh does not show".to_owned(), escape)
        };
        match self {
            Self::HostKeyUnknown { name, offered, .. } => write!(
                out,
                "the host key of {} is not known; it offers {}",
                escape(name),
                shown(offered)
            ),
            Self::HostKeyChanged {
                name,
                offered,
                known,
                place,
                ..
            } => write!(
                out,
                "the host key of {} has changed: it offers {}, and {} is known{}",
                escape(name),
                shown(offered),
                shown(known),
                place
                    .as_deref()
                    .map_or_else(String::new, |place| format!(" ({})", escape(place)))
            ),
            Self::HostKeyRefused { said } => {
                write!(out, "the host key is refused: {}", escape_line(said))
            }
            _ => Ok(()),
        }
    }

    fn on_the_way(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved { said } => {
                write!(out, "the host has no address: {}", escape_line(said))
            }
            Self::Unreachable { said } => {
                write!(out, "the host cannot be reached: {}", escape_line(said))
            }
            Self::Throttled { said } => write!(
                out,
                "the host turns connections away for now: {}",
                escape_line(said)
            ),
            Self::NoAgreement { said } => {
                write!(out, "no common algorithm: {}", escape_line(said))
            }
            _ => Ok(()),
        }
    }

    fn on_the_host(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChannelRefused { said } => write!(
                out,
                "the host takes no more sessions: {}",
                escape_line(said)
            ),
            Self::ForwardRefused { path, said } => write!(
                out,
                "the host forwards nothing at {}: {}",
                escape(path),
                escape_line(said)
            ),
            Self::GreetingNotSeen { printed, status } => {
                out.write_str("the helper's greeting was not seen, ")?;
                match status {
                    Some(status) => write!(out, "the login ended with status {status} and ")?,
                    None => out.write_str("the login ")?,
                }
                if printed.is_empty() {
                    out.write_str("printed nothing")
                } else {
                    write!(out, "printed \"{}\"", escape(printed))
                }
            }
            Self::ShellNoise { printed } => write!(
                out,
                "the login printed more than a banner: \"{}\"",
                escape(printed)
            ),
            Self::OtherVersion { theirs } => {
                write!(out, "the helper on the host speaks version {theirs}")
            }
            Self::OtherSystem { system } => write!(out, "the host runs {}", escape(system)),
            Self::NoHelper { architecture } => {
                write!(out, "there is no helper for {}", escape(architecture))
            }
            Self::HelperAltered { path } => write!(
                out,
                "{} is not the helper of this version",
                escape(path.as_os_str().as_encoded_bytes())
            ),
            Self::NoDirectory { tried } => {
                out.write_str("no directory of the host can hold the helper:")?;
                for (at, RefusedDirectory { path, why }) in tried.iter().enumerate() {
                    let separator = if at == 0 { " " } else { ", " };
                    write!(out, "{separator}{} ({})", escape(path), escape(why))?;
                }
                Ok(())
            }
            Self::DiskFull { directory, said } => write!(
                out,
                "the host's disk is full at {}: {}",
                escape(directory),
                escape_line(said)
            ),
            Self::HelperCannotRun { why } => {
                write!(out, "the helper does not run: {}", escape_line(why))
            }
            _ => Ok(()),
        }
    }
}
