//! What a live session answers on its control socket.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::StatusCode;
use serde::Serialize;

use super::control::events::Feed;
use super::control::{
    Answer, Call, Controlled, HostLink, PULLING, Refusal, Status, WorkspaceStatus,
};
use super::live::Live;
use super::processes::ProcessStamp;
use super::workspace::asked::Direction;
use super::workspace::record::RecordFile;
use super::{audits, books};
use crate::money::PicoUsd;
use crate::report::Failure;

impl Controlled for Live {
    fn call(self: Arc<Self>, call: Call) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        Box::pin(async move {
            match call {
                Call::Session => self.receipt().await,
                Call::Status => self.status_as(StatusCode::OK).await,
                Call::Audits => self.audits().await,
                Call::Audit { number } => self.audit(number).await,
                Call::TopUp { pico_usd } => self.top_up(pico_usd).await,
                Call::Sync(direction) => self.sync(direction).await,
                Call::Stop => {
                    self.request_stop();
                    self.status_as(StatusCode::ACCEPTED).await
                }
            }
        })
    }

    fn watch(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Feed> + Send>> {
        Box::pin(async move {
            // Watched first: what becomes of it while the status is taken is told after it.
            let (notices, events) = (self.account.watch(), self.events.watch());
            Feed {
                notices,
                events,
                status: self.status().await,
            }
        })
    }
}

impl Live {
    /// The state in short.
    pub async fn status(&self) -> Status {
        let balance = self.account.balance();
        let agent = self.agent_pid.load(Ordering::Relaxed);
        Status {
            session: self.session.clone(),
            pid: ProcessStamp::current().pid,
            state: self.state_word().to_owned(),
            cap_pico_usd: balance.cap.pico(),
            spent_pico_usd: balance.settled.pico(),
            held_pico_usd: balance.held.pico(),
            waiting: balance.waiting,
            agent_pid: (agent != 0).then_some(agent),
            link: self.link(),
            workspace: self.workspace_status().await,
        }
    }

    pub(super) fn state_word(&self) -> &'static str {
        match (self.is_pulling.load(Ordering::Relaxed), self.is_stopping()) {
            (true, _) => PULLING,
            (false, true) => "stopping",
            (false, false) => "running",
        }
    }

    /// From the record, which others change as well.
    async fn workspace_status(&self) -> Option<WorkspaceStatus> {
        let syncing = self.workspace.get()?;
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || RecordFile::read(&directory)).await;
        let record = match read {
            Ok(Ok(file)) => file?.record,
            Ok(Err(failure)) => {
                tracing::warn!(
                    why = failure.message(),
                    "the workspace's record cannot be read"
                );
                return None;
            }
            Err(_) => return None,
        };
        Some(WorkspaceStatus {
            local: record.local,
            doing: syncing.doing(),
            last_pull: record.last_pull,
            last_push: record.last_push,
        })
    }

    async fn status_as(&self, code: StatusCode) -> Answer {
        Ok((code, value_of(&self.status().await)?))
    }

    async fn top_up(&self, pico_usd: u64) -> Answer {
        let refuse = |status, message: &str| Err(Refusal::new(status, message));
        if pico_usd == 0 {
            return refuse(StatusCode::BAD_REQUEST, "a top-up of nothing");
        }
        let amount = PicoUsd::from_pico(pico_usd);
        if self.account.balance().cap.checked_add(amount).is_none() {
            let text = "the cap would be more than can be counted";
            return refuse(StatusCode::BAD_REQUEST, text);
        }
        self.account.top_up(amount).await.map_err(|error| {
            let text = format!("the ledger does not take the top-up: {error}");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
        })?;
        tracing::info!(%amount, "cap raised");
        self.status_as(StatusCode::OK).await
    }

    async fn receipt(&self) -> Answer {
        let (path, session) = (self.ledger_path.clone(), self.session.clone());
        let free = self.proxy.counters().free;
        let mut receipt = in_thread(move || books::receipt(&path, &session)).await?;
        // Those of this run are written down when it ends.
        receipt.free_requests = receipt.free_requests.saturating_add(free);
        Ok((StatusCode::OK, value_of(&receipt)?))
    }

    async fn audits(&self) -> Answer {
        let (path, session) = (self.ledger_path.clone(), self.session.clone());
        let audits = in_thread(move || audits::of_session(&path, &session)).await?;
        let value = serde_json::json!({ "session": self.session, "audits": audits });
        Ok((StatusCode::OK, value))
    }

    async fn audit(&self, number: u64) -> Answer {
        let (path, session) = (self.ledger_path.clone(), self.session.clone());
        let audits = in_thread(move || audits::of_session(&path, &session)).await?;
        let audit = audits::find(audits, number)
            .map_err(|failure| Refusal::new(StatusCode::NOT_FOUND, failure.message()))?;
        let value = serde_json::json!({ "session": self.session, "audit": audit });
        Ok((StatusCode::OK, value))
    }

    /// Pulls or pushes the workspace. It goes on when the caller leaves.
    async fn sync(&self, direction: Direction) -> Answer {
        let refuse = |failure: Failure| Err(Refusal::conflict(&failure));
        let Some(syncing) = self.workspace.get() else {
            let failure = Failure::failed(format!(
                "session {} has no workspace that is mirrored",
                self.session
            ));
            return refuse(
                failure.hint("only a session that began with --host HOST --workspace DIR has one"),
            );
        };
        let turn = syncing
            .enter(direction)
            .map_err(|failure| Refusal::conflict(&failure))?;
        if self.link() != Some(HostLink::Up) {
            let text = format!("the link to {} is lost, and tried again", syncing.host());
            return refuse(
                Failure::failed(text).hint("ask again when /v1/status says that it is up"),
            );
        }
        let done = Arc::clone(syncing).ask(turn).await;
        let done = done.map_err(|failure| Refusal::conflict(&failure))?;
        match done.refused {
            None => Ok((StatusCode::OK, done.value)),
            Some(why) => Err(Refusal::conflict(&why).with(direction.word(), done.value)),
        }
    }
}

/// Does what blocks in a thread.
async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| failed(&error))?
        .map_err(|failure| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, failure.message()))
}

fn value_of(told: &impl Serialize) -> Result<serde_json::Value, Refusal> {
    serde_json::to_value(told).map_err(|error| failed(&error))
}

fn failed(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}
