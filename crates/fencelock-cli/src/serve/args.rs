use crate::{exit, settings, values};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// Hold locks for other programs, over a pipe or a socket.
///
/// The protocol is JSON-RPC, one message a line. A connection is a session: when it ends, or the process at its other end, its locks
/// are released. All sessions share one client of the backend, which serves them in the order of their requests.
///
/// TERM ends it: new locks are refused, the sessions are told, and what they still hold after --grace is released. With --stdio, INT
/// and HUP are ignored: the program that has started it receives them too, and decides.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS, override_usage = "fencelock serve [OPTIONS] --stdio
       fencelock serve [OPTIONS] --listen unix:PATH")]
pub(crate) struct Serve {
    /// Serve one session over standard input and output, for the program that starts this one.
    #[arg(long, required_unless_present = "listen", conflicts_with_all = ["listen", "mode", "group"])]
    pub(crate) stdio: bool,
    /// Serve many sessions on a Unix socket: unix:PATH, or `systemd` for the one that systemd passes. Not over TCP.
    #[arg(long, value_name = "ADDRESS", value_parser = address, value_hint = ValueHint::FilePath)]
    pub(crate) listen: Option<Address>,
    /// Permissions of the socket: 0660 for its user and group.
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "0600")]
    pub(crate) mode: u32,
    /// Group of the socket, by name or number [default: that of this process]
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Time between the announcement of the end and the release of the locks.
    #[arg(long, value_name = "DURATION", value_parser = values::span, default_value = "10s")]
    pub(crate) grace: Duration,
    /// Keep the lease of a released lock this long for the next session: 1s. Meanwhile other machines that try once find it held.
    #[arg(long, value_name = "DURATION", value_parser = values::span, default_value = "0")]
    pub(crate) idle_timeout: Duration,
    /// Time to live of a lease for which a request names none.
    #[arg(long, value_name = "DURATION", value_parser = values::span, default_value = settings::TTL)]
    pub(crate) ttl: Duration,
    /// Sessions at a time.
    #[arg(long, value_name = "N", default_value_t = 16_384, conflicts_with = "stdio")]
    pub(crate) connections: usize,
}

/// Where sessions come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    File(PathBuf),
    Systemd,
}

fn address(text: &str) -> Result<Address, String> {
    let path =
        text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text)).filter(|path| !path.is_empty());
    match (text, path) {
        ("systemd", _) => Ok(Address::Systemd),
        (_, Some(path)) => Ok(Address::File(path.into())),
        _ => Err("sessions come over a Unix socket only: unix:PATH, or systemd".to_owned()),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} are no permissions: write 0600, 0660 or 0666"))
}
