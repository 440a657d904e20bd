//! A store of objects, which is started before.

use crate::Failure;
use crate::connect::connect;
use crate::fault::Fault;
use crate::nemesis::{disturb, lose_replies, repeat};
use crate::phases::{self, Clients, Frame};
use crate::recorder::now;
use fencelock::blocking::Client;
use fencelock_testkit::{Proxy, Then, carry_google_uploads};
use std::net::TcpListener;

pub(super) const FAULTS: &[Fault] = &[
    Fault::Slow,
    Fault::Cut,
    Fault::BlackHole,
    Fault::Stall,
    Fault::LoseReplies,
    Fault::Repeat,
    Fault::FreezeClient,
    Fault::KillClient,
];

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

pub(super) fn perform(run: &Frame<'_>) -> Result<(), Failure> {
    let settings = run.settings;
    let store = Store::at(&settings.objects)?;
    let url = store.url(settings.topology.trusting());
    let holds = run.holds(&url);
    holds.ended("control-forgotten", |key| {
        let held = store.viewer.inspect(key)?.ok_or("the key is not held")?;
        store.viewer.evict(&held)?;
        Ok(())
    })?;
    holds.common()?;

    let url = store.url(&settings.topology.options(settings.ttl));
    let mut clients = Clients::start(run, &url)?;
    phases::play(settings, |step| {
        let began = now();
        match step.fault {
            Fault::FreezeClient | Fault::KillClient => clients.nemesis(&|key: &str| store.held(key), 1).inject(step)?,
            Fault::Repeat => repeat(&store.proxy, &clients.recorder, step.lasts, "PUT "),
            Fault::LoseReplies => lose_replies(&store.proxy, &clients.recorder, step.lasts, Then::StaySilent),
            _ => disturb(&store.proxy, step)?,
        }
        clients.note(began, &clients.victim(step, "the network"), step.fault);
        clients.recover(step, 0);
        Ok(())
    })?;
    clients.await_expected(settings)?;
    clients.finish(run, &|key| store.held(key))
}
