//! Whether a Docker engine answers here.

use std::process::Stdio;

use super::probe::{PROBE_LIMIT, Probed, run};
use crate::wire::service::Docker;

/// `OS/ARCH VERSION`: what only an engine can tell, so that no other answer is taken for one.
const FORMAT: &str = "{{.Server.Os}}/{{.Server.Arch}} {{.Server.Version}}";

/// Asks it.
pub(super) fn ask() -> Docker {
    let arguments = ["version", "--format", FORMAT];
    of(run("docker", &arguments, Stdio::null(), PROBE_LIMIT))
}

fn of(probed: Probed) -> Docker {
    match probed {
        Probed::Absent => Docker::Absent,
        Probed::Failed(why) => Docker::Silent { why },
        Probed::Said(text) => match parse(&text) {
            Some((platform, version)) => Docker::Here {
                version: version.to_owned(),
                platform: platform.to_owned(),
            },
            None => Docker::Silent {
                why: "docker version did not print OS/ARCH VERSION".to_owned(),
            },
        },
    }
}

fn parse(text: &str) -> Option<(&str, &str)> {
    let (platform, version) = text.strip_suffix('\n').unwrap_or(text).split_once(' ')?;
    let (os, architecture) = platform.split_once('/')?;
    let plain = |word: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+~/".contains(&byte);
        !word.is_empty() && word.bytes().all(allowed)
    };
    let all = [os, architecture, version].into_iter().all(plain);
    all.then_some((platform, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status 0 with exactly the expected line is the only yes: an engine that is down prints an
    /// empty line, and a login can print anything.
    #[test]
    fn only_the_expected_line_is_a_yes() {
        let said = |text: &str| of(Probed::Said(text.to_owned()));
        assert_eq!(
            said("linux/amd64 28.2.2\n"),
            Docker::Here {
                version: "28.2.2".to_owned(),
                platform: "linux/amd64".to_owned(),
            }
        );
        for bad in [
            "",
            "\n",
            "linux/amd64\n",
            "/ \n",
            "linux/ 1\n",
            "Welcome!\nlinux/amd64 28\n",
            "linux/amd64 28\nmore\n",
            "<no value>/<no value> <no value>\n",
            "linux/amd64 \x1b[2J\n",
        ] {
            assert!(matches!(said(bad), Docker::Silent { .. }), "{bad:?}");
        }
        assert_eq!(of(Probed::Absent), Docker::Absent);
    }
}
