//! Counts the commands that clients send to the servers, and the processor time of the servers.

use crate::error::NotMeasured;
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

    /// The counts of all servers since their start; `None` without servers.
    pub(crate) fn read(&mut self) -> Result<Option<ServerCounts>, NotMeasured> {
        let mut sum: Option<ServerCounts> = None;
        for connection in &mut self.0 {
            let commands: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
            let cpu: String = redis::cmd("INFO").arg("cpu").query(connection)?;
            let sum = sum.get_or_insert_default();
            sum.commands += sent(&commands);
            sum.cpu_us += processor_time(&cpu);
        }
        Ok(sum)
    }
}

/// What servers have done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServerCounts {
    /// The commands that clients have sent.
    pub(crate) commands: u64,
    /// The processor time in microseconds.
    pub(crate) cpu_us: u64,
}

impl ServerCounts {
    /// What was done between two readings.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(before.commands),
            cpu_us: self.cpu_us.saturating_sub(before.cpu_us),
        }
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

/// User and system time of all threads of a server, in microseconds.
fn processor_time(info: &str) -> u64 {
    let seconds = info.lines().filter_map(|line| {
        let (name, value) = line.trim_end().split_once(':')?;
        ["used_cpu_sys", "used_cpu_user"].contains(&name).then(|| value.parse::<f64>().ok()).flatten()
    });
    Duration::try_from_secs_f64(seconds.sum()).map_or(0, |sum| u64::try_from(sum.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_is_the_sum_of_user_and_system() {
        let info = "# CPU\r\nused_cpu_sys:0.500001\r\nused_cpu_user:1.25\r\nused_cpu_sys_children:9.0\r\n\
                    used_cpu_user_main_thread:1.25\r\n";
        assert_eq!(processor_time(info), 1_750_001);
        assert_eq!(processor_time("used_cpu_sys:x"), 0);
    }

    #[test]
    fn commands_inside_scripts_are_not_counted() {
        let info = "# Commandstats\r\ncmdstat_set:calls=100,usec=1\r\ncmdstat_evalsha:calls=7,usec=2,usec_per_call=0.1\r\n\
                    cmdstat_client|caching:calls=2,usec=1\r\ncmdstat_eval:calls=1,usec=9\r\ncmdstat_info:calls=5,usec=1\r\n";
        assert_eq!(sent(info), 10);
    }
}
