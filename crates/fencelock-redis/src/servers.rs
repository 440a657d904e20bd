use crate::cluster::Cluster;
use crate::quorum::node_urls;
use crate::redis::Server;
use fencelock_core::Invalid;

/// The Redis servers that a `redis://` or `redlock://` URL names, and the masters of the cluster of a `redis+cluster://` URL,
/// which are read from the cluster.
///
/// # Errors
/// [`Invalid`] for a URL that cannot be used.
pub fn servers(url: &str) -> Result<Vec<Server>, Invalid> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("redlock" | "redlock+tls") => Server::of_set(&node_urls(url)?),
        Some("redis+cluster" | "rediss+cluster") => Cluster::servers(url),
        _ => Ok(vec![Server::alone(url)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::Key;

    #[test]
    fn a_url_names_one_server_or_several() {
        let names = |url| servers(url).unwrap().iter().map(|server| server.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names("redis://u:p@h/3?prefix=x"), ["redis://h:6379/3"]);
        assert_eq!(names("redlock://a,b:7,c").len(), 3);
        assert!(servers("redis://h?nonsense=1").is_err() && servers("memory:").is_err());
    }

    #[test]
    fn a_lock_has_seven_names_with_the_prefix_of_the_url() {
        let server = servers("redis://h?prefix=p:").unwrap().remove(0);
        let names = server.names(&Key::new("k").unwrap());
        let side =
            ["fence", "line", "waiters", "alive", "holds", "held"].map(|what| format!("fencelock:{{p:k}}:{what}"));
        assert_eq!(names, [&side[..], &["p:k".to_owned()]].concat());
    }
}
