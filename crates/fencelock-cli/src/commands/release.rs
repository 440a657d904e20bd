use super::renew::{not_held, proof};
use crate::args::Release;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::plain;
use fencelock::{LossReason, Released};
use serde_json::json;

/// Releases a lock that `acquire` acquired.
pub(super) async fn release(release: Release, context: &Context) -> Result<Exit, Failure> {
    let holder = proof(&release.holder)?;
    context
        .with_client(async |client| {
            let key = &release.key;
            let (exit, why) = match client.release(key, holder).await? {
                Released::Released => (Exit::Success, None),
                Released::AlreadyLost { why } => (Exit::Lost, Some(why)),
            };
            if context.report.json {
                let answer =
                    json!({ "key": key, "released": why.is_none(), "reason": why.as_ref().map(LossReason::to_string) });
                context.answer(&format!("{answer}\n"))?;
                return Ok(exit);
            }
            match why {
                None => context.answer(&format!("{}: released\n", plain(key)))?,
                Some(why) => return Err(not_held(key, &why)),
            }
            Ok(exit)
        })
        .await
}
