//! What a URL says: the servers, the options, and the secrets in files.

pub(crate) mod acks;
pub(crate) mod hosts;
pub(crate) mod identity;
pub(crate) mod options;
pub(crate) mod password;
pub(crate) mod secrets;
pub(crate) mod sentinel;
pub(crate) mod target;
