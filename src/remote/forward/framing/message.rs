//! The messages of one direction: where each begins and ends.

/// So much of a line is looked at: the headers that matter are short.
pub(super) const LINE_KEPT: usize = 256;
/// One direction: messages, one after the other.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) part: Part,
    /// The line that is being read, as far as it is kept.
    line: Vec<u8>,
}

/// Where in a message.
#[derive(Debug, Default)]
pub(super) enum Part {
    /// Before its first byte.
    #[default]
    Before,
    /// In its head.
    Head(Head),
    /// In a body with so many bytes left.
    Length(u64),
    /// In the line that tells a chunk's size.
    ChunkSize,
    /// In a chunk with so many bytes left, its line end included.
    Chunk(u64),
    /// In the lines after the last chunk.
    Trailers,
    /// In a body that the connection's end ends.
    UntilClose,
}

/// What a head has said so far.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Head {
    /// Whether its first line was read.
    pub(super) begun: bool,
    status: u16,
    length: Option<u64>,
    chunked: bool,
}

/// Who sends the messages.
pub(super) enum Role {
    Request,
    Answer { to_head: bool },
}

/// What is to be told.
pub(super) enum Step {
    /// A request line.
    Request { head: bool },
    /// A message ended.
    Whole,
    /// It cannot be followed.
    Lost,
}

impl Messages {
    /// Goes on through `bytes` until something is to be told or they are used up.
    pub(super) fn next(&mut self, bytes: &mut &[u8], role: &Role) -> Option<Step> {
        while !bytes.is_empty() {
            match &mut self.part {
                Part::UntilClose => *bytes = &[],
                Part::Length(left) => {
                    if skip(bytes, left) {
                        self.part = Part::Before;
                        return Some(Step::Whole);
                    }
                }
                Part::Chunk(left) => {
                    if skip(bytes, left) {
                        self.part = Part::ChunkSize;
                    }
                }
                Part::Before | Part::Head(_) | Part::ChunkSize | Part::Trailers => {
                    if matches!(self.part, Part::Before) {
                        self.part = Part::Head(Head::default());
                    }
                    if !self.take_line(bytes) {
                        return None;
                    }
                    let line = std::mem::take(&mut self.line);
                    if let Some(step) = self.line_read(trimmed(&line), role) {
                        return Some(step);
                    }
                }
            }
        }
        None
    }

    /// How many of the next bytes change nothing but how many are left: those of a body, without its
    /// last, which ends it.
    pub(super) const fn unseen(&self) -> u64 {
        match self.part {
            Part::UntilClose => u64::MAX,
            Part::Length(left) | Part::Chunk(left) => left.saturating_sub(1),
            Part::Before | Part::Head(_) | Part::ChunkSize | Part::Trailers => 0,
        }
    }

    /// So many of them have passed.
    pub(super) fn pass(&mut self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if let Part::Length(left) | Part::Chunk(left) = &mut self.part {
            *left = left.saturating_sub(count);
        }
    }

    /// Bytes of memory for a line.
    #[cfg(test)]
    pub(super) const fn kept(&self) -> usize {
        self.line.capacity()
    }

    /// Takes bytes up to a line's end; whether that was reached.
    fn take_line(&mut self, bytes: &mut &[u8]) -> bool {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        let room = LINE_KEPT.saturating_sub(self.line.len());
        self.line.extend(line.iter().take(room));
        *bytes = rest;
        end.is_some()
    }

    fn line_read(&mut self, line: &[u8], role: &Role) -> Option<Step> {
        match (&mut self.part, line) {
            (Part::Head(head), []) if !head.begun => {
                // Empty lines before a message are allowed and mean nothing.
                self.part = Part::Before;
                None
            }
            (Part::Head(head), []) => {
                let head = *head;
                self.body_of(head, role)
            }
            (Part::Head(head), line) if !head.begun => {
                head.begun = true;
                match role {
                    Role::Request => Some(request_line(line)),
                    Role::Answer { .. } => match status_line(line) {
                        Some(status) => {
                            head.status = status;
                            None
                        }
                        None => Some(Step::Lost),
                    },
                }
            }
            (Part::Head(head), line) => head.field(line).then_some(Step::Lost),
            (Part::ChunkSize, line) => match chunk_size(line) {
                Some(0) => {
                    self.part = Part::Trailers;
                    None
                }
                // Two more for the line end after the chunk.
                Some(size) => {
                    self.part = Part::Chunk(size.saturating_add(2));
                    None
                }
                None => Some(Step::Lost),
            },
            (Part::Trailers, []) => {
                self.part = Part::Before;
                Some(Step::Whole)
            }
            _ => None,
        }
    }

    /// What follows a head.
    fn body_of(&mut self, head: Head, role: &Role) -> Option<Step> {
        self.part = Part::Before;
        if let Role::Answer { to_head } = role {
            match head.status {
                // The connection speaks something else from here on.
                101 => return Some(Step::Lost),
                // Tells about an answer that is still to come.
                100..=199 => return None,
                204 | 304 => return Some(Step::Whole),
                _ if *to_head => return Some(Step::Whole),
                _ => {}
            }
        }
        self.part = match (head.chunked, head.length, role) {
            // Both together are how smuggled requests look.
            (true, Some(_), _) => return Some(Step::Lost),
            (true, None, _) => Part::ChunkSize,
            (false, Some(0), _) | (false, None, Role::Request) => return Some(Step::Whole),
            (false, Some(length), _) => Part::Length(length),
            (false, None, Role::Answer { .. }) => Part::UntilClose,
        };
        None
    }
}

impl Head {
    /// Reads a header line; whether the message cannot be followed.
    fn field(&mut self, line: &[u8]) -> bool {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return true;
        };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = digits(value, 10);
            let again = self.length.is_some_and(|before| Some(before) != length);
            self.length = length;
            length.is_none() || again
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.chunked = value.eq_ignore_ascii_case(b"chunked");
            !self.chunked
        } else {
            false
        }
    }
}

/// Skips up to `left` bytes; whether none are left.
fn skip(bytes: &mut &[u8], left: &mut u64) -> bool {
    let all = bytes.len();
    let here = usize::try_from(*left).map_or(all, |left| left.min(all));
    *bytes = bytes.get(here..).unwrap_or_default();
    *left = left.saturating_sub(u64::try_from(here).unwrap_or(u64::MAX));
    *left == 0
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn request_line(line: &[u8]) -> Step {
    let method = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_method = !method.is_empty()
        && method.len() < line.len()
        && method.iter().all(u8::is_ascii_uppercase)
        && method != b"CONNECT";
    // A longer line was not kept to its end.
    let is_http = line.len() >= LINE_KEPT - 2
        || line
            .rsplit(|byte| *byte == b' ')
            .next()
            .is_some_and(|version| version.starts_with(b"HTTP/1."));
    if is_method && is_http {
        Step::Request {
            head: method == b"HEAD",
        }
    } else {
        Step::Lost
    }
}

fn status_line(line: &[u8]) -> Option<u16> {
    let after = line.strip_prefix(b"HTTP/1.")?;
    let status = digits(after.get(2..5)?, 10)?;
    u16::try_from(status).ok().filter(|status| *status >= 100)
}

/// The size before any extension.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let size = line.split(|byte| *byte == b';').next()?;
    digits(size.trim_ascii(), 16)
}

/// A number of nothing but digits.
fn digits(text: &[u8], radix: u32) -> Option<u64> {
    let all_digits = text.iter().all(|byte| char::from(*byte).is_digit(radix));
    let text = std::str::from_utf8(text).ok().filter(|_| all_digits)?;
    u64::from_str_radix(text, radix).ok()
}
