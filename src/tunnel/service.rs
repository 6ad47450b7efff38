//! Asking `labproxy-remote serve` on a host: one question, one answer.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::wire::frame::{self, FrameError};
use crate::wire::service::{Answer, Question};

/// How long an answer may take: the host's own limit for a program is 10 s, and it asks two at
/// most for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// So much is read at once.
const READ_BYTES: usize = 16 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// It took too long.
    #[error("the host did not answer within {} s", ANSWER_LIMIT.as_secs())]
    Silent,
    /// The program there has ended.
    #[error("labproxy-remote has ended")]
    Ended,
    /// The channel is broken.
    #[error("the channel to the host is broken")]
    Broken(#[from] std::io::Error),
    /// What came is no answer, or none to this question.
    #[error("the host's answer makes no sense")]
    Malformed,
    /// The host says why it has none.
    #[error("{0}")]
    Failed(String),
}

impl From<FrameError> for ServiceError {
    fn from(_: FrameError) -> Self {
        Self::Malformed
    }
}

/// A channel to a `serve` that has greeted.
#[derive(Debug)]
pub struct Service<R, W> {
    reader: R,
    writer: W,
    received: Vec<u8>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Service<R, W> {
    /// Over the two directions of a channel.
    pub fn new(reader: R, writer: W) -> Self {
        Self {
            reader,
            writer,
            received: Vec::new(),
        }
    }

    /// Asks, and gives what `wanted` makes of the answer.
    ///
    /// # Errors
    /// When there is no answer, or another one than was wanted.
    pub async fn ask<T>(
        &mut self,
        question: &Question,
        wanted: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T, ServiceError> {
        let answer = tokio::time::timeout(ANSWER_LIMIT, self.exchange(question));
        match answer.await.map_err(|_| ServiceError::Silent)?? {
            Answer::Failed { why } => Err(ServiceError::Failed(why)),
            answer => wanted(answer).ok_or(ServiceError::Malformed),
        }
    }

    async fn exchange(&mut self, question: &Question) -> Result<Answer, ServiceError> {
        let mut bytes = Vec::new();
        frame::encode(question, &mut bytes)?;
        self.writer.write_all(&bytes).await?;
        self.writer.flush().await?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if let Some((message, rest)) = frame::split(&self.received)? {
                let answer = frame::decode(message)?;
                self.received = rest.to_vec();
                return Ok(answer);
            }
            match self.reader.read(&mut buffer).await? {
                0 => return Err(ServiceError::Ended),
                length => self.received.extend(buffer.iter().take(length)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docker(answer: Answer) -> Option<crate::wire::service::Docker> {
        match answer {
            Answer::Docker(docker) => Some(docker),
            _ => None,
        }
    }

    async fn answered(bytes: &[u8]) -> Result<crate::wire::service::Docker, ServiceError> {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        theirs.write_all(bytes).await.unwrap();
        let (reader, writer) = tokio::io::split(ours);
        let mut service = Service::new(reader, writer);
        // The other end stays open unless it said nothing.
        if bytes.is_empty() {
            drop(theirs);
        }
        service.ask(&Question::Docker, docker).await
    }

    fn framed(answer: &Answer) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::encode(answer, &mut bytes).unwrap();
        bytes
    }

    /// An answer to the question is taken, and nothing else is.
    #[tokio::test(start_paused = true)]
    async fn only_an_answer_to_the_question_is_taken() {
        use crate::wire::service::Docker;
        let absent = framed(&Answer::Docker(Docker::Absent));
        assert_eq!(answered(&absent).await.unwrap(), Docker::Absent);
        let other = framed(&Answer::Sessions(Vec::new()));
        assert!(matches!(
            answered(&other).await,
            Err(ServiceError::Malformed)
        ));
        let noise = answered(b"\xff\xff\xff\xff banner").await;
        assert!(matches!(noise, Err(ServiceError::Malformed)));
        let failed = framed(&Answer::Failed { why: "full".into() });
        assert_eq!(answered(&failed).await.unwrap_err().to_string(), "full");
        let left = answered(b"").await;
        assert!(matches!(
            left,
            Err(ServiceError::Ended | ServiceError::Broken(_))
        ));
        let half = absent.get(..3).unwrap();
        assert!(matches!(answered(half).await, Err(ServiceError::Silent)));
    }
}
