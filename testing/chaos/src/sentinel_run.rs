//! A run on a master with two replicas and three sentinels.

use crate::Failure;
use crate::control::{ControlHolds, promoted_by_sentinels};
use crate::machine::durable_options;
use crate::nemesis::SentinelNemesis;
use crate::nodes::held_at;
use crate::recorder::Recorder;
use crate::resumption;
use crate::run::{self, Settings};
use crate::workload;
use fencelock::blocking::Client;
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
    run::trust(settings, &url)?;
    run::expect(settings, &recorder);
    let workers = run::spawn_workers(settings, &url, resource, histories)?;
    let keys = workload::keys_on_servers(settings.keys, settings.topology);
    let client = Client::connect(&url)?;
    let mut nemesis = SentinelNemesis::new(settings, sentinels, workers, keys, client, recorder);
    run::play(settings, |step| {
        nemesis.inject(step)?;
        nemesis.recover(step);
        Ok(())
    })?;
    run::await_expected(settings, &nemesis.workers)?;
    run::lead_last(settings, &nemesis.client, &nemesis.recorder, histories)?;
    let SentinelNemesis { sentinels, master, workers, client, keys, recorder, .. } = nemesis;
    let master = &sentinels.servers[master];
    let keys: Vec<_> = keys.into_iter().chain([resumption::KEY.to_owned()]).collect();
    run::finish(settings, workers, client, &keys, &recorder, &|key| held_at(master, key).into_iter().collect())
}

fn start() -> Result<Sentinels, Failure> {
    let servers = (0..SERVERS).map(|_| durable_options().start()).collect::<Result<_, _>>()?;
    Ok(Sentinels::of(servers)?)
}
