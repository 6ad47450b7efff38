//! An end of a mirror that is honest but for one lie: it holds a tree in memory, answers each order
//! as it should, and lets the lie change the answer before it goes out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use labproxy::tree::content::{ContentId, GROUP, group_value};
use labproxy::tree::directory::{Directory, Listed};
use labproxy::tree::entry::{Entry, File, LinkText, Seen};
use labproxy::tree::path::{Name, RelPath};
use labproxy::wire::bytes::ByteString;
use labproxy::wire::mirror::{
    FromMirror, Glimpse, Pieces, Ran, RootState, Scanned, ToMirror, Wish,
};
use labproxy::wire::{delta, frame};

/// What goes out in place of an answer.
pub(crate) enum Say {
    Message(FromMirror<'static>),
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// The same again and again, for as long as anybody listens.
    Forever(FromMirror<'static>),
    /// Nothing more, until the other side's limit for silence is over.
    Silence,
    /// The channel ends.
    End,
}

pub(crate) type Lie<'a> = dyn FnMut(&ToMirror<'_>, &mut Vec<Say>) + Send + 'a;

/// The orders of one conversation, as the host heard them.
pub(crate) type Heard = Vec<ToMirror<'static>>;

pub(crate) struct Host {
    pub(crate) tree: Directory,
    pub(crate) contents: HashMap<ContentId, Vec<u8>>,
}

enum Chunk {
    Bytes(Vec<u8>),
    Silence,
}

/// The controller's side of the channel, without time: silence is told as the limit's end.
pub(crate) struct Input {
    from: Receiver<Chunk>,
    rest: Vec<u8>,
}

pub(crate) struct Output(Sender<Vec<u8>>);

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.from.recv() {
                Ok(Chunk::Bytes(bytes)) => self.rest = bytes,
                Ok(Chunk::Silence) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(_) => return Ok(0),
            }
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send(bytes.to_vec());
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Host {
    pub(crate) fn of(files: &[(&str, &[u8])]) -> Self {
        let mut contents = HashMap::new();
        for (_, bytes) in files {
            contents.insert(ContentId::of(bytes), bytes.to_vec());
        }
        Self {
            tree: tree_of(files),
            contents,
        }
    }

    /// Serves until the controller leaves. Gives what it heard.
    pub(crate) fn serve(&self, orders: &Receiver<Vec<u8>>, out: Wire, lie: &mut Lie<'_>) -> Heard {
        let mut heard = Heard::new();
        while let Ok(bytes) = orders.recv() {
            let (message, rest) = frame::split(&bytes).unwrap().unwrap();
            assert!(rest.is_empty());
            // Orders are few and the process ends soon.
            let message: &'static [u8] = Box::leak(message.to_vec().into_boxed_slice());
            let order: ToMirror<'static> = frame::decode(message).unwrap();
            let mut answers = self.answer(&order).into_iter().map(Say::Message).collect();
            lie(&order, &mut answers);
            heard.push(order);
            for answer in answers {
                if !out.say(answer) {
                    return heard;
                }
            }
        }
        heard
    }

    fn answer(&self, order: &ToMirror<'_>) -> Vec<FromMirror<'static>> {
        match order {
            ToMirror::Open(_) => vec![FromMirror::Opened(RootState::Ours)],
            ToMirror::Take { .. } => vec![FromMirror::Taken],
            ToMirror::Scan => vec![scanned(&self.tree)],
            ToMirror::List { directories } => directories
                .iter()
                .map(|path| {
                    listing(
                        self.tree
                            .directory(path)
                            .map_or(Vec::new(), Directory::listing),
                    )
                })
                .collect(),
            ToMirror::Groups { content } => vec![self.groups(content)],
            ToMirror::Fetch { wishes, .. } => self.fetch(wishes),
            ToMirror::Locate { landing } => vec![FromMirror::Located {
                root: ByteString::from("/there"),
                landing: landing.then(|| ByteString::from("/landing")),
            }],
            ToMirror::Stage { .. } | ToMirror::Landed { .. } => {
                vec![FromMirror::Staged { have: Vec::new() }]
            }
            ToMirror::Delta { wish, signature } => vec![self.delta(wish, signature.to_vec())],
            ToMirror::Glance { files } => vec![FromMirror::Glanced {
                seen: files.iter().map(|path| self.glimpse(path)).collect(),
            }],
            ToMirror::Sign(_) | ToMirror::Patch(_) => vec![FromMirror::Gone { wish: 0 }],
            ToMirror::StageEnd | ToMirror::Unstage => vec![FromMirror::Done],
            ToMirror::Pieces(_) | ToMirror::Steps(_) | ToMirror::Here => Vec::new(),
            ToMirror::Run => vec![FromMirror::Ran(Ran::default())],
        }
    }

    /// A file looks otherwise when its content is another.
    fn glimpse(&self, path: &RelPath) -> Option<Glimpse> {
        let Some(Entry::File(file)) = self.tree.find(path) else {
            return None;
        };
        let bytes = file.content.0.first_chunk().unwrap();
        Some(Glimpse {
            inode: u64::from_le_bytes(*bytes),
            size: file.size,
            modified: (1, 2),
            changed: (3, 4),
        })
    }

    fn delta(&self, wish: &Wish, signature: Vec<u8>) -> FromMirror<'static> {
        let Some(Entry::File(file)) = self.tree.find(&wish.path) else {
            return FromMirror::Gone { wish: 0 };
        };
        let bytes = &self.contents[&file.content];
        let part = &bytes[wish.offset as usize..][..wish.length as usize];
        match delta::delta(signature, part) {
            Some(delta) => FromMirror::Delta {
                delta: delta.into(),
            },
            None => FromMirror::Gone { wish: 0 },
        }
    }

    fn groups(&self, content: &ContentId) -> FromMirror<'static> {
        let bytes = self.contents.get(content).map_or(&[][..], Vec::as_slice);
        let parts = bytes.chunks(GROUP as usize).zip(0..);
        let values = parts.flat_map(|(part, index)| group_value(index * GROUP, part));
        FromMirror::Groups {
            values: Cow::Owned(values.collect()),
            last: true,
        }
    }

    fn fetch(&self, wishes: &[Wish]) -> Vec<FromMirror<'static>> {
        let mut answers = Vec::new();
        for (wish, index) in wishes.iter().zip(0..) {
            let bytes = match self.tree.find(&wish.path) {
                Some(Entry::File(file)) => self.contents.get(&file.content),
                _ => None,
            };
            let Some(bytes) = bytes else {
                answers.push(FromMirror::Gone { wish: index });
                continue;
            };
            let part = &bytes[wish.offset as usize..][..wish.length as usize];
            let mut parts: Vec<&[u8]> = part.chunks(256 * 1024).collect();
            if parts.is_empty() {
                parts.push(&[]);
            }
            answers.extend(parts.into_iter().map(|part| pieces(index, part)));
        }
        answers.push(FromMirror::Done);
        answers
    }
}

/// What carries the host's words.
pub(crate) struct Wire(SyncSender<Chunk>);

impl Wire {
    /// Whether anybody listens still.
    fn say(&self, what: Say) -> bool {
        let send = |bytes: Vec<u8>| self.0.send(Chunk::Bytes(bytes)).is_ok();
        match what {
            Say::Message(message) => send(framed(&message)),
            Say::Raw(bytes) => send(bytes),
            Say::Forever(message) => {
                let bytes = framed(&message);
                while send(bytes.clone()) {}
                false
            }
            Say::Silence => {
                let _left = self.0.send(Chunk::Silence);
                false
            }
            Say::End => false,
        }
    }
}

pub(crate) fn channels() -> (Input, Output, Receiver<Vec<u8>>, Wire) {
    let (say, from) = sync_channel(4);
    let (order, orders) = channel();
    let input = Input {
        from,
        rest: Vec::new(),
    };
    (input, Output(order), orders, Wire(say))
}

pub(crate) fn framed(message: &FromMirror<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(message, &mut bytes).unwrap();
    bytes
}

pub(crate) fn scanned(tree: &Directory) -> FromMirror<'static> {
    FromMirror::Scanned(Scanned {
        hash: tree.hash(),
        seen: tree.seen(),
        totals: tree.totals(),
        problems: Vec::new(),
        problem_count: 0,
    })
}

pub(crate) const fn listing(entries: Vec<(Name, Listed)>) -> FromMirror<'static> {
    FromMirror::Listing {
        entries,
        last: true,
    }
}

pub(crate) fn pieces(index: u32, bytes: &[u8]) -> FromMirror<'static> {
    FromMirror::Pieces(Pieces {
        parts: vec![(index, bytes.len() as u32)],
        length: bytes.len() as u32,
        packed: false,
        bytes: Cow::Owned(bytes.to_vec()),
    })
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

pub(crate) fn file(size: u64, content: ContentId) -> Entry {
    Entry::File(File {
        size,
        executable: false,
        content,
        seen: Seen::default(),
    })
}

pub(crate) fn link(text: &[u8]) -> Entry {
    Entry::Link(LinkText::new(text).unwrap())
}

pub(crate) fn directory(entries: Vec<(&str, Entry)>) -> Directory {
    let entries = entries.into_iter().map(|(text, entry)| (name(text), entry));
    Directory::new(entries.collect(), Seen::default()).unwrap()
}

/// A tree of files at paths of at most one directory.
pub(crate) fn tree_of(files: &[(&str, &[u8])]) -> Directory {
    let mut below: Vec<(&str, Vec<(&str, Entry)>)> = Vec::new();
    let mut top = Vec::new();
    for (path, bytes) in files {
        let entry = file(bytes.len() as u64, ContentId::of(bytes));
        match path.split_once('/') {
            None => top.push((*path, entry)),
            Some((parent, name)) => match below.iter_mut().find(|(text, _)| *text == parent) {
                Some((_, entries)) => entries.push((name, entry)),
                None => below.push((parent, vec![(name, entry)])),
            },
        }
    }
    for (parent, entries) in below {
        top.push((parent, Entry::Directory(directory(entries))));
    }
    directory(top)
}
