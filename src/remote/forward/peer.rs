//! Who connected: the owner of the other end's socket, which on the loopback the kernel tells.
//!
//! A socket without an inode is one that its process has closed. The kernel shows such a one as
//! owned by root, so it is nobody's here.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::{fmt, fs};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// A message's head, and the rest of a question and of an answer: `struct nlmsghdr`,
/// `struct inet_diag_req_v2` and the beginning of `struct inet_diag_msg` in the kernel's
/// `linux/netlink.h` and `linux/inet_diag.h`.
const HEAD: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;
/// `SOCK_DIAG_BY_FAMILY`: the kind of question and answer.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `AF_INET`, `IPPROTO_TCP`.
const INET_TCP: [u8; 2] = [2, 6];
/// `TCP_LISTEN`: a look-up falls back to a listening socket, which is nobody's other end.
const LISTENING: u8 = 10;
/// Where tables of all sockets are, with IPv4 and IPv6 addresses.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// The kernel's table of connections.
pub(super) struct Peers {
    /// For one question at a time. `None` where it is forbidden or unknown; then the whole tables
    /// are read, which takes milliseconds on a large machine.
    questions: Option<OwnedFd>,
    us: u32,
}

impl fmt::Debug for Peers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Peers of {}", self.us)
    }
}

impl Peers {
    /// Ready to ask.
    pub(super) fn new() -> Self {
        Self {
            questions: socket_with(
                AddressFamily::NETLINK,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                Some(netlink::SOCK_DIAG),
            )
            .ok(),
            us: rustix::process::geteuid().as_raw(),
        }
    }

    /// Whether the socket at `theirs`, connected to `ours`, belongs to our user or to root. Unknown
    /// is no.
    pub(super) fn is_friend(&self, ours: SocketAddrV4, theirs: SocketAddrV4) -> bool {
        // An error can mean no such socket, or no such question in this kernel.
        let owner = self
            .questions
            .as_ref()
            .and_then(|questions| ask(questions, ours, theirs).ok())
            .or_else(|| look_up(ours, theirs));
        self.is_us_or_root(owner)
    }

    /// Whether what listens on this port of 127.0.0.1, and of no other address, belongs to our user
    /// or to root. Unknown is no.
    pub(super) fn is_friend_listening(&self, port: u16) -> bool {
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let listener = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        self.is_us_or_root(look_up(nobody, listener))
    }

    fn is_us_or_root(&self, owner: Option<u32>) -> bool {
        owner.is_some_and(|owner| owner == 0 || owner == self.us)
    }
}

/// Asks for one socket's owner.
fn ask(questions: &OwnedFd, ours: SocketAddrV4, theirs: SocketAddrV4) -> io::Result<u32> {
    send(questions, &question(ours, theirs), SendFlags::empty())?;
    // The kernel answers while it is asked: what is not there now never comes.
    let mut buffer = [0; 1024];
    let (_, length) = recv(questions, &mut buffer[..], RecvFlags::DONTWAIT)?;
    let answer = buffer.get(..length).unwrap_or_default();
    owner(answer, ours, theirs).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn question(ours: SocketAddrV4, theirs: SocketAddrV4) -> Vec<u8> {
    let mut question = Vec::with_capacity(HEAD + QUESTION);
    let length = u32::try_from(HEAD + QUESTION).unwrap_or(0);
    question.extend(length.to_ne_bytes());
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    // Sequence number and sender: there is one question at a time, and one asker.
    question.extend([0; 8]);
    question.extend(INET_TCP);
    // No extensions, padding; every state.
    question.extend([0; 2]);
    question.extend(u32::MAX.to_ne_bytes());
    // The socket wanted is the other one: its own address first.
    question.extend(theirs.port().to_be_bytes());
    question.extend(ours.port().to_be_bytes());
    for address in [theirs.ip(), ours.ip()] {
        question.extend(address.octets());
        question.extend([0; 12]);
    }
    // Any interface; no cookie.
    question.extend([0; 4]);
    question.extend([u8::MAX; 8]);
    question
}

/// The owner that an answer tells, when it is about that very socket and a process has it.
fn owner(answer: &[u8], ours: SocketAddrV4, theirs: SocketAddrV4) -> Option<u32> {
    let kind = answer.get(4..6)?;
    let message = answer.get(HEAD..HEAD + ANSWER)?;
    let [_, state, _, _, from_high, from_low, to_high, to_low] = message.first_chunk::<8>()?;
    let from = u16::from_be_bytes([*from_high, *from_low]);
    let to = u16::from_be_bytes([*to_high, *to_low]);
    let [.., u1, u2, u3, u4, i1, i2, i3, i4] = message.first_chunk::<ANSWER>()?;
    let owner = u32::from_ne_bytes([*u1, *u2, *u3, *u4]);
    let inode = u32::from_ne_bytes([*i1, *i2, *i3, *i4]);
    let is_it = kind == BY_FAMILY.to_ne_bytes()
        && *state != LISTENING
        && (from, to) == (theirs.port(), ours.port())
        && inode != 0;
    is_it.then_some(owner)
}

/// Reads the whole tables.
fn look_up(ours: SocketAddrV4, theirs: SocketAddrV4) -> Option<u32> {
    TABLES.iter().find_map(|path| {
        let table = fs::read_to_string(path).ok()?;
        find(&table, ours, theirs)
    })
}

/// The owner of the socket in a table that has these addresses and a process.
fn find(table: &str, ours: SocketAddrV4, theirs: SocketAddrV4) -> Option<u32> {
    let [theirs, ours] = [theirs, ours].map(as_written);
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (fields.next()?, fields.next()?);
        let mut rest = fields.skip(4);
        let (owner, inode) = (rest.next()?, rest.nth(1)?);
        let is_it = is_written(local, &theirs) && is_written(remote, &ours) && inode != "0";
        is_it.then(|| owner.parse().ok()).flatten()
    })
}

/// An address as the tables write it: the four bytes as a number of this machine, hexadecimal.
fn as_written(address: SocketAddrV4) -> String {
    let ip = u32::from_ne_bytes(address.ip().octets());
    format!("{ip:08X}:{:04X}", address.port())
}

/// Whether a table's text is that address, as it is or as a part of IPv6.
fn is_written(text: &str, address: &str) -> bool {
    let mapped = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
    text == address
        || text
            .strip_suffix(address)
            .is_some_and(|rest| rest == format!("{:016X}{mapped:08X}", 0))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, SocketAddrV6, TcpListener, TcpStream};

    use super::*;

    fn pair(to: impl Fn(u16) -> SocketAddr) -> (TcpStream, SocketAddrV4, TcpStream, SocketAddrV4) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(to(port)).unwrap();
        let (server, theirs) = listener.accept().unwrap();
        let (SocketAddr::V4(theirs), SocketAddr::V4(ours)) = (theirs, server.local_addr().unwrap())
        else {
            panic!("the listener is of IPv4");
        };
        (client, theirs, server, ours)
    }

    fn v4(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// Through an IPv6 socket, as some runtimes connect.
    fn v6(port: u16) -> SocketAddr {
        SocketAddrV6::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port, 0, 0).into()
    }

    #[test]
    fn both_ways_name_the_owner_of_a_connected_socket() {
        let us = rustix::process::geteuid().as_raw();
        let peers = Peers::new();
        for to in [v4, v6] {
            let (_client, theirs, _server, ours) = pair(to);
            let questions = peers.questions.as_ref().unwrap();
            assert_eq!(ask(questions, ours, theirs).unwrap(), us);
            assert_eq!(look_up(ours, theirs), Some(us));
            assert!(peers.is_friend(ours, theirs));
        }
    }

    /// The kernel shows sockets that were closed as owned by root.
    #[test]
    fn a_closed_socket_is_nobodys() {
        let peers = Peers::new();
        for to in [v4, v6] {
            let (client, theirs, server, ours) = pair(to);
            drop(client);
            assert!(!peers.is_friend(ours, theirs), "waiting for our end");
            drop(server);
            assert!(!peers.is_friend(ours, theirs), "over");
        }
    }

    #[test]
    fn a_listening_socket_is_nobodys_other_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(theirs) = listener.local_addr().unwrap() else {
            panic!("the listener is of IPv4");
        };
        let ours = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        assert!(!Peers::new().is_friend(ours, theirs));
    }

    /// A port of 127.0.0.1 alone counts, while it listens.
    #[test]
    fn a_listener_of_ours_is_known_by_its_port() {
        let peers = Peers::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(peers.is_friend_listening(port));
        let stranger = Peers {
            questions: None,
            us: u32::MAX,
        };
        let is_root = peers.us == 0;
        assert_eq!(stranger.is_friend_listening(port), is_root);
        drop(listener);
        assert!(!peers.is_friend_listening(port));
        let everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = everywhere.local_addr().unwrap().port();
        assert!(!peers.is_friend_listening(port));
    }

    #[test]
    fn a_table_is_read_by_both_addresses() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
   0: 0100007F:A001 0100007F:0FA0 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1\n\
   1: 0100007F:A002 0100007F:0FA0 06 00000000:00000000 00:00000000 00000000     0        0 0 1\n\
   2: 0000000000000000FFFF00000100007F:A003 0000000000000000FFFF00000100007F:0FA0 01 00000000:00000000 00:00000000 00000000  1001        0 4243 1\n";
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        // Written on a little-endian machine.
        if cfg!(target_endian = "little") {
            assert_eq!(find(table, at(4000), at(0xA001)), Some(1000));
            assert_eq!(find(table, at(4000), at(0xA002)), None, "closed");
            assert_eq!(find(table, at(4000), at(0xA003)), Some(1001));
            assert_eq!(find(table, at(4001), at(0xA001)), None);
        }
    }
}
