//! Servers that let a script use only the keys that its call names.

use super::Redis;
use super::quarantine::EpochCheck;
use super::script::Call;
use super::server_info::ServerInfo;
use super::session::Session;
use redis::{RedisError, Value};
use std::sync::atomic::{AtomicBool, Ordering};

/// In the error of such a server.
const UNDECLARED: &str = "undeclared key";

impl Redis {
    pub(super) fn epoch_check<'a>(&'a self, session: &'a Session) -> EpochCheck<'a> {
        let ServerInfo { run_id, derives_keys, .. } = &session.server_info;
        self.quarantine()
            .map_or_else(|| EpochCheck::without_marker(run_id), |quarantine| quarantine.epoch_check(run_id))
            .deriving_keys(derives_keys.load(Ordering::Relaxed))
            .guarding_slot(self.link.target.cluster.is_some())
    }

    /// Sends a call that may name few keys. If the server refuses the others, all calls of this session name all keys from then on,
    /// also this one: repeating it is harmless.
    pub(super) async fn call_naming_keys(
        &self,
        session: &Session,
        call: impl Fn(EpochCheck<'_>) -> Call,
    ) -> Result<Value, RedisError> {
        let answer = self.link.call(session, &call(self.epoch_check(session))).await;
        match answer {
            Err(error) if refuses_others(&session.server_info.derives_keys, &error) => {
                tracing::debug!(node = self.link.node(), %error, "scripts may only use the keys that a call names");
                // Boxed, because it is rare and large.
                Box::pin(self.link.call(session, &call(self.epoch_check(session)))).await
            }
            answer => answer,
        }
    }
}

/// Whether the error shows this, and it was not known.
fn refuses_others(derives_keys: &AtomicBool, error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(UNDECLARED)) && derives_keys.swap(false, Ordering::Relaxed)
}
