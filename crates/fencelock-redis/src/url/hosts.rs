//! The hosts that a URL lists.

use fencelock_core::Invalid;

/// Host and port.
pub(crate) type Address = (String, u16);

/// An IPv6 address has brackets.
pub(crate) fn shown((host, port): &Address) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The login before a list of hosts, up to an `@`, and the hosts.
///
/// # Errors
/// `form()`, and [`Invalid`] for more than `most` hosts, and for one that is listed twice. `what` they are, and why they must differ.
pub(crate) fn listed<'a>(
    authority: &'a str,
    port: u16,
    (what, most, differ): (&str, usize, &str),
    form: fn() -> Invalid,
) -> Result<(&'a str, Vec<Address>), Invalid> {
    let list = authority.rfind('@').map_or(0, |at| at + 1);
    let hosts = authority[list..].split(',').map(|text| host_and_port(text, port).ok_or_else(form));
    let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
    if hosts.len() > most {
        return Err(Invalid::new(format!("a URL lists at most {most} {what}s, and this one lists {}", hosts.len())));
    }
    if let Some((_, twice)) = hosts.iter().enumerate().find(|(number, host)| hosts[..*number].contains(host)) {
        return Err(Invalid::new(format!("the {what} {} is listed twice{differ}", shown(twice))));
    }
    Ok((&authority[..list], hosts))
}

/// The host without brackets, and its port; `None` if it is not a host.
fn host_and_port(text: &str, default: u16) -> Option<Address> {
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
