use crate::args::Renew;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::{millis, plain};
use fencelock::{Error, HolderId, LossReason, Span};
use serde_json::json;
use std::fmt;

/// Keeps a lock that `acquire` took.
pub(super) async fn renew(renew: Renew, context: &Context) -> Result<Exit, Failure> {
    let holder = proof(&renew.holder)?;
    context
        .with_client(async |client| {
            client.renew(&renew.key, holder, renew.ttl).await.map_err(|error| match error {
                Error::Lost { key, reason, .. } => not_held(key, &reason),
                error => error.into(),
            })?;
            let answer = if context.report.json {
                json!({ "key": renew.key, "renewed": true, "ttl_ms": millis(renew.ttl) }).to_string()
            } else {
                format!("{}: held for another {}", plain(&renew.key), Span(renew.ttl))
            };
            context.answer(&format!("{answer}\n"))?;
            Ok(Exit::Success)
        })
        .await
}

/// Reads what `acquire` printed; a shell may have left the line break.
pub(super) fn proof(text: &str) -> Result<HolderId, Failure> {
    text.trim().parse().map_err(|invalid| Failure::new(Exit::Usage, format!("--holder: {invalid}")))
}

/// Nobody has watched the hold since `acquire`, so its end may as well have been a release.
pub(super) fn not_held(key: impl fmt::Display, why: &LossReason) -> Failure {
    let told = match why {
        LossReason::Expired => "it was released already, or its lease has ended".to_owned(),
        why => why.to_string(),
    };
    Failure::new(Exit::Lost, format!("{key} is not held under that holder any more: {told}"))
}
