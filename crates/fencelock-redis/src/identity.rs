//! Which URLs lock the same keys, for [`Scheme::identity`](fencelock_core::Scheme::identity).

/// The name of the backend, and the options of the URL that name its keys.
pub(crate) fn identity(url: &str, name: &str) -> String {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let naming =
        query.split(['?', '&']).filter(|option| option.starts_with("prefix=") || option.starts_with("compat="));
    naming.fold(name.to_owned(), |backend, option| format!("{backend}?{option}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_no_password_and_distinguishes_prefixes() {
        let of = |query: &str| identity(&format!("redis://u:s3cret@h?{query}"), "redis://h:6379");
        assert_eq!(of("timeout=5"), "redis://h:6379");
        assert_eq!(of("timeout=5&prefix=a%3A"), "redis://h:6379?prefix=a%3A");
        assert_ne!(of("compat=pottery"), of("compat=php-lock"));
    }
}
