use super::start_error::redis_or_skip;
use crate::RedisServer;

/// `count` servers for one test, like [`redis_or_skip`].
///
/// # Panics
/// See [`StartError::reason_to_skip`](crate::StartError::reason_to_skip).
pub fn servers_or_skip(count: usize) -> Option<Vec<RedisServer>> {
    std::iter::repeat_with(redis_or_skip).take(count).collect()
}

/// The URL of a quorum of these servers. `options` has the form `name=value&...` and may be empty.
pub fn redlock_url<'a>(servers: impl IntoIterator<Item = &'a RedisServer>, options: &str) -> String {
    let hosts: Vec<_> = servers.into_iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    // A busy machine may not run a server for some time.
    let node_timeout = if options.contains("timeout=") { "" } else { "node_timeout=5000" };
    let options: Vec<_> = [options, node_timeout].into_iter().filter(|option| !option.is_empty()).collect();
    format!("redlock://{}?{}", hosts.join(","), options.join("&"))
}
