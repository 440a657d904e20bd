//! The hosts that a URL lists.

/// Host and port.
pub(crate) type Address = (String, u16);

/// An IPv6 address has brackets.
pub(crate) fn shown((host, port): &Address) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The host without brackets, and its port; `None` if it is not a host.
pub(crate) fn host_and_port(text: &str, default: u16) -> Option<Address> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port = match port {
        "" => default,
        port => port.parse().ok().filter(|port| *port > 0)?,
    };
    let is_host =
        !host.is_empty() && !host.chars().any(|c| c.is_whitespace() || c.is_control() || "/?#@[]".contains(c));
    is_host.then(|| (host.to_ascii_lowercase(), port))
}

/// A host that occurs more than once.
pub(crate) fn listed_twice(hosts: &[Address]) -> Option<&Address> {
    hosts.iter().enumerate().find(|(number, host)| hosts[..*number].contains(host)).map(|(_, host)| host)
}
