//! The possible steps, and how they are chosen.

use super::differential::START_US;
use super::quarantined_client::{QuarantinedClient, Visit};
use fencelock_core::Mode;
use fencelock_model::{
    Channel, Continued, Entry, FENCE_MAX, FENCE_TTL_MS, HoldKind, Intent, Kind, Name, Value, WaiterEntry,
};
use fencelock_testkit::SplitMix as Rng;

/// The ticket of a waiter that arrives at the start: a thousand times its time in ms. The next ones are at least 1000 more each.
pub(super) const FIRST_TICKET: u64 = START_US / 1000 * 1000;
/// The ticket of a waiter behind all others.
pub(super) const LAST_TICKET: u64 = 9_000_000_000_000_000;
/// Before, among and behind the tickets that the scripts give.
const TICKETS: [u64; 3] = [1, FIRST_TICKET + 1, LAST_TICKET];

/// One step in the trace of a key: first the environment changes, then a command runs.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) around: Around,
    /// The client that requires a quarantine, if any.
    pub(super) quarantined_client: Option<QuarantinedClient>,
    pub(super) command: Command,
}

/// The environment that all keys of the server share. Each fault starts and ends independently.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Around {
    /// By how much the clock moves.
    pub(super) by_us: i64,
    pub(super) full: bool,
    pub(super) time_refused: bool,
    pub(super) publish_refused: bool,
    /// Which channels have a subscriber.
    pub(super) readers: [bool; 2],
    pub(super) forgets_scripts: bool,
    /// With an empty disk.
    pub(super) restarts: bool,
    /// By `FLUSHALL`.
    pub(super) flushed: bool,
}

impl Around {
    pub(super) const CALM: Self = Self {
        by_us: 0,
        full: false,
        time_refused: false,
        publish_refused: false,
        readers: [true, false],
        forgets_scripts: false,
        restarts: false,
        flushed: false,
    };
}

/// A number near one that is only known when the command runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Token {
    NearNow(i64),
    NearFence(i64),
    Exactly(u64),
}

#[derive(Debug, Clone)]
pub(super) enum Command {
    Acquire {
        intent: Intent,
        holder: u128,
        owner: &'static str,
        ttl_ms: u64,
        proposal: Token,
        proposed: bool,
        channel: Option<Channel>,
        wanted: u32,
        mode: Mode,
    },
    Downgrade {
        holder: u128,
        ttl_ms: u64,
        proposal: Token,
        proposed: bool,
    },
    /// With the result of an earlier call of the same change: the previous limit, and a ticket.
    Resize {
        limit: u32,
        continued: Option<Continued>,
        proposal: Token,
    },
    /// Of two of several holds, or of holds that have ended.
    EvictHolds {
        other: bool,
        proposal: Token,
    },
    Raise {
        holder: u128,
        to: Token,
    },
    Renew {
        holder: u128,
        ttl_ms: u64,
        assumed_ms: u64,
    },
    Release {
        holder: u128,
        proposal: Token,
    },
    Inspect,
    /// Of the stored value, or of another one.
    Evict {
        seen: Option<Value>,
        kind: HoldKind,
        proposal: Token,
    },
    Foreign(Foreign),
    /// Only from clients with a quarantine.
    Visit(Visit),
    DeleteMarker,
    /// A client of another version has written the marker.
    MarkerVersion(&'static str),
}

/// Plain commands, without scripts.
#[derive(Debug, Clone)]
pub(super) enum Foreign {
    Set {
        value: Value,
        ttl_ms: Option<u64>,
        nx: bool,
    },
    Delete,
    CompareAndDelete(Value),
    Persist,
    Put(Kind),
    PutFence {
        token: Token,
        ttl_ms: u64,
    },
    PutInQueue {
        ticket: u64,
        name: Name,
    },
    PutEntry {
        name: Name,
        entry: Entry,
    },
    /// A client of another version enters the queue, and is alive for this time.
    Join {
        ticket: u64,
        name: Name,
        life_ms: u64,
        entry: Entry,
    },
    DropEntry(Name),
    /// `DEL` of the holds of a shared lock, or of their entries.
    DropHolds {
        held: bool,
    },
}

/// The last one never claims.
pub(super) const HOLDERS: [u128; 5] = [
    0x0000_0000_0000_0000_0000_0000_0000_0001,
    0x8000_0000_0000_0000_0000_0000_0000_0000,
    0xabcd_ef01_2345_6789_abcd_ef01_2345_6789,
    0x0000_0000_0000_0000_0000_0000_0000_0002,
    0xffff_ffff_ffff_ffff_ffff_ffff_ffff_ffff,
];
const OWNERS: [&str; 3] = ["host:1", "host:2 a label", "h:3  two  spaces "];
/// Fencing tokens: one, a few, a second of them, more than there may be.
const WANTED: [u32; 7] = [1, 1, 2, 64, 1_000_000, 1_500_000, 2_500_000];
const TTLS: [u64; 8] = [10, 11, 1000, 2999, 3000, 3001, 30_000, FENCE_TTL_MS];
/// The lease that a holder may assume, up to the actual one.
const ASSUMED: [u64; 8] = [0, 0, 10, 1000, 3000, 30_000, FENCE_TTL_MS, u64::MAX >> 12];
const HOLD_KINDS: [HoldKind; 6] =
    [HoldKind::Ours, HoldKind::Ours, HoldKind::Foreign, HoldKind::Endless, HoldKind::Shared, HoldKind::Shared];
/// Other programs may request less than fencelock does.
const FOREIGN_TTLS: [u64; 6] = [1, 2, 10, 1000, 30_000, FENCE_TTL_MS + 5];
const OFFSETS_US: [i64; 11] =
    [0, 1, -1, 500_000, 999_999, 1_000_000, 1_000_001, -999_999, -1_000_000, -1_000_001, 10_000_000];
const KINDS: [Kind; 5] = [Kind::Hash, Kind::List, Kind::Set, Kind::Zset, Kind::Stream];
/// `ID` is the holder of the entry.
const GARBAGE: [&str; 9] = [
    "",
    "soon",
    "12 x - y",
    "99999999999999999",
    "1780000000000 5",
    "0 1 - ID host:1",
    "30000 0 - ID host:1\t1",
    "2 30000 1 - ID host:1",
    "30000 1 - 22222222222222222222222222222222 host:1\t2",
];
/// The fields after the common part of an entry.
const VERSIONS: [&str; 14] = [
    "1",
    "1 r 1 0",
    "1 r 1 0",
    "1 s 1 2",
    "1 s 2 2",
    "1 r 1 4",
    "1 r 1 0 x",
    "1 s 3 2",
    "1 s 0 2",
    "1 s 1 1000001",
    "2",
    "2 s 3 10",
    "",
    "x\ty",
];

/// The mode of a claim. The claims of a trace are mostly of one class.
fn mode(rng: &mut Rng, trace: usize) -> Mode {
    let permits = |weight, limit| Mode::permits(weight, limit).unwrap();
    let modes = match trace % 4 {
        0 => return Mode::Exclusive,
        1 => [Mode::Shared; 3],
        2 => [permits(1, 3), permits(1, 3), permits(2, 3)],
        _ => [Mode::Shared, permits(1, 2), permits(1, 3)],
    };
    if rng.percent(25) { Mode::Exclusive } else { rng.pick(&modes) }
}

fn value(rng: &mut Rng) -> Value {
    let hex = format!("{:032x}", rng.pick(&HOLDERS));
    Value::parse(&match rng.below(13) {
        0 => hex,
        1 => format!("{hex} "),
        2 => format!("{hex} host:1"),
        3 => format!("{hex}x"),
        4 => format!("{hex}0 host:1"),
        5 => hex.to_uppercase(),
        6 => hex[..31].to_owned(),
        7 => format!(" {hex}"),
        8 => String::new(),
        9 => "fencelock:2:r:4:1780000000000000".to_owned(),
        10 => "fencelock:1:r:0:1780000000000000".to_owned(),
        11 => rng
            .pick(&["fencelock:1:s:2:7", "fencelock:1:r:1:7", "fencelock:1:s:0:7", "fencelock:1:s:1000001:7"])
            .to_owned(),
        _ => "another program's".to_owned(),
    })
}

fn proposal(rng: &mut Rng) -> Token {
    match rng.below(12) {
        0 => Token::Exactly(rng.pick(&[0, 1, FENCE_MAX - 1, FENCE_MAX])),
        1 => Token::NearFence(rng.pick(&[-1, 0, 1])),
        2..=5 => Token::NearNow(0),
        _ => Token::NearNow(rng.pick(&OFFSETS_US)),
    }
}

fn name(rng: &mut Rng) -> Name {
    if rng.percent(60) { Name::Holder(rng.pick(&HOLDERS)) } else { Name::Other(rng.pick(&["", "nobody", "~"]).into()) }
}

/// An entry that another version or another program may have written.
fn named_entry(rng: &mut Rng) -> (Name, Entry) {
    if rng.percent(50) {
        let name = name(rng);
        let text = rng.pick(&GARBAGE).replace("ID", &name.text());
        return (name, Entry::Garbage(text.into()));
    }
    let holder = rng.pick(&HOLDERS);
    let value = Value::Ours { holder, owner: Some(rng.pick(&OWNERS).into()) };
    let (ttl_ms, wanted) = (rng.pick(&TTLS), rng.pick(&WANTED).into());
    let channel = rng.pick(&[None, Some(Channel(0)), Some(Channel(1))]);
    let version = rng.pick(&VERSIONS).into();
    (Name::Holder(holder), Entry::Waiter(WaiterEntry { ttl_ms, wanted, channel, value, version }))
}

fn foreign(rng: &mut Rng) -> Foreign {
    match rng.below(25) {
        0..=3 => {
            let ttl_ms = if rng.percent(70) { Some(rng.pick(&FOREIGN_TTLS)) } else { None };
            Foreign::Set { value: value(rng), ttl_ms, nx: rng.percent(50) }
        }
        4..=6 => Foreign::Delete,
        7 | 8 => Foreign::CompareAndDelete(value(rng)),
        9 => Foreign::Persist,
        10 => Foreign::Put(rng.pick(&KINDS)),
        11 => {
            let token = rng.pick(&[
                Token::Exactly(FENCE_MAX - 1),
                Token::Exactly(FENCE_MAX),
                Token::Exactly(FENCE_MAX + 1),
                Token::NearNow(2_000_000),
                Token::NearNow(0),
            ]);
            Foreign::PutFence { token, ttl_ms: rng.pick(&FOREIGN_TTLS) }
        }
        12 => Foreign::PutInQueue { ticket: rng.pick(&TICKETS), name: name(rng) },
        13..=15 => {
            let (name, entry) = named_entry(rng);
            Foreign::PutEntry { name, entry }
        }
        16..=20 => {
            let (name, entry) = named_entry(rng);
            Foreign::Join { ticket: rng.pick(&TICKETS), name, life_ms: rng.pick(&[1, 1000, 3000, 60_000]), entry }
        }
        21 | 22 => Foreign::DropEntry(name(rng)),
        _ => Foreign::DropHolds { held: rng.percent(70) },
    }
}

/// A command of a quarantined client, which also calls the scripts of the marker.
pub(super) fn of_quarantined_client(rng: &mut Rng, trace: usize) -> Command {
    match rng.below(40) {
        0..=6 => Command::Visit(Visit::Handshake),
        7..=9 => Command::Visit(Visit::Init { joins: rng.percent(40) }),
        10 if rng.percent(60) => Command::DeleteMarker,
        10 => Command::MarkerVersion(rng.pick(&["1", "1", "1", "2", "x"])),
        // The current holder: a quarantine prevents the hand-over.
        11..=13 => Command::Evict { seen: None, kind: rng.pick(&HOLD_KINDS), proposal: proposal(rng) },
        _ => command(rng, trace),
    }
}

/// Of this trace.
pub(super) fn command(rng: &mut Rng, trace: usize) -> Command {
    let holder = rng.pick(&HOLDERS[..4]);
    match rng.below(24) {
        0..=8 => Command::Acquire {
            intent: rng.pick(&[Intent::Try, Intent::Enqueue, Intent::Enqueue, Intent::Poll]),
            holder,
            owner: rng.pick(&OWNERS),
            ttl_ms: rng.pick(&TTLS),
            proposal: proposal(rng),
            proposed: rng.percent(40),
            channel: rng.pick(&[None, Some(Channel(0)), Some(Channel(0)), Some(Channel(1))]),
            wanted: rng.pick(&WANTED),
            mode: mode(rng, trace),
        },
        9..=12 => Command::Release { holder, proposal: proposal(rng) },
        13 | 14 => Command::Renew { holder, ttl_ms: rng.pick(&TTLS), assumed_ms: rng.pick(&ASSUMED) },
        15 | 16 => Command::Raise {
            holder,
            to: match rng.below(3) {
                0 => Token::NearFence(rng.pick(&[-1, 0, 1, 1000])),
                1 => Token::NearNow(rng.pick(&OFFSETS_US)),
                _ => Token::Exactly(rng.pick(&[1, FENCE_MAX - 1, FENCE_MAX])),
            },
        },
        17 if rng.percent(80) => {
            let seen = if rng.percent(70) { None } else { Some(value(rng)) };
            Command::Evict { seen, kind: rng.pick(&HOLD_KINDS), proposal: proposal(rng) }
        }
        18 => {
            // Draws no random number, so that the seeds still reach the situations for which they are listed.
            let proposed = holder & 1 == 0;
            Command::Downgrade { holder, ttl_ms: rng.pick(&TTLS), proposal: proposal(rng), proposed }
        }
        19 if rng.percent(30) => Command::EvictHolds { other: rng.percent(20), proposal: proposal(rng) },
        17 | 19 => Command::Inspect,
        22 | 23 => Command::Resize {
            limit: rng.pick(&[1, 2, 2, 3, 3, 4, 5, 1_000_000]),
            continued: rng
                .percent(25)
                .then(|| Continued { before: rng.pick(&[2, 3, 3]), ticket: FIRST_TICKET - 1000 + 1000 * rng.below(4) }),
            proposal: proposal(rng),
        },
        _ => Command::Foreign(foreign(rng)),
    }
}
