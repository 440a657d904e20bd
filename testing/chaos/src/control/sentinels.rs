use super::holds::{ControlHolds, LEASE, SHORT_LEASE};
use crate::Failure;
use crate::connect::connect;
use crate::nemesis::isolate_replicas;
use fencelock_testkit::Sentinels;

/// Sentinels promote a replica that has not received a lock.
pub(crate) fn promoted_by_sentinels(holds: &ControlHolds<'_>, sentinels: &mut Sentinels) -> Result<(), Failure> {
    let (key, old) = ("control-promoted", sentinels.master());
    holds.announce(key, "C3");
    isolate_replicas(sentinels, old);
    holds.take(&connect(holds.url)?, "sleeper", key, LEASE)?;
    sentinels.servers[old].kill();
    sentinels.wait_for_another_than(old);
    sentinels.servers[old].restart_empty()?;
    holds.take(&connect(holds.url)?, "successor", key, SHORT_LEASE)?;
    sentinels.wait_until_settled();
    Ok(())
}
