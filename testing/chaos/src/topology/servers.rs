//! Servers of their own: one, a quorum, or a master and a replica.

use crate::Failure;
use crate::control::Control;
use crate::fault::Fault;
use crate::foreign::ForeignClient;
use crate::nemesis::{Nemesis, jump};
use crate::nodes::Nodes;
use crate::phases::{self, Clients, Frame};
use fastrand::Rng;
use std::sync::Arc;

pub(super) fn perform(run: &Frame<'_>) -> Result<(), Failure> {
    let settings = run.settings;
    let mut nodes = Nodes::start(run.dir, settings.topology)?;
    let trusting = nodes.url(settings.topology.trusting());
    let holds = run.holds(&trusting);
    Control { nodes: &mut nodes, holds }.run()?;
    // Controls start with healthy servers and correct clocks.
    for node in &mut nodes.all {
        node.machine.server.restart_empty()?;
    }
    let url = nodes.url(&settings.topology.options(settings.ttl));
    let clients = Clients::start(run, &url)?;
    let foreign = nodes.all.iter().map(|node| node.direct_access.clone()).collect();
    let rng = Rng::with_seed(settings.seed ^ 0xf0);
    let foreign_client =
        ForeignClient::start(foreign, clients.keys.clone(), settings.ttl, Arc::clone(&clients.recorder), rng);
    let mut nemesis = Nemesis { nodes, clients, whole_at_us: 0 };
    phases::play(settings, |step| {
        nemesis.inject(step)?;
        nemesis.clients.recover(step, nemesis.whole_at_us);
        // A token granted under a wrong clock may be ahead of the time by the error of the clock. Until then, a server
        // that loses its data could grant it again: only a quorum tolerates this.
        if matches!(step.fault, Fault::ClockForward) {
            std::thread::sleep(jump(step.fault, settings.ttl));
        }
        Ok(())
    })?;
    let Nemesis { nodes, clients, .. } = nemesis;
    clients.await_expected(settings)?;
    drop(foreign_client);
    clients.finish(run, &|key| nodes.inspect(key))
}
