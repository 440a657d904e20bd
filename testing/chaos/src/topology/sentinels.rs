//! A master with two replicas and three sentinels.

use crate::Failure;
use crate::control::{ControlHolds, promoted_by_sentinels};
use crate::machine::durable_options;
use crate::nemesis::SentinelNemesis;
use crate::nodes::held_at;
use crate::phases::{self, Clients, Settings};
use crate::recorder::Recorder;
use crate::resumption;
use fencelock_testkit::Sentinels;
use std::path::Path;
use std::sync::Arc;

const SERVERS: usize = 3;

pub(super) fn perform(
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
    let clients = Clients::start(settings, &url, resource, histories, recorder)?;
    let mut nemesis = SentinelNemesis::new(sentinels, clients);
    phases::play(settings, |step| {
        nemesis.inject(step)?;
        nemesis.recover(step);
        Ok(())
    })?;
    let SentinelNemesis { sentinels, master, mut clients, .. } = nemesis;
    clients.await_expected(settings)?;
    clients.keys.push(resumption::KEY.to_owned());
    let master = &sentinels.servers[master];
    clients.finish(settings, histories, &|key| held_at(master, key).into_iter().collect())
}

fn start() -> Result<Sentinels, Failure> {
    let servers = (0..SERVERS).map(|_| durable_options().start()).collect::<Result<_, _>>()?;
    Ok(Sentinels::of(servers)?)
}
