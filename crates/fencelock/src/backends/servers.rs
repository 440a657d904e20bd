use super::schemes::scheme_of;
use fencelock_core::Invalid;
use fencelock_redis::Server;

/// The Redis servers that a URL names; none if the backend has none.
///
/// # Errors
/// [`Invalid`] for a URL that cannot be used.
pub fn servers(url: &str) -> Result<Vec<Server>, Invalid> {
    let mut servers = Vec::new();
    for url in scheme_of(url)?.bench(url, "")?.servers {
        servers.extend(fencelock_redis::servers(&url)?);
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_servers_of_its_scheme() {
        let names = |url| servers(url).unwrap().iter().map(|server| server.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names("redis://h/3"), ["redis://h:6379/3"]);
        assert_eq!(names("redlock://a,b:7,c").len(), 3);
        assert_eq!(names("memory:"), [""; 0]);
        assert!(servers("redis://h?nonsense=1").is_err() && servers("nowhere:x").is_err());
    }
}
