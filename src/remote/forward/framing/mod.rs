//! Follows the requests and answers of a connection without touching them: when the link dies, it
//! must be known what each client was told already. A client that has no byte of its answer can be
//! told to try again; one that has a part must see a break and no end; an idle one is just closed.
//!
//! Follows RFC 9112, section 6. What does not look like it is [`Standing::Unknown`], never guessed.

mod message;

use std::collections::VecDeque;

use message::{Messages, Part, Role, Step};

/// Requests without an answer on one connection. Agents' clients never send a second before the
/// first is answered.
const PIPELINED_MAX: usize = 16;

/// Where the conversation on a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Every request was answered whole, or there was none.
    Idle,
    /// A request has no byte of its answer.
    Unanswered {
        /// What its client sent so far is at least a head: it may look for an answer.
        head_sent: bool,
        /// It is a `HEAD`, whose answer has no body.
        to_head: bool,
    },
    /// An answer has begun and is not whole.
    Answering,
    /// An answer has begun that only the connection's end ends.
    AnsweringUntilClose,
    /// Not HTTP, or not any more.
    Unknown,
}

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    requests: Messages,
    answers: Messages,
    /// For each request line without a whole answer: whether it is a `HEAD`.
    open: VecDeque<bool>,
    unknown: bool,
}

impl Dialogue {
    /// Bytes of the client.
    pub(super) fn asked(&mut self, mut bytes: &[u8]) {
        while !self.unknown && !bytes.is_empty() {
            match self.requests.next(&mut bytes, &Role::Request) {
                Some(Step::Request { head }) if self.open.len() < PIPELINED_MAX => {
                    self.open.push_back(head);
                }
                Some(Step::Request { .. } | Step::Lost) => self.unknown = true,
                Some(Step::Whole) | None => {}
            }
        }
    }

    /// Bytes of the proxy.
    pub(super) fn answered(&mut self, mut bytes: &[u8]) {
        while !self.unknown && !bytes.is_empty() {
            let to_head = self.open.front().copied().unwrap_or(false);
            match self.answers.next(&mut bytes, &Role::Answer { to_head }) {
                // An answer that nobody asked for: the conversation is over, however it goes on.
                Some(Step::Whole) => self.unknown = self.open.pop_front().is_none(),
                Some(Step::Request { .. } | Step::Lost) => self.unknown = true,
                None => {}
            }
        }
    }

    /// How many of the client's next bytes change nothing but how many are left.
    pub(super) fn unseen_asked(&self) -> u64 {
        if self.unknown {
            u64::MAX
        } else {
            self.requests.unseen()
        }
    }

    /// So many bytes of the client, of those that [`Self::unseen_asked`] tells.
    pub(super) fn asked_unseen(&mut self, count: usize) {
        if !self.unknown {
            self.requests.pass(count);
        }
    }

    /// Where it is now.
    pub(super) fn standing(&self) -> Standing {
        if self.unknown {
            return Standing::Unknown;
        }
        match (&self.answers.part, self.open.front()) {
            (Part::UntilClose, _) => Standing::AnsweringUntilClose,
            (Part::Before, None) if matches!(self.requests.part, Part::Before) => Standing::Idle,
            (Part::Before, first) => Standing::Unanswered {
                head_sent: match &self.requests.part {
                    // Of this head, the line that counts the request as open was read.
                    Part::Head(head) if head.begun => self.open.len() > 1,
                    _ => first.is_some(),
                },
                to_head: first.copied().unwrap_or(false),
            },
            _ => Standing::Answering,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::message::LINE_KEPT;
    use super::*;

    const UNANSWERED: Standing = Standing::Unanswered {
        head_sent: true,
        to_head: false,
    };
    const HALF_A_HEAD: Standing = Standing::Unanswered {
        head_sent: false,
        to_head: false,
    };

    /// Who says what, in order: `>` the client, `<` the proxy.
    fn after(said: &[&str]) -> Standing {
        let mut dialogue = Dialogue::default();
        for part in said {
            match part.split_at(1) {
                (">", bytes) => dialogue.asked(bytes.as_bytes()),
                (_, bytes) => dialogue.answered(bytes.as_bytes()),
            }
        }
        dialogue.standing()
    }

    const POST: &str = ">POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
    const GET: &str = ">GET / HTTP/1.1\r\n\r\n";
    const OK: &str = "<HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    #[test]
    fn each_point_of_a_conversation_has_its_standing() {
        let cases: &[(&[&str], Standing)] = &[
            (&[], Standing::Idle),
            (&[">\r\n\r\n"], Standing::Idle),
            (&[">P"], HALF_A_HEAD),
            (&[">POST / HTTP/1.1\r\ncontent-length: 5\r\n"], HALF_A_HEAD),
            (
                &[">POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhel"],
                UNANSWERED,
            ),
            (&[POST], UNANSWERED),
            (&[POST, "<H"], Standing::Answering),
            (
                &[POST, "<HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no"],
                Standing::Answering,
            ),
            (&[POST, OK], Standing::Idle),
            (&[POST, OK, GET], UNANSWERED),
            (&[POST, OK, GET, OK], Standing::Idle),
            (&[GET, GET, OK], UNANSWERED),
            (&[GET, GET, OK, OK], Standing::Idle),
            (&[GET, ">GET / HT", OK], HALF_A_HEAD),
            (&[GET, ">GET / HTTP/1.1\r\n"], UNANSWERED),
            (&[POST, "<HTTP/1.1 100 Continue\r\n\r\n"], UNANSWERED),
            (
                &[POST, "<HTTP/1.1 100 Continue\r\n\r\n", OK],
                Standing::Idle,
            ),
        ];
        for (said, standing) in cases {
            assert_eq!(after(said), *standing, "{said:?}");
        }
    }

    #[test]
    fn a_message_ends_where_its_framing_says() {
        let chunked = "<HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let cases: &[(&[&str], Standing)] = &[
            (&[GET, "<HTTP/1.1 204 No Content\r\n\r\n"], Standing::Idle),
            (
                &[
                    GET,
                    "<HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
                ],
                Standing::Idle,
            ),
            (&[GET, chunked, "<2\r\nok\r\n"], Standing::Answering),
            (
                &[GET, chunked, "<2;x=y\r\nok\r\n0\r\n"],
                Standing::Answering,
            ),
            (
                &[GET, chunked, "<2\r\nok\r\n0\r\nx: y\r\n\r\n"],
                Standing::Idle,
            ),
            (
                &[GET, "<HTTP/1.1 200 OK\r\n\r\nhel"],
                Standing::AnsweringUntilClose,
            ),
            (
                &[
                    ">HEAD / HTTP/1.1\r\n\r\n",
                    "<HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n",
                ],
                Standing::Idle,
            ),
            (
                &[">HEAD / HTTP/1.1\r\n\r\n"],
                Standing::Unanswered {
                    head_sent: true,
                    to_head: true,
                },
            ),
            (
                &[
                    ">POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
                    OK,
                ],
                Standing::Idle,
            ),
        ];
        for (said, standing) in cases {
            assert_eq!(after(said), *standing, "{said:?}");
        }
    }

    /// What is counted only ends where it would if it were read.
    #[test]
    fn bytes_that_are_passed_unseen_end_where_the_message_does() {
        let mut dialogue = Dialogue::default();
        assert_eq!(dialogue.unseen_asked(), 0);
        dialogue.asked(b"POST / HTTP/1.1\r\ncontent-length: 1000\r\n\r\nhello");
        assert_eq!(dialogue.unseen_asked(), 994);
        dialogue.asked_unseen(994);
        assert_eq!(dialogue.unseen_asked(), 0);
        dialogue.asked(b"xPOST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n64\r\n");
        assert_eq!(dialogue.open.len(), 2);
        assert_eq!(dialogue.unseen_asked(), 101);
        dialogue.asked_unseen(101);
        dialogue.asked(b"\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        assert_eq!(dialogue.open.len(), 3);
        assert_eq!(dialogue.unseen_asked(), 0);
        dialogue.asked(b"hello\r\n");
        assert_eq!(dialogue.unseen_asked(), u64::MAX);
        dialogue.asked_unseen(7);
        assert_eq!(dialogue.standing(), Standing::Unknown);
    }

    #[test]
    fn what_is_not_http_is_unknown() {
        let cases: &[&[&str]] = &[
            &[">hello\r\n"],
            &[">GET /\r\n"],
            &[">get / HTTP/1.1\r\n"],
            &[">GET / HTTP/2.0\r\n"],
            &[">CONNECT a:1 HTTP/1.1\r\n"],
            &[">GET / HTTP/1.1\r\nno colon\r\n"],
            &[">POST / HTTP/1.1\r\ncontent-length: x\r\n"],
            &[">POST / HTTP/1.1\r\ncontent-length: +5\r\n"],
            &[">POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n"],
            &[">POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n"],
            &[">POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n"],
            &[GET, "<SSH-2.0-OpenSSH\r\n"],
            &[GET, "<HTTP/1.1 abc\r\n"],
            &[GET, "<HTTP/1.1 101 Switching Protocols\r\n\r\n"],
            &[
                GET,
                "<HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            ],
            // Unasked.
            &["<HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"],
        ];
        for said in cases {
            assert_eq!(after(said), Standing::Unknown, "{said:?}");
        }
    }

    #[test]
    fn more_requests_than_any_client_sends_at_once_are_not_followed() {
        let mut dialogue = Dialogue::default();
        for _ in 0..PIPELINED_MAX {
            dialogue.asked(b"GET / HTTP/1.1\r\n\r\n");
        }
        assert_eq!(dialogue.standing(), UNANSWERED);
        dialogue.asked(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(dialogue.standing(), Standing::Unknown);
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut dialogue = Dialogue::default();
        dialogue.asked(b"GET /");
        for _ in 0..1024 {
            dialogue.asked(&[b'x'; 1024]);
        }
        assert!(dialogue.requests.kept() <= 2 * LINE_KEPT);
        dialogue.asked(b" HTTP/1.1\r\n\r\n");
        assert_eq!(dialogue.standing(), UNANSWERED);
    }

    /// A whole answer of any shape.
    fn answer() -> impl Strategy<Value = Vec<u8>> {
        let body = proptest::collection::vec(any::<u8>(), 0..300);
        (body, 0..3_usize, 1..40_usize).prop_map(|(body, shape, chunk)| {
            let mut answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n".to_vec();
            match shape {
                0 => {
                    answer.extend(format!("content-length: {}\r\n\r\n", body.len()).bytes());
                    answer.extend(body);
                }
                1 => {
                    answer.extend(b"transfer-encoding: chunked\r\n\r\n");
                    for part in body.chunks(chunk) {
                        answer.extend(format!("{:x}\r\n", part.len()).bytes());
                        answer.extend(part);
                        answer.extend(b"\r\n");
                    }
                    answer.extend(b"0\r\n\r\n");
                }
                _ => answer.extend(b"content-length: 0\r\n\r\n"),
            }
            answer
        })
    }

    proptest! {
        /// However the bytes are cut, an answer is whole at its last byte and not one sooner.
        #[test]
        fn an_answer_is_whole_at_its_last_byte(answer in answer(), cut in 1..50_usize) {
            let mut dialogue = Dialogue::default();
            dialogue.asked(b"GET / HTTP/1.1\r\n\r\n");
            let (last, before) = answer.split_last().unwrap();
            for part in before.chunks(cut) {
                dialogue.answered(part);
            }
            prop_assert_eq!(dialogue.standing(), Standing::Answering);
            dialogue.answered(&[*last]);
            prop_assert_eq!(dialogue.standing(), Standing::Idle);
        }

        #[test]
        fn any_bytes_are_followed_or_unknown(said in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..20)) {
            let mut dialogue = Dialogue::default();
            for (client, bytes) in said {
                if client {
                    dialogue.asked(&bytes);
                } else {
                    dialogue.answered(&bytes);
                }
                dialogue.standing();
            }
        }
    }
}
