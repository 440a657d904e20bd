//! What is asked of a keeper, and what it knows of a hold.

use crate::check_open_files;
use crate::commands::claim::{Claimed, claim};
use crate::commands::run::{refused, wait_for_full_lease};
use crate::exit::Failure;
use crate::json::acquired;
use crate::plan::Plan;
use crate::progress::{Progress, Shown};
use crate::report::Reporter;
use fencelock::{Client, Guard, Guards, HolderId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

/// Where a keeper shows the progress of a request.
pub(crate) type Shows = UnboundedSender<Shown>;

/// Who asks a keeper for locks, and how it is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The process that they are for.
    pub(super) pid: u32,
    /// Of the URL.
    pub(super) options: String,
    /// As the user gave it. That of the plan also names the owner.
    pub(super) label: Option<String>,
    pub(super) report: Reporter,
    /// Whether progress is drawn where the request comes from.
    pub(super) draws: bool,
}

impl Asked {
    /// Waits for the locks. Dropping the future leaves nothing behind.
    pub(crate) async fn claim(&self, plan: &Plan, client: &Client, shows: Shows) -> Result<Claimed, Failure> {
        check_open_files()?;
        let progress = Arc::new(Progress::of_request(&plan.keys, self.report, self.draws, shows));
        let claimed = match claim(plan, client, &progress).await {
            Ok(claimed) => claimed,
            Err(error) => return Err(refused(plan, error, client).await),
        };
        if let Claimed::Held { guards, .. } = &claimed {
            wait_for_full_lease(guards, plan).await?;
        }
        Ok(claimed)
    }

    /// One line for each lock, as without `--while-pid`.
    pub(crate) fn answer(
        &self,
        (plan, owner): (&Plan, Option<&str>),
        guards: &Guards<Arc<Guard>>,
        slot: Option<u32>,
    ) -> String {
        let left = guards.remaining();
        // The last one of a path is not shared with others.
        let first = if plan.tree.is_some() { guards.parts().len().saturating_sub(1) } else { 0 };
        let lines = guards.parts()[first..].iter().map(|guard| {
            let (key, holder, fence) = (guard.key(), guard.holder(), guard.fencing_token());
            if self.report.json {
                let mut answer = acquired(key, (holder, fence, plan.mode), plan.ttl, left);
                (answer["while_pid"], answer["slot"]) = (self.pid.into(), slot.into());
                answer["name"] = owner.filter(|owner| !owner.is_empty()).into();
                return format!("{answer}\n");
            }
            slot.map_or_else(|| format!("{holder}\n"), |slot| format!("{holder} {slot}\n"))
        });
        lines.collect()
    }
}

/// What a keeper knows of a hold.
#[derive(Debug)]
pub(crate) struct Keeping {
    /// In the order of the request. That of a slot has its number; a path is named.
    pub(super) keys: Vec<String>,
    pub(super) holders: Vec<HolderId>,
    /// The connections that were answered with it.
    pub(crate) sessions: BTreeSet<u64>,
    /// The answer was delivered: the hold is that of the process.
    pub(super) is_kept: bool,
    /// The process was sent TERM.
    pub(super) is_signalled: bool,
    /// Waits for the loss.
    watch: AbortHandle,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Keeping {
    /// What this connection has asked for.
    pub(crate) fn new(guards: &Guards<Arc<Guard>>, plan: &Plan, session: u64, watch: AbortHandle) -> Self {
        let names = plan.tree.as_ref().map(|tree| vec![tree.as_str().to_owned()]);
        let keys = names.unwrap_or_else(|| guards.keys().into_iter().map(ToString::to_string).collect());
        let holders = guards.parts().iter().map(|guard| guard.holder()).collect();
        Self { keys, holders, sessions: [session].into(), is_kept: false, is_signalled: false, watch }
    }

    /// Whether nobody needs it after the end of a connection.
    pub(crate) fn leave(&mut self, session: u64) -> bool {
        self.sessions.remove(&session);
        !self.is_kept && self.sessions.is_empty()
    }
}
