//! Many keys side by side, on the server and in the model, until the two differ.

use super::RUN_ID;
use super::call::Both;
use super::coverage::Coverage;
use super::expected::Expected;
use super::moment;
use super::quarantined_client;
use super::real::{Outcome, Real};
use super::sent::{Mutant, Sent};
use super::step::{self, Around, Step};
use crate::scripts::quarantine::{EpochCheck, Quarantine};
use crate::scripts::script::SIDE;
use crate::scripts::side_key::side_key;
use fencelock_core::Ttl;
use fencelock_model::{CAP, Delivery, HandOff, KeyModel, Marker, Server};
use fencelock_testkit::Reply;
use fencelock_testkit::SplitMix as Rng;

/// The start time of every trace.
pub(super) const START_US: u64 = 1_780_000_000_000_000;

/// A difference between the server and the model.
#[derive(Debug)]
pub(super) struct Difference {
    /// The index of the key.
    pub(super) key: usize,
    pub(super) what: String,
}

#[derive(Debug)]
pub(super) struct Differential<'a> {
    real: &'a mut Real,
    mutant: Option<Mutant>,
    server: Server,
    keys: Vec<KeyModel>,
    /// One for each key.
    markers: Vec<Marker>,
    /// The name of each key and of its side keys.
    names: Vec<[String; 8]>,
}

impl<'a> Differential<'a> {
    pub(super) fn new(real: &'a mut Real, mutant: Option<Mutant>, width: usize, cap: usize) -> Self {
        real.begin(START_US);
        Self {
            mutant,
            server: Server { cap, ..Server::at(START_US) },
            keys: vec![KeyModel::default(); width],
            markers: vec![Marker::default(); width],
            names: (0..width).map(names).collect(),
            real,
        }
    }

    /// One step of every key. All keys share the environment of the first one.
    pub(super) fn round(&mut self, steps: &[Step], coverage: &mut Coverage) -> Result<(), Difference> {
        let around = &steps[0].around;
        self.surround(around);
        let mut published = Vec::new();
        let (mut calls, mut expected) = (Vec::new(), Vec::new());
        let states = self.keys.iter_mut().zip(&mut self.markers).zip(&self.names);
        for (step, ((key, marker), [name, ..])) in steps.iter().zip(states) {
            let run_id = step
                .quarantined_client
                .map_or(RUN_ID, |quarantined_client| EpochCheck::without_marker(quarantined_client.epoch()).epoch);
            let mut publish = |message: HandOff| {
                let delivery = delivery(around, &message);
                coverage.hand_off(delivery);
                if delivery == Delivery::Received {
                    published.push((format!("c{}", message.channel.0), message.text(run_id, name)));
                }
                delivery
            };
            let both = Both {
                name,
                server: &self.server,
                key,
                marker,
                quarantined_client: step.quarantined_client,
                mutant: self.mutant,
            };
            let (call, answer) = both.run(&step.command, &mut publish);
            coverage.answer(&answer);
            calls.push(call);
            expected.push(answer);
        }
        let outcome = self.real.play(&calls, &self.names);
        coverage.around(around, outcome.sent_in_full);
        let abbreviated = expected.iter().zip(&outcome.replies).filter(|(expected, reply)| expected.abbreviates(reply));
        coverage.abbreviated(abbreviated.count());
        self.compare(&calls, &expected, &published, &outcome)
    }

    fn surround(&mut self, around: &Around) {
        self.server = Server {
            now_us: self.server.now_us.saturating_add_signed(around.by_us),
            time_refused: around.time_refused,
            full: around.full,
            ..self.server
        };
        if around.restarts || around.flushed {
            self.keys.fill(KeyModel::default());
            self.markers.fill(Marker::default());
        }
        for key in &mut self.keys {
            key.expire(&self.server);
        }
        self.real.become_so(around, self.server.now_us);
    }

    fn compare(
        &self,
        calls: &[Sent],
        expected: &[Expected],
        published: &[(String, String)],
        outcome: &Outcome,
    ) -> Result<(), Difference> {
        let differ = |key, what| Err(Difference { key, what });
        for key in 0..calls.len() {
            let (expected, reply) = (&expected[key], &outcome.replies[key]);
            if !expected.allows(reply) {
                return differ(key, format!("the answer\n  model  {expected:?}\n  server {reply:?}"));
            }
            let (model, server) =
                (state_of(&self.keys[key], &self.markers[key], &self.server), in_order(outcome.states[key].clone()));
            if model != server {
                return differ(key, format!("what is there afterwards\n  model  {model:?}\n  server {server:?}"));
            }
            let of_this = |(_, text): &&(String, String)| text.ends_with(&format!("\t{}", self.names[key][0]));
            let model: Vec<_> = published.iter().filter(of_this).collect();
            let server: Vec<_> = outcome.messages.iter().filter(of_this).collect();
            if model != server {
                return differ(key, format!("the messages\n  model  {model:?}\n  server {server:?}"));
            }
        }
        assert_eq!(published.len(), outcome.messages.len(), "a message of no key: {:?}", outcome.messages);
        Ok(())
    }
}

/// A key and its side keys.
pub(super) fn names(number: usize) -> [String; 8] {
    let name = format!("key-{number}");
    let [fence, line, waiters, alive, holds, held] = SIDE.map(|what| side_key(&name, what));
    let marker = Quarantine::alone(&name, Ttl::default(), false).marker;
    [name, fence, line, waiters, alive, holds, held, marker]
}

fn delivery(around: &Around, message: &HandOff) -> Delivery {
    let reader = around.readers[usize::try_from(message.channel.0).unwrap()];
    match (around.publish_refused, reader) {
        (true, _) => Delivery::Denied,
        (false, true) => Delivery::Received,
        (false, false) => Delivery::NoSubscriber,
    }
}

/// The state of the model, in the form in which the server is queried after each step.
fn state_of(key: &KeyModel, marker: &Marker, server: &Server) -> Reply {
    let text = |text: &str| Reply::Text(text.to_owned());
    // -2: the key does not exist. -1: it has no expiry.
    let pttl = |there: bool, end: Option<u64>| match (there, end) {
        (false, _) => Reply::Int(-2),
        (true, None) => Reply::Int(-1),
        (true, Some(end)) => Reply::Int(i64::try_from(end - server.now_us / 1000).unwrap()),
    };
    let (kind, value) = match &key.lock {
        None => ("none", String::new()),
        Some(lock) if lock.value.kind().is_empty() => ("string", lock.value.to_string()),
        Some(lock) => (lock.value.kind(), String::new()),
    };
    let fence = key.fence.map(|fence| fence.token.to_string()).unwrap_or_default();
    let line = key.queue.members.iter().flat_map(|(ticket, name)| [name.text(), ticket.to_string()]);
    let waiters = key.waiters.entries.iter().flat_map(|(name, entry)| [name.text(), entry.text()]);
    let alive = key.deadlines.until_ms.iter().flat_map(|(name, until_ms)| [name.text(), until_ms.to_string()]);
    in_order(Reply::Array(vec![
        text(kind),
        text(&value),
        pttl(key.lock.is_some(), key.lock.as_ref().and_then(|lock| lock.expires_ms)),
        text(&fence),
        pttl(key.fence.is_some(), key.fence.map(|fence| fence.expires_ms)),
        Reply::Array(line.map(Reply::Text).collect()),
        pttl(!key.queue.members.is_empty(), key.queue.expires_ms),
        Reply::Array(waiters.map(Reply::Text).collect()),
        pttl(!key.waiters.entries.is_empty(), key.waiters.expires_ms),
        Reply::Array(alive.map(Reply::Text).collect()),
        pttl(!key.deadlines.until_ms.is_empty(), key.deadlines.expires_ms),
        Reply::Array(holds(key).into_iter().map(Reply::Text).collect()),
        pttl(!key.holds.ends_ms.is_empty(), key.holds.expires_ms),
        Reply::Array(held(key).into_iter().map(Reply::Text).collect()),
        pttl(!key.held.entries.is_empty() || key.held.used.is_some(), key.held.expires_ms),
        Reply::Array(quarantined_client::fields(marker)),
        pttl(marker.written.is_some(), None),
    ]))
}

fn holds(key: &KeyModel) -> Vec<String> {
    key.holds.ends_ms.iter().flat_map(|(id, end_ms)| [format!("{id:032x}"), end_ms.to_string()]).collect()
}

fn held(key: &KeyModel) -> Vec<String> {
    let entries = key.held.entries.iter().flat_map(|(id, entry)| [format!("{id:032x}"), entry.text()]);
    let used = key.held.used.map(|used| ["#used".to_owned(), used.to_string()]);
    entries.chain(used.into_iter().flatten()).collect()
}

/// A hash has no order, so its fields are compared by name, as are the live waiters and the holds.
fn in_order(state: Reply) -> Reply {
    let Reply::Array(mut parts) = state else { return state };
    for hash in [7, 9, 11, 13, 15] {
        let Some(Reply::Array(fields)) = parts.get_mut(hash) else { continue };
        let mut pairs: Vec<_> = fields.chunks(2).map(<[Reply]>::to_vec).collect();
        pairs.sort_by(|a, b| a[0].text().cmp(&b[0].text()));
        *fields = pairs.concat();
    }
    Reply::Array(parts)
}

/// The queue is never long here, so in some batches a script skips only few waiters.
pub(super) fn cap(seed: u64) -> usize {
    [CAP, 1, CAP, 2][usize::try_from(seed % 4).unwrap_or(0)]
}

/// Runs a batch: several keys, each with its own commands. A difference is returned with the trace of its key.
pub(super) fn play(
    real: &mut Real,
    seed: u64,
    (width, length): (usize, usize),
    mutant: Option<Mutant>,
    coverage: &mut Coverage,
) -> Result<(), (Vec<Step>, Difference)> {
    let mut rng = Rng::new(seed);
    let mut differential = Differential::new(real, mutant, width, cap(seed));
    let mut traces: Vec<Vec<Step>> = vec![Vec::new(); width];
    let mut around = Around::CALM;
    for _ in 0..length {
        around =
            moment::around(&mut rng, &around, differential.server.now_us, &differential.keys, &differential.markers);
        for (number, trace) in traces.iter_mut().enumerate() {
            // A command that arrives twice.
            let again =
                trace.last().filter(|_| rng.percent(8)).map(|step| (step.quarantined_client, step.command.clone()));
            let (quarantined_client, command) = again.unwrap_or_else(|| {
                // Traces of clients with a quarantine, of other clients, and of both.
                match [0, 100, 0, 85][number % 4] {
                    chance if rng.percent(chance) => (
                        Some(quarantined_client::quarantined_client(&mut rng, &differential.markers[number])),
                        step::of_quarantined_client(&mut rng, number / 4),
                    ),
                    _ => (None, step::command(&mut rng, number / 4)),
                }
            });
            trace.push(Step { around: around.clone(), quarantined_client, command });
        }
        let now: Vec<Step> = traces.iter().filter_map(|trace| trace.last().cloned()).collect();
        if let Err(difference) = differential.round(&now, coverage) {
            return Err((traces.swap_remove(difference.key), difference));
        }
    }
    Ok(())
}
