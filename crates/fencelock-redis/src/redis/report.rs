//! A report about a server and its features, for programs.

use super::Redis;
use super::features::features;
use super::health::fields;
use super::product::Product;
use super::session::Session;
use super::target::Target;
use super::topology::topology;
use super::wire::WIRE;
use fencelock_core::{BackendReport, ServerReport};
use std::collections::HashMap;
use std::time::Duration;

pub(crate) async fn report(redis: &Redis) -> BackendReport {
    let mut server = ServerReport::new(redis.link.node());
    match redis.session().await {
        Ok(session) => {
            let info = everything(&session).await;
            let product = Product::of(&info, &session.server_info.version);
            server.product = product.name.map(str::to_owned);
            server.version = product.version;
            server.topology = topology(&session, &info);
            server.features = features(redis, &session, server.topology).await;
        }
        Err(unknown) => server.failure = Some(unknown.to_string()),
    }
    let mut report = BackendReport::of_server(server);
    report.options = options(&redis.link.target);
    report.wire = WIRE.parse().ok();
    report
}

/// All fields of `INFO`; none if it is refused.
pub(super) async fn everything(session: &Session) -> HashMap<String, String> {
    let info = session.send(redis::cmd("INFO").arg("everything")).await;
    info.map_or_else(|_| HashMap::new(), |info| fields(&redis::from_redis_value::<String>(info).unwrap_or_default()))
}

/// The options of the URL and their defaults. Files of passwords, certificates and keys are not named.
fn options(target: &Target) -> Vec<(&'static str, String)> {
    let millis = |span: Duration| span.as_millis().to_string();
    let on = |is_on| if is_on { "on" } else { "off" }.to_owned();
    let mut options = vec![
        ("db", target.client.get_connection_info().redis_settings().db().to_string()),
        ("prefix", target.prefix.clone()),
        ("timeout", millis(target.limit)),
        ("protocol", if target.resp3 { "resp3" } else { "resp2" }.to_owned()),
        ("push", on(target.push)),
        ("acks", target.acks.map_or(0, |acks| acks.replicas).to_string()),
    ];
    options.extend(target.acks.map(|acks| ("acks_timeout", millis(acks.limit))));
    options.push(("quarantine", on(target.quarantine.is_some())));
    if let Some(quarantine) = &target.quarantine {
        options.push(("max_ttl", millis(quarantine.max_ttl.get())));
        options.push(("trust_empty", quarantine.trust.to_string()));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_defaults_and_no_secret() {
        let of = |url| options(&Target::parse(url).unwrap());
        let plain = of("redis://alice:s3cret@h");
        assert!(!format!("{plain:?}").contains("s3cret") && !format!("{plain:?}").contains("alice"), "{plain:?}");
        let value = |options: &[(&str, String)], wanted: &str| {
            options.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone())
        };
        assert_eq!(value(&plain, "timeout").as_deref(), Some("1000"));
        assert_eq!(value(&plain, "max_ttl"), None);
        let set = of("redis://h/3?acks=1&timeout=300&quarantine=on&push=off");
        for (name, expected) in
            [("db", "3"), ("acks_timeout", "300"), ("quarantine", "on"), ("max_ttl", "60000"), ("push", "off")]
        {
            assert_eq!(value(&set, name).as_deref(), Some(expected), "{name}");
        }
    }
}
