//! What stands for ssh before an rsync of ours: a process that leads to labproxy's own connection.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::wire::bytes::ByteString;
use crate::wire::frame;

/// The hidden command.
pub const SHELL_COMMAND: &str = "__rsync-shell";
/// So much passes at once.
const PART: usize = 256 * 1024;

/// Leads to the socket that the first argument names; tells it the others first, which rsync would
/// give to ssh. Ends when the other side ends.
///
/// # Errors
/// When nobody is there.
pub fn run(arguments: &[OsString]) -> io::Result<()> {
    let (socket, words) = arguments
        .split_first()
        .ok_or_else(|| io::Error::other("it got no socket"))?;
    let mut stream = UnixStream::connect(Path::new(socket))?;
    let words: Vec<ByteString> = words.iter().map(ByteString::from).collect();
    let mut order = Vec::new();
    frame::encode(&words, &mut order).map_err(|error| io::Error::other(error.to_string()))?;
    stream.write_all(&order)?;
    let up = stream.try_clone()?;
    let input = plain(rustix::stdio::stdin())?;
    // It may wait for rsync for ever; this process does not wait for it.
    std::thread::Builder::new()
        .name("up".to_owned())
        .spawn(move || {
            // Whatever ends it, rsync hears of it from the other direction.
            let _ended = pass(input, up.try_clone()).and_then(|()| up.shutdown(Shutdown::Write));
        })?;
    pass(stream, plain(rustix::stdio::stdout()))
}

/// Not the library's own, which looks for ends of lines.
fn plain(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from(rustix::io::fcntl_dupfd_cloexec(stream, 3)?))
}

fn pass(mut from: impl Read, to: io::Result<impl io::Write>) -> io::Result<()> {
    let mut to = to?;
    let mut buffer = vec![0; PART];
    loop {
        let count = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else {
            return Ok(());
        };
        to.write_all(part)?;
    }
}
