use super::claim::ClaimRequest;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::wait_status::WaitStatus;
use fencelock::{Client, Error, Guards, SlotGuard};
use std::sync::Arc;
use std::time::Duration;

/// Waits for one of the slots of `run --slots`.
pub(super) async fn acquire(
    plan: &Plan,
    slots: u32,
    request: ClaimRequest<'_>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<(Guards, u32), Error> {
    let held = acquire_once(&plan.keys[0], slots, request, client, progress).await;
    match &held {
        Ok(_) => progress.done("was acquired"),
        Err(_) => progress.clear(),
    }
    let held = held?;
    let slot = held.slot();
    Ok((held.into_guard().into(), slot))
}

async fn acquire_once(
    key: &str,
    slots: u32,
    request: ClaimRequest<'_>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<SlotGuard, Error> {
    let mut set = client.slots(key, slots).ttl(request.ttl);
    if let Some(wait) = request.wait {
        set = set.wait(wait);
    }
    // Without a wait, the error reports the holder.
    if request.wait != Some(Duration::ZERO) {
        let (waits, troubles) = (Arc::clone(progress), Arc::clone(progress));
        set = set.on_wait(move |waiting| waits.waiting(&WaitStatus::from(waiting)));
        set = set.on_trouble(move |cause| troubles.trouble(cause));
    }
    if let Some(label) = request.label {
        set = set.label(label);
    }
    set.acquire().await
}
