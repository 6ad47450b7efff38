//! `serve`: answers a controller's questions about this machine, one after the other, until it
//! leaves.

mod docker;
mod forward;
mod gpus;
mod machine;
pub(super) mod probe;
mod sessions;

use std::time::Duration;

use serde::Serialize;

use self::forward::Forwards;
use super::controller::{hear, say};
use super::directory;
use super::login::Login;
use crate::wire::frame::{self, FrameError};
use crate::wire::greeting::{Nonce, greeting};
use crate::wire::service::{Answer, Question};

/// How long a controller may take to ask: its own steps between two questions take seconds, and one
/// whose network is gone must not keep this process.
const QUESTION_LIMIT: Duration = Duration::from_mins(2);

/// Greets and answers until the controller leaves.
///
/// # Errors
/// When what it says is no question, or it does not take an answer.
pub fn serve(nonce: Nonce, login: &Login) -> Result<(), String> {
    say(&greeting(nonce))?;
    let mut service = Service {
        login,
        forwards: Forwards::default(),
    };
    while let Some(question) = hear(QUESTION_LIMIT)? {
        say(&framed(&service.answer(&question)?)?)?;
    }
    Ok(())
}

struct Service<'a> {
    login: &'a Login,
    forwards: Forwards,
}

impl Service<'_> {
    fn answer(&mut self, question: &[u8]) -> Result<Answer, String> {
        let question = frame::decode(question).map_err(words)?;
        let login = self.login;
        let answered = match &question {
            Question::Machine { workdir } => machine::describe(workdir, login).map(Answer::Machine),
            Question::Docker => Ok(Answer::Docker(docker::ask())),
            Question::Gpus { workdir } => directory::expand(workdir, login)
                .map(|workdir| Answer::Gpus(gpus::list(&workdir)))
                .map_err(str::to_owned),
            Question::Sessions { workdir } => sessions::list(workdir, login).map(Answer::Sessions),
            Question::ForwardDirectory => {
                self.forwards.directory(login).map(Answer::ForwardDirectory)
            }
            Question::TryForward(end) => forward::ask(end),
        };
        Ok(answered.unwrap_or_else(|why| Answer::Failed { why }))
    }
}

fn framed<M: Serialize>(message: &M) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    frame::encode(message, &mut bytes).map_err(words)?;
    Ok(bytes)
}

#[allow(clippy::needless_pass_by_value, reason = "map_err gives it by value")]
fn words(error: FrameError) -> String {
    error.to_string()
}
