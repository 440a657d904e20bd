//! Servers that let a script use only the keys that its call declares.

use super::Redis;
use crate::connection::server_info::ServerInfo;
use crate::connection::session::Session;
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::script::Call;
use redis::{RedisError, Value};
use std::sync::atomic::{AtomicBool, Ordering};

/// Part of the error of such a server.
const UNDECLARED: &str = "undeclared key";

impl Redis {
    pub(crate) fn epoch_check<'a>(&'a self, session: &'a Session) -> EpochCheck<'a> {
        let ServerInfo { run_id, derives_keys, .. } = &session.server_info;
        self.quarantine()
            .map_or_else(|| EpochCheck::without_marker(run_id), |quarantine| quarantine.epoch_check(run_id))
            .deriving_keys(derives_keys.load(Ordering::Relaxed) && !self.in_trial)
            .guarding_slot(self.link.target.cluster.is_some())
    }

    /// Sends a call that may declare only some of its keys. If the server rejects undeclared keys, this call is repeated, which
    /// is harmless, and from then on all calls of this session declare all keys.
    pub(crate) async fn call_naming_keys(
        &self,
        session: &Session,
        call: impl Fn(EpochCheck<'_>) -> Call,
    ) -> Result<Value, RedisError> {
        let answer = self.send_script(session, &call(self.epoch_check(session))).await;
        match answer {
            Err(error) if refuses_others(&session.server_info.derives_keys, &error) => {
                tracing::debug!(node = self.link.node(), %error, "the server rejects undeclared keys in scripts");
                // Boxed, because it is rare and large.
                Box::pin(self.send_script(session, &call(self.epoch_check(session)))).await
            }
            answer => answer,
        }
    }
}

/// Whether the error shows this for the first time.
fn refuses_others(derives_keys: &AtomicBool, error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(UNDECLARED)) && derives_keys.swap(false, Ordering::Relaxed)
}
