//! Which addresses an upstream may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which of the addresses that a host resolves to may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressPolicy {
    /// Every one: the URL has an IP literal, or the operator allows private ones.
    Any,
    /// Loopback only: the host is `localhost`.
    Loopback,
    /// Only those that anybody on the internet could reach.
    Public,
}

impl AddressPolicy {
    /// The policy for `host` as it stands in the URL.
    pub(crate) fn of(host: &str, allow_private: bool) -> Self {
        if allow_private || literal(host).is_some() {
            Self::Any
        } else if host.eq_ignore_ascii_case("localhost") {
            Self::Loopback
        } else {
            Self::Public
        }
    }

    /// Whether `address` may be used.
    pub(crate) fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Loopback => is_loopback(address),
            Self::Public => is_public(address),
        }
    }
}

/// The IP literal that `host` is, brackets or none.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    bare.parse().ok()
}

/// Whether the address is this machine, IPv4 inside IPv6 included.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = matches!(
        (a, b, c),
        // This network; carrier-grade NAT; protocol assignments; benchmarking; reserved.
        (0 | 240..=255, _, _) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _)
    );
    !(special
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, .., high, low] = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (first, second) {
        // IPv4 inside IPv6: NAT64, and 6to4 with the address in the second and third segments.
        (0x64, 0xff9b) => embedded(high, low),
        (0x2002, _) => embedded(second, address.segments().get(2).copied().unwrap_or(0)),
        // Documentation.
        (0x2001, 0xdb8) => false,
        // Global unicast; all else is unassigned, local, multicast or an IPv4 in disguise.
        _ => (0x2000..=0x3fff).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x10_private_and_disguised_addresses_are_not_public() {
        let policy = AddressPolicy::of("api.example.com", false);
        for text in [
            "127.0.0.1",
            "127.8.8.8",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:db8::1",
            "fec0::1",
        ] {
            assert!(!policy.allows(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "160.79.104.10",
            "2607:6bc0::10",
            "64:ff9b::101:101",
        ] {
            assert!(policy.allows(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn x10_a_literal_or_the_operator_may_name_a_private_address() {
        let private = "10.0.0.1".parse().unwrap();
        assert!(AddressPolicy::of("10.0.0.1", false).allows(private));
        assert!(AddressPolicy::of("[::1]", false).allows("::1".parse().unwrap()));
        assert!(AddressPolicy::of("gateway.lan", true).allows(private));
        assert!(!AddressPolicy::of("gateway.lan", false).allows(private));
        let local = AddressPolicy::of("localhost", false);
        assert!(local.allows("127.0.0.1".parse().unwrap()));
        assert!(!local.allows(private) && !local.allows("1.1.1.1".parse().unwrap()));
    }
}
