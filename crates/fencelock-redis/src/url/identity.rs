//! Which URLs lock the same keys, for [`Scheme::identity`](fencelock_core::Scheme::identity).

/// The name of the backend, and the options of the URL that name its keys.
pub(crate) fn identity(url: &str, name: &str) -> String {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let naming = query.split(['?', '&']).filter(|option| {
        option.starts_with("compat=") || option.strip_prefix("prefix=").is_some_and(|prefix| !prefix.is_empty())
    });
    naming.fold(name.to_owned(), |backend, option| {
        format!("{backend}?{}", percent_encoding::percent_decode_str(option).decode_utf8_lossy())
    })
}

/// The name of a quorum with its nodes in one order, as their order and the case of their hosts do not matter.
pub(crate) fn in_order(name: &str) -> String {
    let Some((scheme, nodes)) = name.split_once("://") else { return name.to_owned() };
    let mut nodes: Vec<_> = nodes.split(',').map(str::to_lowercase).collect();
    nodes.sort_unstable();
    format!("{scheme}://{}", nodes.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_nodes_of_a_quorum_does_not_matter() {
        assert_eq!(in_order("redlock://B:1,a:2,C:3/4"), "redlock://a:2,b:1,c:3/4");
    }

    #[test]
    fn an_identity_has_no_password_and_distinguishes_prefixes() {
        let of = |query: &str| identity(&format!("redis://u:s3cret@h?{query}"), "redis://h:6379");
        assert_eq!(of("timeout=5"), "redis://h:6379");
        assert_eq!(of("timeout=5&prefix=a%3A"), "redis://h:6379?prefix=a:");
        assert_eq!(of("prefix="), of(""));
        assert_ne!(of("compat=pottery"), of("compat=php-lock"));
    }
}
