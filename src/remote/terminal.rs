//! A terminal for a program: the kernel's pair of ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, SpecialCodeIndex, Winsize};

use crate::wire::link::WindowSize;

/// Opens a terminal of this size: our end, non-blocking, and the program's.
pub fn open(size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, Mode::empty())?;
    resize(&ours, size)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// Tells the terminal, and the programs on it, a new size.
pub fn resize(terminal: impl AsFd, size: WindowSize) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// What tells a program that its input ends: the terminal's own character, when it reads lines.
pub fn end_of_input(terminal: impl AsFd) -> Option<u8> {
    let modes = rustix::termios::tcgetattr(terminal).ok()?;
    let lines = modes.local_modes.contains(LocalModes::ICANON);
    lines.then(|| modes.special_codes[SpecialCodeIndex::VEOF])
}
