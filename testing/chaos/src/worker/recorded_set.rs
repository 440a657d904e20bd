use super::recorded_hold::{Claim, RecordedHold};
use crate::Failure;
use crate::history::{Op, Outcome};
use crate::resource::Writer;
use fencelock::{Client, Error, Guards, HeldAll, HolderId, LossReason, Released};
use std::time::Duration;

/// Several keys that are held together, and the data to record about each. In the order of the caller.
#[derive(Debug)]
pub(crate) struct RecordedSet {
    pub(crate) holds: Vec<RecordedHold>,
    /// Whether the loss of each key is recorded.
    lost: Vec<bool>,
}

impl RecordedSet {
    /// Records the acquisition of all keys.
    pub(crate) fn take(guards: &Guards, claim: &Claim<'_>) -> Self {
        let keys: Vec<String> = guards.keys().iter().map(ToString::to_string).collect();
        let held = guards.held();
        let parts = held.parts().iter().zip(guards.holders());
        let (holds, mut lines): (Vec<_>, Vec<_>) =
            parts.map(|(held, id)| RecordedHold::begin(Op::Acquire, held, id.to_string(), claim)).unzip();
        for line in &mut lines {
            line.keys.clone_from(&keys);
        }
        claim.recorder.note_all(&lines);
        holds.iter().for_each(RecordedHold::observe_sharing);
        claim.recorder.seen("several keys held together");
        if holds.len() > 2 {
            claim.recorder.seen("more than two keys held together");
        }
        Self { lost: vec![false; holds.len()], holds }
    }

    /// Accesses the resource with the token of each key.
    pub(crate) async fn access(&self, writer: &mut Writer) -> Result<(), Failure> {
        for hold in &self.holds {
            hold.access(writer).await?;
        }
        Ok(())
    }

    /// Checks which keys the watchdog has renewed, and which are lost.
    pub(crate) fn record_renewal(&mut self, held: &HeldAll) {
        for (index, part) in held.parts().iter().enumerate() {
            self.holds[index].record_renewal(part);
            if let Err(Error::Lost { key, reason, .. }) = part.check() {
                self.lost(key.as_str(), &reason);
            }
        }
    }

    /// Records what the library says about the set. The three ways to ask must give one answer.
    pub(crate) async fn ask(&self, guards: &Guards) {
        let hold = &self.holds[0];
        let invoke_us = hold.recorder.now();
        let is_lost = tokio::time::timeout(Duration::ZERO, guards.lost()).await.is_ok();
        if guards.is_held() || guards.check().is_ok() || !is_lost {
            hold.recorder.note(&hold.line(Op::Held, invoke_us, hold.recorder.now()));
        }
    }

    /// Records the loss of a key, once.
    pub(crate) fn lost(&mut self, key: &str, why: &LossReason) {
        let Some(index) = self.holds.iter().position(|hold| hold.key == key) else { return };
        if !std::mem::replace(&mut self.lost[index], true) {
            self.holds[index].lost(why);
        }
    }

    /// Releases one of the keys at the server, without its guard. Whether the server has confirmed that.
    pub(crate) async fn end_one(&self, index: usize, client: &Client, id: HolderId) -> bool {
        let hold = &self.holds[index];
        let invoke_us = hold.begin_release();
        let answer = client.release(&hold.key, id).await;
        let line = hold.line(Op::Release, invoke_us, hold.recorder.now()).what("without its guard");
        let is_released = matches!(answer, Ok(Released::Released));
        hold.recorder.note(&line.result(if is_released { Outcome::Ok } else { Outcome::Info }));
        is_released
    }

    /// Records the loss of the key that [`RecordedSet::end_one`] has ended. It proves nothing about faults.
    pub(crate) fn lost_as_ended(&mut self, index: usize, why: &LossReason) {
        self.lost[index] = true;
        self.holds[index].note_loss(why);
        self.holds[index].recorder.seen("several keys of which one was released");
    }

    /// Releases all keys.
    pub(crate) async fn release(mut self, guards: Guards) {
        let invoked: Vec<u64> = self.holds.iter().map(RecordedHold::begin_release).collect();
        let answer = guards.release().await;
        let losses = answer.as_ref().err().map(Error::losses).unwrap_or_default();
        for ((hold, is_lost), invoke_us) in self.holds.iter().zip(&self.lost).zip(invoked) {
            let line = hold.line(Op::Release, invoke_us, hold.recorder.now());
            let loss = losses.iter().find(|loss| loss.key.as_str() == hold.key);
            hold.recorder.note(&match (&answer, loss) {
                (_, Some(loss)) => line.result(Outcome::Fail).what(loss.reason.to_string()),
                // The release of this key may not be confirmed.
                (Err(Error::Lost { .. }), None) if !is_lost => line.result(Outcome::Info).what("another key was lost"),
                (Ok(()) | Err(Error::Lost { .. }), None) => line,
                (Err(error), None) => line.result(Outcome::Info).what(format!("{error:#}")),
            });
        }
        for loss in &losses {
            self.lost(loss.key.as_str(), &loss.reason);
        }
    }

    /// Drops the guards, so that the keys are released in the background.
    pub(crate) fn drop(self, guards: Guards) {
        let invoked: Vec<u64> = self.holds.iter().map(RecordedHold::begin_release).collect();
        drop(guards);
        for (hold, invoke_us) in self.holds.iter().zip(invoked) {
            hold.recorder
                .note(&hold.line(Op::Release, invoke_us, hold.recorder.now()).result(Outcome::Info).what("dropped"));
        }
    }
}
