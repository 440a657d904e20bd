//! A run on PostgreSQL.

use crate::Failure;
use crate::connect::connect;
use crate::control::ControlHolds;
use crate::database::Database;
use crate::nemesis::PostgresNemesis;
use crate::phases::{self, Settings};
use crate::recorder::Recorder;
use crate::topology::Pooler;
use crate::workload;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn perform(
    settings: &Settings,
    pooler: Pooler,
    resource: u16,
    histories: &Path,
    recorder: Arc<Recorder>,
) -> Result<(), Failure> {
    let database = Database::start(pooler)?;
    let url = database.url(settings.topology.trusting());
    let holds = ControlHolds { url: &url, recorder: &recorder, resource };
    holds.forgotten(|key| {
        let end = format!("UPDATE fencelock.locks SET ends = 0 WHERE key = '{key}'");
        database.server.try_sql("postgres", &end).map(drop)
    })?;
    holds.common()?;

    let url = database.url(&settings.topology.options(settings.ttl));
    phases::trust(settings, &url)?;
    phases::expect(settings, &recorder);
    let workers = phases::spawn_workers(settings, &url, resource, histories)?;
    let keys = workload::keys_on_servers(settings.keys, settings.topology);
    let client = connect(&url)?;
    let mut nemesis = PostgresNemesis { ttl: settings.ttl, database, workers, keys, client, recorder };
    phases::play(settings, |step| {
        nemesis.inject(step, settings.topology)?;
        nemesis.recover(step, settings.topology);
        Ok(())
    })?;
    phases::await_expected(settings, &nemesis.workers)?;
    phases::lead_last(settings, &nemesis.client, &nemesis.recorder, histories)?;
    let PostgresNemesis { database, workers, client, keys, recorder, .. } = nemesis;
    phases::finish(settings, workers, client, &keys, &recorder, &|key| database.held(key))
}
