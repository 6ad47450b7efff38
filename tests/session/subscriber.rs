//! A subscriber of a session's events, as a program is one: `curl -N` on the control socket.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::rig::{Done, Running};

/// One event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// A stream that is read.
pub(crate) struct Subscriber(Running);

impl Subscriber {
    pub(crate) fn of(sockets: &Path) -> Self {
        let mut curl = Command::new("curl");
        curl.args(["-sSN", "--unix-socket"])
            .arg(sockets.join("control.sock"))
            .arg("http://localhost/v1/events");
        Self::from(Running::of(&mut curl))
    }

    /// A stream that something else opened.
    pub(crate) const fn from(running: Running) -> Self {
        Self(running)
    }

    /// The same; `None` when it is not let in.
    pub(crate) fn let_in(sockets: &Path) -> Option<Self> {
        let one = Self::of(sockets);
        if one.0.line().starts_with("id: ") {
            return Some(one);
        }
        let _refused = one.0.finish();
        None
    }

    /// The next event.
    pub(crate) fn event(&self) -> Event {
        let (mut id, mut name, mut data) = (0, String::new(), Value::Null);
        loop {
            let line = self.0.line();
            let Some((field, value)) = line.split_once(": ") else {
                assert_eq!(line, "");
                if !name.is_empty() {
                    return Event { id, name, data };
                }
                continue;
            };
            match field {
                "id" => id = value.parse().unwrap(),
                "event" => value.clone_into(&mut name),
                "data" => data = serde_json::from_str(value).unwrap(),
                // A comment.
                "" => {}
                other => panic!("{other}: {value}"),
            }
        }
    }

    /// The next event, which has this name.
    pub(crate) fn next(&self, name: &str) -> Value {
        let event = self.event();
        assert_eq!(event.name, name, "{event:?}");
        event.data
    }

    /// The next event of this name; others before it are passed over.
    pub(crate) fn find(&self, name: &str) -> Value {
        loop {
            let event = self.event();
            if event.name == name {
                return event.data;
            }
        }
    }

    /// Every event to the end of the stream.
    pub(crate) fn rest(&self) -> Vec<Event> {
        let mut all = Vec::new();
        while all.last().is_none_or(|last: &Event| last.name != "end") {
            all.push(self.event());
        }
        all
    }

    /// The stream is over, in order.
    pub(crate) fn ended(self) {
        let Done { code, stdout, .. } = self.0.finish();
        assert_eq!((code, stdout.as_str()), (Some(0), ""));
    }

    /// Leaves.
    pub(crate) fn leave(self) {
        self.0.signal("TERM");
        let _left = self.0.finish();
    }
}
