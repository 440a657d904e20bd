//! A run on a store of objects, which is started before.

use crate::Failure;
use crate::connect::connect;
use crate::control::ControlHolds;
use crate::fault::Fault;
use crate::history::{HistoryLine, Op};
use crate::nemesis::{ClientNemesis, disturb, lose_replies, repeat};
use crate::phases::{self, Settings};
use crate::plan::ScheduledFault;
use crate::recorder::{Recorder, now};
use crate::recovery::{self, Recovery};
use crate::workers::Workers;
use crate::workload;
use fencelock::blocking::Client;
use fencelock_testkit::{Proxy, Then, carry_google_uploads};
use std::net::TcpListener;
use std::path::Path;

const ENDPOINT: &str = "endpoint=http://127.0.0.1:";

/// The store, behind a proxy.
#[derive(Debug)]
struct Store {
    proxy: Proxy,
    url: String,
    /// To the store itself.
    viewer: Client,
}

impl Store {
    fn at(url: &str) -> Result<Self, Failure> {
        let (before, after) = url.split_once(ENDPOINT).ok_or("the URL has no endpoint=http://127.0.0.1:PORT")?;
        let (port, options) = after.split_once('&').unwrap_or((after, ""));
        let mut port = port.parse()?;
        if url.starts_with("gs:") {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let server = std::mem::replace(&mut port, listener.local_addr()?.port());
            carry_google_uploads(listener, server);
        }
        let proxy = Proxy::to(port)?;
        let to = |port: u16| format!("{before}{ENDPOINT}{port}&{options}");
        Ok(Self { url: to(proxy.port()), viewer: connect(&format!("{}&skew=0s", to(port)))?, proxy })
    }

    fn url(&self, options: &str) -> String {
        format!("{}&{options}", self.url)
    }

    /// The holder of a key with its owner, and the rest of its lease in milliseconds.
    fn held(&self, key: &str) -> Vec<(String, i64)> {
        let Ok(Some(holding)) = self.viewer.inspect(key) else { return Vec::new() };
        let info = holding.first();
        let left = info.expiry.span().map_or(i64::MAX, |left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
        let id = info.holder_id().map(|id| id.to_string()).unwrap_or_default();
        vec![(format!("{id} {} ", info.occupant), left)]
    }
}

pub(crate) fn perform(
    settings: &Settings,
    resource: u16,
    histories: &Path,
    recorder: &Recorder,
) -> Result<(), Failure> {
    let store = Store::at(&settings.objects)?;
    let url = store.url(settings.topology.trusting());
    let holds = ControlHolds { url: &url, recorder, resource };
    holds.ended("control-forgotten", |key| {
        let held = store.viewer.inspect(key)?.ok_or("the key is not held")?;
        store.viewer.evict(&held)?;
        Ok(())
    })?;
    holds.common()?;

    let url = store.url(&settings.topology.options(settings.ttl));
    phases::trust(settings, &url)?;
    phases::expect(settings, recorder);
    let mut workers = phases::spawn_workers(settings, &url, resource, histories)?;
    let keys = workload::keys_on_servers(settings.keys, settings.topology);
    let client = connect(&url)?;
    let recovery = Recovery { client: &client, recorder, keys: &keys, ttl: settings.ttl, topology: settings.topology };
    phases::play(settings, |step| {
        inject(step, &store, &mut workers, &recovery)?;
        let (healed, bound) = (now(), recovery::bound(settings.ttl, now(), 0));
        recovery.demand(step.fault.name(), healed, bound);
        recovery.probe(bound);
        Ok(())
    })?;
    phases::await_expected(settings, &workers)?;
    phases::lead_last(settings, &client, recorder, histories)?;
    phases::finish(settings, workers, client, &keys, recorder, &|key| store.held(key))
}

/// Injects a fault. It has ended when this returns.
fn inject(step: &ScheduledFault, store: &Store, workers: &mut Workers, run: &Recovery<'_>) -> Result<(), Failure> {
    let (began, Recovery { recorder, keys, ttl, .. }) = (now(), *run);
    let victim = match step.fault {
        Fault::FreezeClient => format!("process {}", workers.pid(step.victim)),
        Fault::KillClient => format!("worker {}", step.victim),
        _ => "the network".to_owned(),
    };
    match step.fault {
        Fault::FreezeClient | Fault::KillClient => {
            let inspect = |key: &str| store.held(key);
            ClientNemesis { workers, recorder, keys, ttl, inspect: &inspect, quorum: 1 }.inject(step)?;
        }
        Fault::Repeat => repeat(&store.proxy, recorder, step.lasts, "PUT "),
        Fault::LoseReplies => lose_replies(&store.proxy, recorder, step.lasts, Then::StaySilent),
        _ => disturb(&store.proxy, step)?,
    }
    recorder.note(&HistoryLine::new(&victim, "", Op::Fault, began, now()).what(step.fault.name()));
    Ok(())
}
