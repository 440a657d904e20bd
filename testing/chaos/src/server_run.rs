//! A run on servers of their own: one, a quorum, or a master and a replica.

use crate::Failure;
use crate::connect::connect;
use crate::control::{Control, ControlHolds};
use crate::fault::Fault;
use crate::foreign::ForeignClient;
use crate::nemesis::{self, Nemesis};
use crate::nodes::Nodes;
use crate::phases::{self, Settings};
use crate::plan::ScheduledFault;
use crate::recorder::{Recorder, now};
use crate::recovery::{self, Recovery};
use crate::workload;
use fastrand::Rng;
use fencelock::blocking::Client;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn perform(
    settings: &Settings,
    dir: &Path,
    resource: u16,
    histories: &Path,
    recorder: Arc<Recorder>,
) -> Result<(), Failure> {
    let mut nodes = Nodes::start(dir, settings.topology)?;
    let trusting = nodes.url(settings.topology.trusting());
    let holds = ControlHolds { url: &trusting, recorder: &recorder, resource };
    Control { nodes: &mut nodes, holds }.run()?;
    // Controls start with healthy servers and correct clocks.
    for node in &mut nodes.all {
        node.machine.server.restart_empty()?;
    }
    let keys = workload::keys_on_servers(settings.keys, settings.topology);
    let url = nodes.url(&settings.topology.options(settings.ttl));
    phases::trust(settings, &url)?;
    phases::expect(settings, &recorder);
    let foreign = nodes.all.iter().map(|node| node.direct_access.clone()).collect();
    let workers = phases::spawn_workers(settings, &url, resource, histories)?;
    let rng = Rng::with_seed(settings.seed ^ 0xf0);
    let foreign_client = ForeignClient::start(foreign, keys.clone(), settings.ttl, Arc::clone(&recorder), rng);
    let mut nemesis =
        Nemesis { topology: settings.topology, nodes, workers, keys, ttl: settings.ttl, recorder, whole_at_us: 0 };
    let client = connect(&url)?;
    phases::play(settings, |step| {
        nemesis.inject(step)?;
        recover(&nemesis, &client, step);
        Ok(())
    })?;
    phases::await_expected(settings, &nemesis.workers)?;
    drop(foreign_client);
    phases::lead_last(settings, &client, &nemesis.recorder, histories)?;
    let Nemesis { nodes, workers, keys, recorder, .. } = nemesis;
    phases::finish(settings, workers, client, &keys, &recorder, &|key| nodes.inspect(key))
}

/// After the end of a fault, each key must be granted soon.
fn recover(nemesis: &Nemesis, client: &Client, step: &ScheduledFault) {
    let Nemesis { topology, keys, ttl, recorder, .. } = nemesis;
    let healed = now();
    let jump = nemesis::jump(step.fault, *ttl);
    let bound = recovery::bound(*ttl, healed, nemesis.whole_at_us) + jump;
    let recovery = Recovery { client, recorder, keys, ttl: *ttl, topology: *topology };
    recovery.demand(step.fault.name(), healed, bound);
    recovery.probe(bound);
    // A token granted under a wrong clock may be ahead of the time by the error of the clock. Until then, a server
    // that loses its data could grant it again: only a quorum tolerates this.
    if matches!(step.fault, Fault::ClockForward) {
        std::thread::sleep(jump);
    }
}
