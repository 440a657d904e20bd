//! A run on a master with two replicas and three sentinels.

use crate::Failure;
use crate::connect::connect;
use crate::control::{ControlHolds, promoted_by_sentinels};
use crate::machine::durable_options;
use crate::nemesis::SentinelNemesis;
use crate::nodes::held_at;
use crate::phases::{self, Settings};
use crate::recorder::Recorder;
use crate::resumption;
use crate::workload;
use fencelock_testkit::Sentinels;
use std::path::Path;
use std::sync::Arc;

const SERVERS: usize = 3;

pub(crate) fn perform(
    settings: &Settings,
    resource: u16,
    histories: &Path,
    recorder: Arc<Recorder>,
) -> Result<(), Failure> {
    let mut sentinels = start()?;
    let url = sentinels.url(settings.topology.trusting());
    let holds = ControlHolds { url: &url, recorder: &recorder, resource };
    promoted_by_sentinels(&holds, &mut sentinels)?;
    holds.common()?;

    let url = sentinels.url(&settings.topology.options(settings.ttl));
    phases::trust(settings, &url)?;
    phases::expect(settings, &recorder);
    let workers = phases::spawn_workers(settings, &url, resource, histories)?;
    let keys = workload::keys_on_servers(settings.keys, settings.topology);
    let client = connect(&url)?;
    let mut nemesis = SentinelNemesis::new(settings, sentinels, workers, keys, client, recorder);
    phases::play(settings, |step| {
        nemesis.inject(step)?;
        nemesis.recover(step);
        Ok(())
    })?;
    phases::await_expected(settings, &nemesis.workers)?;
    phases::lead_last(settings, &nemesis.client, &nemesis.recorder, histories)?;
    let SentinelNemesis { sentinels, master, workers, client, keys, recorder, .. } = nemesis;
    let master = &sentinels.servers[master];
    let keys: Vec<_> = keys.into_iter().chain([resumption::KEY.to_owned()]).collect();
    phases::finish(settings, workers, client, &keys, &recorder, &|key| held_at(master, key).into_iter().collect())
}

fn start() -> Result<Sentinels, Failure> {
    let servers = (0..SERVERS).map(|_| durable_options().start()).collect::<Result<_, _>>()?;
    Ok(Sentinels::of(servers)?)
}
