use super::holds::{ControlHolds, LEASE, SHORT_LEASE};
use crate::Failure;
use crate::connect::connect;
use fencelock_testkit::ClusterNodes;

/// A slot is assigned to another node, and its keys are lost.
pub(crate) fn moved_without_its_keys(holds: &ControlHolds<'_>, cluster: &ClusterNodes) -> Result<(), Failure> {
    let key = "control-forgotten";
    holds.announce(key, "C3");
    let client = connect(holds.url)?;
    holds.take(&client, "sleeper", key, LEASE)?;
    let slot = cluster.slot_of(key);
    let owner = cluster.owner_of(slot);
    cluster.nodes[owner].command(&["FLUSHALL"]);
    let target = cluster.masters().into_iter().find(|master| *master != owner);
    cluster.move_slots([slot], target.ok_or("there is one master only")?)?;
    holds.take(&client, "successor", key, SHORT_LEASE)?;
    cluster.wait_until_settled();
    Ok(())
}

/// A replica that has not received a lock is promoted.
pub(crate) fn promoted_by_the_cluster(holds: &ControlHolds<'_>, cluster: &mut ClusterNodes) -> Result<(), Failure> {
    let key = "control-promoted";
    holds.announce(key, "C3");
    let master = cluster.owner_of(cluster.slot_of(key));
    let replica = cluster.replica_of(master).ok_or("a master without a replica")?;
    cluster.stop_replication(replica);
    holds.take(&connect(holds.url)?, "sleeper", key, LEASE)?;
    cluster.nodes[master].kill();
    cluster.wait_for_another_than(master);
    cluster.resume_replication(replica);
    cluster.nodes[master].restart()?;
    cluster.wait_until_settled();
    holds.take(&connect(holds.url)?, "successor", key, SHORT_LEASE)?;
    Ok(())
}

/// A master with a lock that its replica has not received is disconnected from the other nodes. Another client gets the
/// lock from the replica.
pub(crate) fn held_by_a_master_alone(holds: &ControlHolds<'_>, cluster: &ClusterNodes) -> Result<(), Failure> {
    let key = "control-cut-off";
    holds.announce(key, "C3");
    let master = cluster.owner_of(cluster.slot_of(key));
    cluster.stop_replication(cluster.replica_of(master).ok_or("a master without a replica")?);
    holds.take(&connect(holds.url)?, "sleeper", key, LEASE)?;
    cluster.cut_off(master);
    cluster.wait_for_another_than(master);
    holds.take(&connect(holds.url)?, "successor", key, SHORT_LEASE)?;
    cluster.reconnect();
    cluster.wait_until_settled();
    Ok(())
}
