//! Values of `INFO`.

use crate::Failure;
use fencelock_testkit::RedisServer;

/// The value of `name` in a section of `INFO`, up to the next comma or the end of the line.
pub(crate) fn field(server: &RedisServer, section: &str, name: &str) -> Option<String> {
    let info = server.command(&["INFO", section]);
    info.text()?.split(name).nth(1)?.split([',', '\r', '\n']).next().map(str::to_owned)
}

/// The number of executions of a command, including those by scripts.
pub(crate) fn calls(server: &RedisServer, command: &str) -> Result<u64, Failure> {
    let calls = field(server, "commandstats", &format!("cmdstat_{command}:calls="));
    Ok(calls.as_deref().unwrap_or("0").parse()?)
}
