//! The servers of a URL, for administration.

use super::node_setup::targets;
use super::script::SIDE;
use super::target::{Role, Target};
use crate::schemes::scheme_of;
use fencelock_core::{Invalid, Key, SideKeys};

/// A Redis server that stores locks.
#[derive(Debug, Clone)]
pub struct Server {
    target: Target,
}

/// The Redis servers of a URL; empty if the backend has none.
///
/// # Errors
/// [`Invalid`] for an invalid URL.
pub fn servers(url: &str) -> Result<Vec<Server>, Invalid> {
    Ok(scheme_of(url)?.bench(url, "")?.servers)
}

impl Server {
    /// The server of a `redis://` URL.
    pub(crate) fn alone(url: &str) -> Result<Self, Invalid> {
        Ok(Self { target: Target::parse_as(Role::Alone, url)? })
    }

    /// The servers of a set, one URL each.
    pub(crate) fn of_set(urls: &[String]) -> Result<Vec<Self>, Invalid> {
        Ok(targets(urls)?.into_iter().map(|target| Self { target }).collect())
    }

    /// Its address, without a password.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// The driver's client for it, with all connection settings of the URL.
    pub fn client(&self) -> &redis::Client {
        &self.target.client
    }

    /// All keys that a lock may use: its own key on the server, and its side keys. Deleting them
    /// while the lock is in use breaks it.
    pub fn names(&self, key: &Key) -> Vec<String> {
        let wire = self.target.wire(key);
        let mut side = SideKeys::of(&wire);
        let mut names: Vec<_> = SIDE.iter().map(|what| side.name(what).to_owned()).collect();
        names.push(wire.into_owned());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_have_one_server_or_several_or_none() {
        let names = |url| servers(url).unwrap().iter().map(|server| server.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names("redis://u:p@h/3?prefix=x"), ["redis://h:6379/3"]);
        assert_eq!(names("redlock://a,b:7,c").len(), 3);
        assert_eq!(names("memory:"), [""; 0]);
        assert!(servers("redis://h?nonsense=1").is_err());
    }

    #[test]
    fn a_lock_has_five_names_with_the_prefix_of_the_url() {
        let server = servers("redis://h?prefix=p:").unwrap().remove(0);
        let names = server.names(&Key::new("k").unwrap());
        let side = ["fence", "line", "waiters", "alive"].map(|what| format!("fencelock:{{p:k}}:{what}"));
        assert_eq!(names, [&side[..], &["p:k".to_owned()]].concat());
    }
}
