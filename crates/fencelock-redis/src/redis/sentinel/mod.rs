//! A master that sentinels monitor: which server it is, and when it changes.

mod diagnose;
mod mastership;
mod node;
mod query;
mod url;

use super::hosts::Address;
use fencelock_core::NamedMaster;

pub(crate) use diagnose::diagnose;
pub(crate) use mastership::Mastership;
pub(crate) use query::Sentinels;
pub(crate) use url::SentinelUrl;

/// The master that a sentinel names.
type Named = NamedMaster<Address>;
