use super::schemes::scheme_of;
use fencelock_core::Invalid;
use fencelock_redis::Server;

/// The Redis servers that a URL names; none if the backend has none. The masters of a cluster, and that of sentinels, are asked for;
/// this blocks.
///
/// # Errors
/// [`Invalid`] for a URL that cannot be used, and if the servers cannot be found.
pub fn servers(url: &str) -> Result<Vec<Server>, Invalid> {
    scheme_of(url)?;
    fencelock_redis::servers(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_servers_of_its_scheme() {
        let names = |url| servers(url).unwrap().iter().map(|server| server.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names("redis://u:p@h/3?prefix=x"), ["redis://h:6379/3"]);
        assert_eq!(names("redlock://a,b:7,c").len(), 3);
        assert_eq!(names("memory:"), [""; 0]);
        assert!(servers("redis://h?nonsense=1").is_err() && servers("nowhere:x").is_err());
    }
}
