//! Why ssh ended: decided by how far it came, then by its exit status, and only last by its words.

use super::failure::{LinkFailure, Phase};
use super::said::Said;
use super::{hostkey, identity};
use crate::tunnel::host::HostSpec;

/// ssh's own status for every failure of its own.
const SSH_FAILED: i32 = 255;
/// The trampoline's statuses when ssh could not be run.
const NOT_STARTED: [i32; 3] = [125, 126, 127];

/// What ssh says of a configuration that it cannot read.
const CONFIGURATION: [&str; 6] = [
    "Bad configuration option",
    "bad configuration options",
    "Bad owner or permissions",
    "missing argument",
    "unsupported option",
    "keyword ",
];
/// What ssh says when the way there works and the server ends it before it says who it is.
const TURNED_AWAY: [&str; 5] = [
    "Exceeded MaxStartups",
    "Not allowed at this time",
    "kex_exchange_identification",
    "Connection closed by",
    "Connection reset by",
];

/// Why a connection that never came up ended with `status` (`None`: a signal).
pub(super) fn before_up(said: &Said, status: Option<i32>, host: &HostSpec) -> LinkFailure {
    if said.phase() >= Phase::Authenticated {
        return after_authentication(said, status);
    }
    let words = said.complaint();
    match status {
        Some(status) if NOT_STARTED.contains(&status) => {
            return LinkFailure::Here {
                what: "ssh cannot be run".to_owned(),
                why: words,
            };
        }
        Some(SSH_FAILED) => {}
        Some(_) | None => return LinkFailure::LinkLost { said: words },
    }
    if let Some(failure) = hostkey::failure(said.before(), host) {
        return failure;
    }
    let says = |parts: &[&str]| {
        said.before()
            .iter()
            .filter(|line| !line.debug)
            .any(|line| parts.iter().any(|part| line.text.contains(part)))
    };
    let too_many = says(&["Too many authentication failures"]);
    if too_many || says(&["Permission denied ("]) {
        return LinkFailure::AuthRefused {
            said: words,
            encrypted: identity::encrypted(said.before()),
            too_many,
        };
    }
    if says(&["Could not resolve hostname"]) {
        return LinkFailure::Unresolved { said: words };
    }
    if says(&["Unable to negotiate", "no matching ", "no hostkey alg"]) {
        return LinkFailure::NoAgreement { said: words };
    }
    if said.phase() == Phase::Resolving && says(&CONFIGURATION) {
        return LinkFailure::ConfigurationUnread { said: words };
    }
    let through_proxy = said
        .before()
        .iter()
        .any(|line| line.debug && line.text.starts_with("Executing proxy command: "));
    if said.phase() == Phase::Connected
        && !says(&["banner line contains invalid", "Connection timed out"])
        && says(&TURNED_AWAY)
        && !through_proxy
    {
        return LinkFailure::Throttled { said: words };
    }
    LinkFailure::Unreachable { said: words }
}

/// Why a connection whose user was taken ended.
pub(super) fn after_authentication(said: &Said, status: Option<i32>) -> LinkFailure {
    let words = said.last_words();
    match status {
        // The remote command's own status: the login ended it, since it does not end by itself.
        Some(status) if status != SSH_FAILED => LinkFailure::GreetingNotSeen {
            printed: words,
            status: Some(status),
        },
        Some(_) | None => LinkFailure::LinkLost { said: words },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: i32, lines: &[&str]) -> LinkFailure {
        let mut said = Said::of(1);
        for line in lines {
            said.line(line.as_bytes());
        }
        let host = HostSpec::new("h".parse().unwrap());
        before_up(&said, Some(status), &host)
    }

    const CONNECTED: &str = "debug1: sshconnect.c:f():1 (pid=1): Connection established.";
    const KNOWN: &str =
        "debug1: sshconnect.c:f():1 (pid=1): Host 'h' is known and matches the ED25519 host key.";

    /// TB-35: a server that has enough for now is not one that refuses the user.
    #[test]
    fn tb35_throttled_is_not_refused() {
        for words in [
            "kex_exchange_identification: Connection closed by remote host",
            "kex_exchange_identification: read: Connection reset by peer",
            "Connection closed by 127.0.0.1 port 22",
            "kex_exchange_identification: banner line 0: Exceeded MaxStartups",
            "kex_exchange_identification: banner line 0: Not allowed at this time",
        ] {
            let failure = failure(255, &[CONNECTED, words]);
            assert!(matches!(failure, LinkFailure::Throttled { .. }), "{words}");
            assert!(failure.retry_after().is_some());
        }
        let refused = failure(
            255,
            &[CONNECTED, KNOWN, "u@h: Permission denied (publickey)."],
        );
        assert!(matches!(refused, LinkFailure::AuthRefused { .. }));
        assert_eq!(refused.retry_after(), None);
    }

    #[test]
    fn each_end_has_its_class() {
        use LinkFailure as F;
        let refused = "ssh: connect to host h port 22: Connection refused";
        assert!(matches!(failure(255, &[refused]), F::Unreachable { .. }));
        let unknown = "ssh: Could not resolve hostname h: Name or service not known";
        assert!(matches!(failure(255, &[unknown]), F::Unresolved { .. }));
        let bad = "/x: line 1: Bad configuration option: foo";
        assert!(matches!(
            failure(255, &[bad]),
            F::ConfigurationUnread { .. }
        ));
        let many = "Received disconnect from ::1 port 22:2: Too many authentication failures";
        let failed = failure(255, &[CONNECTED, KNOWN, many]);
        assert!(matches!(failed, F::AuthRefused { too_many: true, .. }));
        let none = "Unable to negotiate with ::1 port 22: no matching cipher found.";
        assert!(matches!(
            failure(255, &[CONNECTED, none]),
            F::NoAgreement { .. }
        ));
        let absent = "labproxy: cannot run 'ssh': No such file";
        assert!(matches!(failure(127, &[absent]), F::Here { .. }));
        let taken = "sshconnect2.c:f():1 (pid=1): Authenticated to h ([::1]:22) using \"x\".";
        let ended = failure(1, &[taken, "This account is currently not available."]);
        let F::GreetingNotSeen { printed, status } = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(status, Some(1));
        assert!(printed.contains("not available"));
        assert!(matches!(failure(255, &[taken]), F::LinkLost { .. }));
    }
}
