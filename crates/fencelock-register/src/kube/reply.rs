//! An answer of the API server, and what it means if it is an error.

use fencelock_core::{Fault, Unknown};
use serde_json::Value;

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// In microseconds since 1970.
    pub(super) date: Option<u64>,
    /// An object, or a Status; null if it is neither.
    pub(super) body: Value,
}

impl Reply {
    /// This Lease does not exist, which is not known of its namespace.
    pub(super) fn is_missing_lease(&self) -> bool {
        self.status == 404 && self.body["details"]["kind"] == "leases"
    }

    /// It is refused because the namespace is being deleted.
    pub(super) fn is_ending(&self) -> bool {
        let mut causes = self.body["details"]["causes"].as_array().into_iter().flatten();
        causes.any(|cause| cause["reason"] == "NamespaceTerminating")
    }

    /// The error. `accepted`: the credentials of this client were good before.
    pub(super) fn unknown(&self, name: &str, accepted: bool) -> Unknown {
        let (fault, advice) = match self.status {
            // They may be replaced under the same name.
            401 if accepted => (Fault::Revoked, ""),
            401 => (Fault::Denied, ": the token or certificate is wrong, or has expired"),
            403 if self.is_ending() => (Fault::Unsupported, ""),
            // The message names the verb.
            403 => (Fault::Denied, ""),
            404 if self.body["details"]["kind"] == "namespaces" => (Fault::Unsupported, ": create the namespace first"),
            404 => (Fault::Unsupported, ": it is no API server with Leases"),
            300..=399 => (Fault::Unsupported, ": redirects are not followed"),
            408 => (Fault::Timeout, ""),
            429 | 500..=599 => (Fault::Busy, ""),
            _ => (Fault::Other, ""),
        };
        Unknown::new(name, fault, self.message() + advice)
    }

    pub(super) fn message(&self) -> String {
        let message = self.body["message"].as_str().filter(|message| !message.is_empty());
        message.map_or_else(|| format!("HTTP {}", self.status), str::to_owned)
    }
}
