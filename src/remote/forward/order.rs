//! What the supervisor tells its forwarder: one datagram each over a pair of sockets, of which the
//! forwarder's is its standard input. The first carries the listening sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

use super::listeners::Listeners;
use crate::wire::link::ForwardEnd;

/// Longest datagram: a socket's path and a head.
const DATAGRAM_MAX: usize = 4096;

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// The proxy is behind this from now on: where the link's ssh listens.
    Up(ForwardEnd),
    /// No link works.
    Down {
        /// How long one may still come, milliseconds.
        lease_ms: u64,
    },
}

/// What came with a datagram.
#[derive(Debug)]
pub(super) enum Received {
    /// An order, with the listening sockets when it is the first.
    Order(Order, Option<Listeners>),
    /// Nothing yet.
    Nothing,
    /// The supervisor is gone.
    End,
}

/// A pair of sockets for orders.
///
/// # Errors
/// As the system says.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends an order, without waiting.
///
/// # Errors
/// When the forwarder is gone or does not read.
pub(super) fn send(
    control: BorrowedFd<'_>,
    order: &Order,
    listeners: Option<&Listeners>,
) -> io::Result<()> {
    let datagram = postcard::to_allocvec(order).map_err(io::Error::other)?;
    let descriptors = listeners.map(Listeners::descriptors);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(descriptors) = &descriptors
        && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
    {
        return Err(io::Error::other("no room for two descriptors"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(control, &[IoSlice::new(&datagram)], &mut ancillary, flags)?;
    Ok(())
}

/// Whether the other end is gone.
pub(super) fn is_closed(control: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(control, PollFlags::empty())];
    let now = Timespec::default();
    // One that cannot be asked is taken for open: its process is then ended.
    matches!(poll(&mut asked, Some(&now)), Ok(1))
}

/// Receives an order, without waiting.
///
/// # Errors
/// When what came is no order.
pub(super) fn receive(control: BorrowedFd<'_>) -> io::Result<Received> {
    let mut datagram = [0; DATAGRAM_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut datagram)];
    let received = match recvmsg(control, &mut parts, &mut ancillary, flags) {
        Ok(received) => received,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
        Err(rustix::io::Errno::CONNRESET) => return Ok(Received::End),
        Err(error) => return Err(error.into()),
    };
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    let message = datagram.get(..received.bytes).unwrap_or_default();
    if message.is_empty() {
        return Ok(Received::End);
    }
    if received.flags.intersects(cut) {
        return Err(io::Error::other("an order that is too long"));
    }
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    let order = crate::wire::frame::decode(message).map_err(io::Error::other)?;
    let mut descriptors = descriptors.into_iter();
    let listeners = match (descriptors.next(), descriptors.next()) {
        (Some(tcp), Some(unix)) => Some(Listeners::from_descriptors(tcp, unix)?),
        _ => None,
    };
    Ok(Received::Order(order, listeners))
}
