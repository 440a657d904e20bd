//! How many commands clients have sent to the servers.

use crate::load::error::NotMeasured;
use fencelock::backends::Server;
use redis::Connection;
use std::time::Duration;

/// A server of the same machine or network that takes longer is out of order.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What a lock's client sends, other than to connect. A server also counts what scripts call; they call none of these.
const SENT: [&str; 5] = ["evalsha", "eval", "wait", "client|caching", "client|tracking"];

/// A connection to each server of a place.
pub(crate) struct Census(Vec<Connection>);

impl Census {
    /// Servers that do not answer are left out: on a quorum others count.
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

    /// Commands since the servers were started, by whomever; `None` where there are no servers.
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
    let connection = server.client().get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
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
    fn what_scripts_call_is_not_counted() {
        let info = "# Commandstats\r\ncmdstat_set:calls=100,usec=1\r\ncmdstat_evalsha:calls=7,usec=2,usec_per_call=0.1\r\n\
                    cmdstat_client|caching:calls=2,usec=1\r\ncmdstat_eval:calls=1,usec=9\r\ncmdstat_info:calls=5,usec=1\r\n";
        assert_eq!(sent(info), 10);
    }
}
