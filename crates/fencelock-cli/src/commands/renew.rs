use crate::args::Renew;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::{millis, plain};
use fencelock::{HolderId, Span};
use serde_json::json;

/// Keeps a lock that `acquire` took.
pub(super) async fn renew(renew: Renew, context: &Context) -> Result<Exit, Failure> {
    let holder = proof(&renew.holder)?;
    context
        .with_client(async |client| {
            client.renew(&renew.key, holder, renew.ttl).await?;
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
