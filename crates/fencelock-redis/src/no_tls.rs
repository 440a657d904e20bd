//! The module `tls` of a build without it: whatever needs it names the feature.

use crate::url::password::FileOptions;
use fencelock_core::{Fault, Invalid};
use redis::{ConnectionInfo, RedisError, RedisResult};

pub(crate) use std::convert::Infallible as Certificates;

const NAMED: &str = "TLS is not compiled in: it needs the feature \"redis\" of fencelock instead of \"redis-plain\"";
pub(crate) const MISSING: Option<&str> = Some(NAMED);

pub(crate) fn certificates(files: &FileOptions) -> Result<Option<Certificates>, Invalid> {
    let has_files = [&files.ca, &files.cert, &files.key].into_iter().any(Option::is_some);
    if has_files { Err(Invalid::new(NAMED)) } else { Ok(None) }
}

pub(crate) fn client(info: ConnectionInfo, _: Option<Certificates>) -> RedisResult<redis::Client> {
    redis::Client::open(info)
}

pub(crate) const fn cause(_: &RedisError) -> Option<(Fault, String)> {
    None
}
