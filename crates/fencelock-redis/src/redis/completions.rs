//! Completions on one server.

use super::quarantine::Refusal;
use super::reply::Reply;
use super::script::{self, COMPLETION_KEY};
use super::{Redis, script::Call};
use fencelock_core::{
    ClearCompletion, Completion, CompletionRead, Done, Fault, HolderId, Key, Unknown, WriteCompletion, side_key,
};
use redis::Value;

impl Redis {
    pub(super) async fn read_stored(&self, key: &Key) -> Result<CompletionRead, Unknown> {
        let node = self.link.node();
        let wire = self.link.target.wire(key);
        let answer = self.call(|epoch_check| script::read_completion(&wire, epoch_check)).await?;
        Refusal::check(node, self.quarantine(), &answer)?;
        let mut reply = Reply::new(node, answer)?;
        let (text, kind, now) = (reply.text()?, reply.text()?, reply.text()?);
        // Windows are computed from it.
        let now_micros = Some(&now).filter(|now| now.len() <= 16).and_then(|now| now.parse().ok());
        let now_micros = now_micros.ok_or_else(|| Unknown::new(node, Fault::Other, format!("its time is {now:?}")))?;
        let completion = match &*text {
            "" if kind.is_empty() => None,
            _ => Some(self.read_text(&wire, &text, &kind)?),
        };
        Ok(CompletionRead::new(completion, now_micros))
    }

    pub(super) async fn write_stored(
        &self,
        key: &Key,
        holder: Option<&HolderId>,
        completion: &Completion,
    ) -> Result<WriteCompletion, Unknown> {
        let wire = self.link.target.wire(key);
        let answer = self.call_acked(script::write_completion(&wire, holder, completion)).await?;
        let mut reply = Reply::new(self.link.node(), answer)?;
        match &*reply.text()? {
            "written" => Ok(WriteCompletion::Written),
            "absent" => Ok(WriteCompletion::NotHeld),
            _ => {
                let kind = reply.text()?;
                Err(self.unreadable(&wire, &kind, &reply.text()?))
            }
        }
    }

    /// The server forgets a completion an hour after its end: a caller with longer windows must name its own.
    pub(super) async fn confirm_stored(&self, key: &Key, done: &Done) -> Result<(), Unknown> {
        if done.outlasts_its_completion() {
            self.write_stored(key, None, &done.kept()).await?;
        }
        Ok(())
    }

    pub(super) async fn clear_stored(&self, key: &Key, seen: &Completion) -> Result<ClearCompletion, Unknown> {
        let call = script::clear_completion(&self.link.target.wire(key), seen);
        let mut reply = Reply::new(self.link.node(), self.call_acked(call).await?)?;
        Ok(match &*reply.text()? {
            "cleared" => ClearCompletion::Cleared,
            "absent" => ClearCompletion::Absent,
            _ => ClearCompletion::Changed,
        })
    }

    /// With `acks`, the write counts if enough replicas confirm it.
    async fn call_acked(&self, call: Call) -> Result<Value, Unknown> {
        let session = self.session().await?;
        let (Some(writer), Some(acks)) = (session.acks.as_ref().filter(|_| !self.in_trial), self.link.target.acks)
        else {
            return self.call_over(&session, &call).await;
        };
        let sent = writer.send(vec![call]).await;
        self.link.check(&session);
        let (mut answers, acked) = sent.map_err(|error| self.unknown(&error))?;
        let answer = answers.pop().unwrap_or(Ok(Value::Nil)).map_err(|error| self.unknown(&error))?;
        acks.enough(self.link.node(), acked.map_err(|error| self.unknown(&error))?)?;
        session.ensure_master(self.link.node()).await?;
        Ok(answer)
    }

    fn read_text(&self, wire: &str, text: &str, kind: &str) -> Result<Completion, Unknown> {
        let completion = Some(text).filter(|_| kind.is_empty()).and_then(Completion::from_wire);
        completion.ok_or_else(|| self.unreadable(wire, if kind.is_empty() { "string" } else { kind }, text))
    }

    fn unreadable(&self, wire: &str, kind: &str, begins: &str) -> Unknown {
        let detail = format!(
            "{}; the work was not started and nothing was changed: use a later version of fencelock, or DEL it if the work may run again",
            described(wire, kind, begins)
        );
        Unknown::new(self.link.node(), Fault::Unsupported, detail)
    }
}

/// An unreadable completion.
pub(super) fn described(wire: &str, kind: &str, begins: &str) -> String {
    let (name, begins) = (side_key(wire, COMPLETION_KEY), begins.chars().take(60).collect::<String>());
    format!("{name:?} cannot be read by this version: a {kind}, {begins:?}")
}
