use super::renew::proof;
use crate::args::Release;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::plain;
use fencelock::Released;
use serde_json::json;

/// Gives back a lock that `acquire` took.
pub(super) async fn release(release: Release, context: &Context) -> Result<Exit, Failure> {
    let holder = proof(&release.holder)?;
    context
        .with_client(async |client| {
            let key = &release.key;
            let (exit, why) = match client.release(key, holder).await? {
                Released::Released => (Exit::Success, None),
                Released::AlreadyLost { why } => (Exit::Lost, Some(why.to_string())),
            };
            if context.report.json {
                let answer = json!({ "key": key, "released": why.is_none(), "reason": why });
                context.answer(&format!("{answer}\n"))?;
                return Ok(exit);
            }
            match why {
                None => context.answer(&format!("{}: released\n", plain(key)))?,
                Some(why) => return Err(Failure::new(exit, format!("{key} was lost before its release: {why}"))),
            }
            Ok(exit)
        })
        .await
}
