//! Frames to and from the other end, blocking.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{PeerError, Rule};
use crate::wire::frame::{self, PREFIX};
use crate::wire::mirror::{FromMirror, ToMirror};

/// Reads what the other end says. A read that takes longer than it may fails with
/// [`io::ErrorKind::TimedOut`] or [`io::ErrorKind::WouldBlock`]: the limit is kept by whoever made
/// it, and nothing that the other end says changes it.
pub trait Input: Read + Send {}
impl<T: Read + Send> Input for T {}

/// Takes what the other end is told; gives up in time, as [`Input`] does.
pub trait Output: Write + Send {}
impl<T: Write + Send> Output for T {}

/// How often the other end may say during one order that it is still at it: once a second for an
/// hour and a half.
const WORKING_MAX: u64 = 5_400;
/// For so long it may say so, however seldom.
const WORKING_LIMIT: Duration = Duration::from_mins(90);
/// In this time a frame is whole: a byte now and then is no answer. The longest frame over the
/// slowest line that is of use, 2 KiB a second.
const FRAME_LIMIT: Duration = Duration::from_mins(9);

pub(super) struct Line {
    input: Box<dyn Input>,
    output: Arc<Mutex<Box<dyn Output>>>,
    /// Ends the thread that says [`ToMirror::Here`], when it is dropped.
    here: Option<mpsc::Sender<Infallible>>,
    /// The last message's bytes.
    message: Vec<u8>,
    working: u64,
    /// When the last order was given.
    said: Instant,
    frame_limit: Duration,
}

impl Line {
    pub(super) fn new(input: Box<dyn Input>, output: Box<dyn Output>) -> Self {
        Self {
            input,
            output: Arc::new(Mutex::new(output)),
            here: None,
            message: Vec::new(),
            working: 0,
            said: Instant::now(),
            frame_limit: FRAME_LIMIT,
        }
    }

    /// Has the other end told that we are here, so often, until this is dropped.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(super) fn keep_alive(&mut self, every: Duration) -> io::Result<()> {
        let (here, left) = mpsc::channel::<Infallible>();
        let output = Arc::clone(&self.output);
        let tell = move || {
            while left.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                // The next order finds out why it cannot be told.
                if said(&output, &ToMirror::Here).is_err() {
                    return;
                }
            }
        };
        let named = std::thread::Builder::new().name("mirror-here".to_owned());
        let _until_left = named.spawn(tell)?;
        self.here = Some(here);
        Ok(())
    }

    pub(super) fn say(&mut self, order: &ToMirror<'_>) -> Result<(), PeerError> {
        (self.working, self.said) = (0, Instant::now());
        let said = said(&self.output, order);
        said.map_err(|error| self.last_words(lost(error)))
    }

    /// An end that takes nothing more may have said why before it ended.
    fn last_words(&mut self, lost: PeerError) -> PeerError {
        if !matches!(lost, PeerError::Ended) {
            return lost;
        }
        match self.hear() {
            Ok(FromMirror::Refused { why }) => PeerError::Refused(why),
            Ok(_) | Err(_) => lost,
        }
    }

    pub(super) fn hear(&mut self) -> Result<FromMirror<'_>, PeerError> {
        let mut prefix = [0; PREFIX];
        let mut begun = None;
        self.fill(&mut prefix, &mut begun)?;
        let length = frame::length(prefix).map_err(Rule::from)?;
        let mut message = std::mem::take(&mut self.message);
        message.resize(length, 0);
        let filled = self.fill(&mut message, &mut begun);
        self.message = message;
        filled?;
        let message = frame::decode(&self.message).map_err(Rule::from)?;
        if matches!(message, FromMirror::Working { .. }) {
            self.working += 1;
            if self.working > WORKING_MAX || self.said.elapsed() > WORKING_LIMIT {
                return Err(Rule::Endless.into());
            }
        }
        Ok(message)
    }

    /// Reads all of `buffer`, which belongs to a frame whose first byte came at `begun`.
    fn fill(&mut self, buffer: &mut [u8], begun: &mut Option<Instant>) -> Result<(), PeerError> {
        let mut rest = buffer;
        while !rest.is_empty() {
            match self.input.read(rest) {
                Ok(0) => return Err(PeerError::Ended),
                Ok(count) => rest = rest.get_mut(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
            let since = begun.get_or_insert_with(Instant::now);
            if !rest.is_empty() && since.elapsed() > self.frame_limit {
                return Err(PeerError::Silent);
            }
        }
        Ok(())
    }
}

/// Says it, whole.
fn said(output: &Mutex<Box<dyn Output>>, order: &ToMirror<'_>) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame::encode(order, &mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.write_all(&bytes)?;
    output.flush()
}

fn lost(error: io::Error) -> PeerError {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => PeerError::Silent,
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => PeerError::Ended,
        _ => PeerError::Broken(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte for each read.
    struct Dripping(io::Cursor<Vec<u8>>);

    impl Read for Dripping {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let one = buffer.len().min(1);
            self.0.read(&mut buffer[..one])
        }
    }

    fn hear(limit: Duration) -> Result<(), PeerError> {
        let mut bytes = Vec::new();
        frame::encode(&FromMirror::Done, &mut bytes).unwrap();
        let input = Dripping(io::Cursor::new(bytes));
        let mut line = Line::new(Box::new(input), Box::new(io::sink()));
        line.frame_limit = limit;
        line.hear().map(|_| ())
    }

    /// Hands on what is written, and says when it is dropped by that nothing comes any more.
    struct Heard(mpsc::Sender<Vec<u8>>);

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A controller that gives no order is heard all the same, between whole frames, until it leaves.
    #[test]
    fn a_controller_that_takes_its_time_says_that_it_is_there() {
        let (heard, frames) = mpsc::channel();
        let mut line = Line::new(Box::new(io::empty()), Box::new(Heard(heard)));
        line.keep_alive(Duration::from_millis(1)).unwrap();
        line.say(&ToMirror::Scan).unwrap();
        let mut orders = frames.iter().map(|bytes| {
            let message = bytes.get(PREFIX..).unwrap().to_vec();
            frame::decode::<ToMirror<'_>>(&message).unwrap() == ToMirror::Here
        });
        assert!(orders.any(|is_here| !is_here), "the order");
        assert!(orders.any(|is_here| is_here), "the word");
        drop(line);
        // The thread has let go of the output: this ends.
        assert!(orders.all(|is_here| is_here));
    }

    /// M-25: a byte now and then, each within the limit of silence, does not hold a mirror up.
    #[test]
    fn m25_a_frame_that_drips_is_given_up() {
        assert!(matches!(hear(Duration::ZERO), Err(PeerError::Silent)));
        hear(FRAME_LIMIT).unwrap();
    }

    /// M-25: who says for too long that it works is given up, however seldom it says so.
    #[test]
    fn m25_work_without_end_is_given_up() {
        let mut bytes = Vec::new();
        let working = FromMirror::Working {
            entries: 0,
            bytes: 0,
        };
        frame::encode(&working, &mut bytes).unwrap();
        let input = io::Cursor::new(bytes.repeat(2));
        let mut line = Line::new(Box::new(input), Box::new(io::sink()));
        assert!(line.hear().is_ok());
        line.said = Instant::now().checked_sub(2 * WORKING_LIMIT).unwrap();
        let endless = line.hear().map(|_| ()).unwrap_err();
        assert!(matches!(endless, PeerError::Rule(Rule::Endless)));
    }
}
