//! Counts the commands that clients send to the servers.

use crate::load::error::NotMeasured;
use fencelock::backends::Server;
use redis::Connection;
use std::time::Duration;

/// The timeout of a server on the same machine or network.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The commands that the client sends after it connects. A server also counts the calls of scripts; they call none of
/// these.
const SENT: [&str; 5] = ["evalsha", "eval", "wait", "client|caching", "client|tracking"];

/// A connection to each server of a backend.
pub(crate) struct CommandCounter(Vec<Connection>);

impl CommandCounter {
    /// Skips unreachable servers: a quorum tolerates some.
    pub(crate) fn open(servers: &[Server]) -> Result<Self, NotMeasured> {
        let mut last = None;
        let mut connections = Vec::new();
        for server in servers {
            match connect(server) {
                Ok(connection) => connections.push(connection),
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if connections.is_empty() => Err(error.into()),
            _ => Ok(Self(connections)),
        }
    }

    /// All commands since the start of the servers; `None` without servers.
    pub(crate) fn commands(&mut self) -> Result<Option<u64>, NotMeasured> {
        let mut sum = None;
        for connection in &mut self.0 {
            let info: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
            *sum.get_or_insert(0) += sent(&info);
        }
        Ok(sum)
    }
}

pub(crate) fn connect(server: &Server) -> redis::RedisResult<Connection> {
    let connection = server.client().get_connection_with_timeout(SERVER_TIMEOUT)?;
    connection.set_read_timeout(Some(SERVER_TIMEOUT))?;
    connection.set_write_timeout(Some(SERVER_TIMEOUT))?;
    Ok(connection)
}

fn sent(info: &str) -> u64 {
    let calls = info.lines().filter_map(|line| {
        let (name, rest) = line.trim_end().strip_prefix("cmdstat_")?.split_once(":calls=")?;
        SENT.contains(&name).then(|| rest.split(',').next()?.parse::<u64>().ok()).flatten()
    });
    calls.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_inside_scripts_are_not_counted() {
        let info = "# Commandstats\r\ncmdstat_set:calls=100,usec=1\r\ncmdstat_evalsha:calls=7,usec=2,usec_per_call=0.1\r\n\
                    cmdstat_client|caching:calls=2,usec=1\r\ncmdstat_eval:calls=1,usec=9\r\ncmdstat_info:calls=5,usec=1\r\n";
        assert_eq!(sent(info), 10);
    }
}
