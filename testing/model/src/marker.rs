use super::answer::{Done, Refusal, ScriptError};
use super::server::{Server, VERSION};
use std::sync::Arc;

/// The marker of a server: what the server has promised to remember, and its set of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Marker {
    /// `None` if there is no marker.
    pub written: Option<MarkerContent>,
}

/// The content of a marker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MarkerContent {
    /// The version of the wire format.
    pub version: Arc<str>,
    /// The run of the server that made the promise.
    pub epoch: Arc<str>,
    /// The end of the quarantine, or 0.
    pub until_ms: u64,
    /// The length of the quarantine.
    pub span_ms: u64,
    /// The longest TTL and the set of nodes.
    pub quorum: Arc<str>,
    /// The set of nodes as text.
    pub nodes: Arc<str>,
}

/// What a client expects of a server: the arguments of `handshake` and `init`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Expectation {
    /// The run of the server that the client is connected to.
    pub epoch: Arc<str>,
    /// The length of a quarantine.
    pub span_ms: u64,
    /// The longest TTL and the set of nodes.
    pub quorum: Arc<str>,
    /// The set of nodes as text.
    pub nodes: Arc<str>,
    /// Whether an unknown server is trusted to have lost no data.
    pub trust: bool,
}

impl Expectation {
    fn written(&self, until_ms: u64, span_ms: u64) -> MarkerContent {
        let version = VERSION.into();
        MarkerContent {
            version,
            epoch: self.epoch.clone(),
            until_ms,
            span_ms,
            quorum: self.quorum.clone(),
            nodes: self.nodes.clone(),
        }
    }
}

/// Whether this server may grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Gate {
    /// The server may grant, or the claim requires no check.
    Open,
    /// The server must not grant.
    Shut(Refusal),
    /// Unknown: there is a quarantine, but the script may not read the time.
    Unknown,
}

impl Gate {
    /// For scripts that check after they have written.
    pub(super) fn refusal(&self) -> Result<Option<&Refusal>, ScriptError> {
        match self {
            Self::Open => Ok(None),
            Self::Shut(refusal) => Ok(Some(refusal)),
            Self::Unknown => Err(ScriptError::Time),
        }
    }
}

/// The reply of `handshake`: the content of the marker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handshake {
    /// The remaining quarantine.
    pub rest_ms: u64,
    /// The longest TTL and the set of nodes.
    pub quorum: Arc<str>,
    /// That set as text.
    pub nodes: Arc<str>,
}

/// The reply for a marker with an unknown version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnknownVersion(pub Arc<str>);

/// The state that `init` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InitResult {
    /// No marker, or the marker of another run.
    New,
    /// The marker of another set.
    Changed,
    /// The marker of this set.
    Unchanged,
}

impl Marker {
    /// The version, if it is unknown. The script then reads and writes nothing else.
    fn unknown_version(&self) -> Option<Arc<str>> {
        Some(self.written.as_ref()?.version.clone()).filter(|version| **version != *VERSION)
    }

    /// Whether a claim for this run and set may be granted.
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
    pub fn foreign_version(&mut self, version: &str) -> Done {
        let Some(written) = &mut self.written else { return Done::No };
        written.version = version.into();
        Done::Yes
    }

    /// `handshake.lua`: starts the quarantine of an unknown run. A marker of another set is not changed.
    pub fn handshake(
        &mut self,
        server: &Server,
        visitor: &Expectation,
    ) -> Result<Result<Handshake, UnknownVersion>, ScriptError> {
        if let Some(version) = self.unknown_version() {
            return Ok(Err(UnknownVersion(version)));
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

    /// `init.lua`: assigns the server to this set. Returns the previous state, and the remaining quarantine.
    ///
    /// `joins`: other servers of the set belonged to a set without this one.
    pub fn init(
        &mut self,
        server: &Server,
        visitor: &Expectation,
        joins: bool,
    ) -> Result<Result<(InitResult, u64), UnknownVersion>, ScriptError> {
        if let Some(version) = self.unknown_version() {
            return Ok(Err(UnknownVersion(version)));
        }
        let now_ms = ceiling_ms(server)?;
        let (before_ms, span_ms) = self.written.as_ref().map_or((0, 0), |written| (written.until_ms, written.span_ms));
        let wanted_ms = span_ms.max(visitor.span_ms);
        let found = match &self.written {
            Some(written) if written.epoch == visitor.epoch && written.quorum == visitor.quorum => {
                InitResult::Unchanged
            }
            Some(written) if written.epoch == visitor.epoch => InitResult::Changed,
            _ => InitResult::New,
        };
        let until_ms = if visitor.trust {
            0
        } else if found == InitResult::New || joins {
            now_ms + wanted_ms
        } else if before_ms > 0 {
            before_ms + wanted_ms - span_ms
        } else {
            0
        };
        self.write(server, visitor.written(until_ms, wanted_ms))?;
        Ok(Ok((found, until_ms.saturating_sub(now_ms))))
    }

    fn write(&mut self, server: &Server, written: MarkerContent) -> Result<(), ScriptError> {
        if server.full {
            return Err(ScriptError::Full);
        }
        self.written = Some(written);
        Ok(())
    }
}

/// A quarantine starts at the next whole millisecond, so that it is never too short.
fn ceiling_ms(server: &Server) -> Result<u64, ScriptError> {
    if server.time_refused { Err(ScriptError::Time) } else { Ok(server.now_us.div_ceil(1000)) }
}
