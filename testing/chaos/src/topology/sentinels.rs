//! A master with two replicas and three sentinels.

use crate::Failure;
use crate::control::promoted_by_sentinels;
use crate::machine::durable_options;
use crate::nemesis::SentinelNemesis;
use crate::nodes::held_at;
use crate::phases::{self, Clients, Frame};
use crate::resumption;
use fencelock_testkit::Sentinels;

const SERVERS: usize = 3;

pub(super) fn perform(run: &Frame<'_>) -> Result<(), Failure> {
    let settings = run.settings;
    let mut sentinels = start()?;
    let url = sentinels.url(settings.topology.trusting());
    let holds = run.holds(&url);
    promoted_by_sentinels(&holds, &mut sentinels)?;
    holds.common()?;

    let url = sentinels.url(&settings.topology.options(settings.ttl));
    let clients = Clients::start(run, &url)?;
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
    clients.finish(run, &|key| held_at(master, key).into_iter().collect())
}

fn start() -> Result<Sentinels, Failure> {
    let servers = (0..SERVERS).map(|_| durable_options().start()).collect::<Result<_, _>>()?;
    Ok(Sentinels::of(servers)?)
}
