//! A master that sentinels monitor: which server it is, and when it changes.

mod mastership;
mod node;

use crate::url::hosts::Address;
use fencelock_core::NamedMaster;

pub(crate) use mastership::Mastership;
pub(crate) use node::Sentinels;

/// The master that a sentinel names.
pub(crate) type Named = NamedMaster<Address>;
