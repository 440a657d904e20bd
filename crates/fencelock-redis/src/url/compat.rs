use fencelock_core::{Invalid, Key};

const PREFIX_MAX: usize = 128;

/// The prefix that a compatible library adds to each key. `docs/en/sharing-keys.md` describes what is safe with each.
///
/// Each of these libraries stores a lock as a string, and its name differs only by a prefix, so a preset is a prefix.
pub(crate) fn prefix_of(preset: &str) -> Result<String, Invalid> {
    let prefix = match preset.split_once(':') {
        None => match preset {
            "redlock.net" | "pottery" => "redlock:",
            "redis-semaphore" => "mutex:",
            "php-lock" => "php-malkusch-lock:",
            "shedlock" => "job-lock:default:",
            _ => return Err(unknown(preset)),
        }
        .to_owned(),
        // The prefix of Laravel depends on the application: the prefix of the connection, then that of the cache.
        Some(("laravel", prefix)) if !prefix.is_empty() => prefix.to_owned(),
        Some(("shedlock", environment)) if !environment.is_empty() => format!("job-lock:{environment}:"),
        Some(_) => return Err(unknown(preset)),
    };
    checked("compat", prefix)
}

/// A prefix that results in a valid name.
pub(crate) fn checked(option: &str, prefix: String) -> Result<String, Invalid> {
    // With "fence", the key "lock:{a}:fence" would be the side key of the lock "a".
    let reserved = prefix.starts_with(Key::RESERVED) || !prefix.is_empty() && Key::RESERVED.starts_with(&prefix);
    if prefix.len() > PREFIX_MAX || prefix.chars().any(char::is_control) || reserved {
        return Err(Invalid::new(format!(
            "{option}= takes a prefix of at most {PREFIX_MAX} bytes without control characters, and not the prefix of fencelock"
        )));
    }
    Ok(prefix)
}

fn unknown(preset: &str) -> Invalid {
    Invalid::new(format!(
        "compat={preset} is not a preset; the presets are redlock.net, pottery, redis-semaphore, php-lock, laravel:PREFIX and shedlock:ENV"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::target::Target;
    use fencelock_core::side_key;

    fn redis_key(query: &str, key: &str) -> String {
        Target::parse(&format!("redis://h?{query}")).unwrap().redis_key(&Key::new(key).unwrap()).into_owned()
    }

    #[test]
    fn each_preset_names_a_key_as_its_library_does() {
        for (preset, name) in [
            ("redlock.net", "redlock:orders"),
            ("pottery", "redlock:orders"),
            ("redis-semaphore", "mutex:orders"),
            ("php-lock", "php-malkusch-lock:orders"),
            ("laravel:shop_database_shop_cache_", "shop_database_shop_cache_orders"),
            ("laravel:shop_database_shop_cache%3A", "shop_database_shop_cache:orders"),
            ("shedlock", "job-lock:default:orders"),
            ("shedlock:production", "job-lock:production:orders"),
        ] {
            assert_eq!(redis_key(&format!("compat={preset}"), "orders"), name, "{preset}");
        }
    }

    #[test]
    fn side_keys_are_in_the_slot_of_their_lock() {
        for (query, key, fence) in [
            ("compat=redis-semaphore", "orders", "fencelock:{mutex:orders}:fence"),
            ("compat=pottery", "{user:1}:cart", "fencelock:key:redlock:{user:1}:cart:fence"),
            ("compat=laravel:{shop}:", "orders", "fencelock:key:{shop}:orders:fence"),
            ("compat=laravel:{shop}:", "{user:1}", "fencelock:key:{shop}:{user:1}:fence"),
        ] {
            assert_eq!(side_key(&redis_key(query, key), "fence"), fence, "{query} {key}");
        }
    }

    #[test]
    fn an_unknown_preset_is_rejected_with_a_list_of_presets() {
        for preset in ["", "redlock", "laravel", "laravel:", "shedlock:", "pottery:x"] {
            let error = Target::parse(&format!("redis://h?compat={preset}")).unwrap_err().to_string();
            assert!(error.contains(&format!("compat={preset}")) && error.contains("php-lock"), "{error}");
        }
    }

    #[test]
    fn a_preset_and_a_prefix_cannot_be_combined() {
        for query in ["compat=pottery&prefix=x", "prefix=x&compat=pottery"] {
            let error = Target::parse(&format!("redis://h?{query}")).unwrap_err().to_string();
            assert!(error.contains("compat=") && error.contains("prefix="), "{error}");
        }
    }

    #[test]
    fn a_reserved_prefix_is_rejected() {
        for query in [
            "compat=laravel:fencelock:{a}:",
            "prefix=fencelock:{",
            "prefix=fencelock:",
            "prefix=fence",
            "prefix=f",
            "compat=shedlock:%0A",
        ] {
            assert!(Target::parse(&format!("redis://h?{query}")).is_err(), "{query}");
        }
        assert_eq!(redis_key("prefix=fencelock-", "k"), "fencelock-k");
    }
}
