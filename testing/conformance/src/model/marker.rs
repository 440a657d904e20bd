use super::{Done, Refused, Server, VERSION};
use std::sync::Arc;

/// The marker of a server: what it has promised to remember, and for which set of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Marker {
    /// `None`: there is none.
    pub written: Option<Written>,
}

/// What stands in a marker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Written {
    /// The version of the wire; `None` in version 0.
    pub version: Option<Arc<str>>,
    /// The run of the server that promised.
    pub epoch: Arc<str>,
    /// When its quarantine ends, or 0.
    pub until_ms: u64,
    /// How long that was to last.
    pub span_ms: u64,
    /// The longest TTL and the set of nodes.
    pub quorum: Arc<str>,
    /// That set, for people.
    pub nodes: Arc<str>,
}

/// What a client takes a server for, and asks of it: the arguments of `handshake` and `init`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Visitor {
    /// The run that it is connected to.
    pub epoch: Arc<str>,
    /// The length of a quarantine.
    pub span_ms: u64,
    /// The longest TTL and the set of nodes.
    pub quorum: Arc<str>,
    /// That set, for people.
    pub nodes: Arc<str>,
    /// Whether an unknown server has forgotten nothing.
    pub trust: bool,
}

impl Visitor {
    fn written(&self, until_ms: u64, span_ms: u64) -> Written {
        let version = Some(VERSION.into());
        Written {
            version,
            epoch: self.epoch.clone(),
            until_ms,
            span_ms,
            quorum: self.quorum.clone(),
            nodes: self.nodes.clone(),
        }
    }
}

/// What keeps a server from granting, as the answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The marker is of a version that is not understood.
    Version(Arc<str>),
    /// The marker is another run's, or there is none.
    Handshake,
    /// The server belongs to another set.
    Nodeset {
        /// Its longest TTL and set of nodes.
        quorum: Arc<str>,
        /// That set, for people.
        nodes: Arc<str>,
    },
    /// It may have forgotten what it granted.
    Quarantined {
        /// For so long yet.
        rest_ms: u64,
    },
}

/// What a script finds when it asks whether this server may grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Gate {
    /// It may, or nobody asked for a guard.
    Open,
    /// It may not.
    Shut(Refusal),
    /// It may not say: a quarantine is known, and the time is not.
    Unknown,
}

impl Gate {
    /// Where the script asks, which may be after it has written.
    pub(super) fn refusal(&self) -> Result<Option<&Refusal>, Refused> {
        match self {
            Self::Open => Ok(None),
            Self::Shut(refusal) => Ok(Some(refusal)),
            Self::Unknown => Err(Refused::Time),
        }
    }
}

/// The answer of `handshake`: what the marker says now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handshake {
    /// Of the quarantine.
    pub rest_ms: u64,
    /// The longest TTL and the set of nodes.
    pub quorum: Arc<str>,
    /// That set, for people.
    pub nodes: Arc<str>,
}

/// The answer about a marker of a version that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Later(pub Arc<str>);

/// What `init` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Found {
    /// No marker, or that of another run.
    New,
    /// A marker of another set.
    Changed,
    /// This set.
    Unchanged,
}

impl Marker {
    /// The version, if it is one that is not understood. Nothing else is read then, and nothing written.
    fn unknown_version(&self) -> Option<Arc<str>> {
        self.written.as_ref()?.version.clone().filter(|version| **version != *VERSION)
    }

    /// What a claim that was sent to this run, for this set, comes upon.
    pub fn gate(&self, server: &Server, epoch: &str, quorum: &str) -> Gate {
        if let Some(version) = self.unknown_version() {
            return Gate::Shut(Refusal::Version(version));
        }
        let Some(written) = self.written.as_ref().filter(|written| *written.epoch == *epoch) else {
            return Gate::Shut(Refusal::Handshake);
        };
        if *written.quorum != *quorum {
            return Gate::Shut(Refusal::Nodeset { quorum: written.quorum.clone(), nodes: written.nodes.clone() });
        }
        if written.until_ms == 0 {
            return Gate::Open;
        }
        if server.time_refused {
            return Gate::Unknown;
        }
        match written.until_ms.saturating_sub(server.now_ms()) {
            0 => Gate::Open,
            rest_ms => Gate::Shut(Refusal::Quarantined { rest_ms }),
        }
    }

    /// Another program has changed the version of the marker, if there is one.
    pub fn foreign_version(&mut self, version: Option<&str>) -> Done {
        let Some(written) = &mut self.written else { return Done::No };
        written.version = version.map(Into::into);
        Done::Yes
    }

    /// `handshake.lua`: an unknown run is kept out for a while. A marker of another set is left as it is.
    pub fn handshake(&mut self, server: &Server, visitor: &Visitor) -> Result<Result<Handshake, Later>, Refused> {
        if let Some(version) = self.unknown_version() {
            return Ok(Err(Later(version)));
        }
        let now_ms = ceiling_ms(server)?;
        let begins = self
            .written
            .as_ref()
            .is_none_or(|written| written.epoch != visitor.epoch && written.quorum == visitor.quorum);
        if begins {
            let until_ms = if visitor.trust { 0 } else { now_ms + visitor.span_ms };
            self.write(server, visitor.written(until_ms, visitor.span_ms))?;
        }
        let written = self.written.as_ref().unwrap_or_else(|| unreachable!("there was one, or it was just written"));
        let rest_ms = written.until_ms.saturating_sub(now_ms);
        Ok(Ok(Handshake { rest_ms, quorum: written.quorum.clone(), nodes: written.nodes.clone() }))
    }

    /// `init.lua`: the server belongs to this set from now on. Says what was there, and the rest of the quarantine.
    ///
    /// `joins`: other servers of the set come from a set that this one was not in.
    pub fn init(
        &mut self,
        server: &Server,
        visitor: &Visitor,
        joins: bool,
    ) -> Result<Result<(Found, u64), Later>, Refused> {
        if let Some(version) = self.unknown_version() {
            return Ok(Err(Later(version)));
        }
        let now_ms = ceiling_ms(server)?;
        let (before_ms, span_ms) = self.written.as_ref().map_or((0, 0), |written| (written.until_ms, written.span_ms));
        let wanted_ms = span_ms.max(visitor.span_ms);
        let found = match &self.written {
            Some(written) if written.epoch == visitor.epoch && written.quorum == visitor.quorum => Found::Unchanged,
            Some(written) if written.epoch == visitor.epoch => Found::Changed,
            _ => Found::New,
        };
        let until_ms = if visitor.trust {
            0
        } else if found == Found::New || joins {
            now_ms + wanted_ms
        } else if before_ms > 0 {
            before_ms + wanted_ms - span_ms
        } else {
            0
        };
        self.write(server, visitor.written(until_ms, wanted_ms))?;
        Ok(Ok((found, until_ms.saturating_sub(now_ms))))
    }

    fn write(&mut self, server: &Server, written: Written) -> Result<(), Refused> {
        if server.full {
            return Err(Refused::Full);
        }
        self.written = Some(written);
        Ok(())
    }
}

/// A quarantine begins with the next whole millisecond, so that none is short.
fn ceiling_ms(server: &Server) -> Result<u64, Refused> {
    if server.time_refused { Err(Refused::Time) } else { Ok(server.now_us.div_ceil(1000)) }
}
