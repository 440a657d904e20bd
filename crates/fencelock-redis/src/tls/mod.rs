//! What needs TLS: the certificates of a URL, and why a handshake failed.
//!
//! Without the feature `tls`, the file `no_tls.rs` is this module.

mod cause;
mod certificates;

pub(crate) use cause::cause;
pub(crate) use certificates::{Certificates, certificates, client};

/// Why there is no TLS in this build.
pub(crate) const MISSING: Option<&str> = None;
