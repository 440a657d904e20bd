use crate::args::Resize;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::text::plain;
use fencelock::{Client, Resized};
use serde_json::json;

/// Changes the limit of a semaphore.
pub(super) async fn resize(resize: &Resize, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let resized = client.semaphore(&resize.key, resize.permits).resize().await?;
    let json = json!({
        "key": resize.key,
        "resized": resized.before != resized.limit,
        "limit_before": resized.before,
        "limit": resized.limit,
        "used": resized.used,
        "holder_count": resized.holders,
    });
    context.answer_with(&json, &format!("{}: {}", plain(&resize.key), words(&resized)))
}

/// `20 permits instead of 10; 3 holders use 7`
fn words(resized: &Resized) -> String {
    let Resized { before, limit, used, holders, .. } = resized;
    let permits = if *limit == 1 { "permit" } else { "permits" };
    let before = if before == limit { "as before".to_owned() } else { format!("instead of {before}") };
    let (holders, verb) =
        if *holders == 1 { ("1 holder".to_owned(), "uses") } else { (format!("{holders} holders"), "use") };
    let over = if *used > u64::from(*limit) { ", so none is granted until enough are returned" } else { "" };
    format!("{limit} {permits} {before}; {holders} {verb} {used}{over}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_both_limits_and_what_is_in_use() {
        assert_eq!(words(&Resized::new(10, 20, 7, 3)), "20 permits instead of 10; 3 holders use 7");
        assert_eq!(words(&Resized::new(2, 2, 1, 1)), "2 permits as before; 1 holder uses 1");
        let smaller = "1 permit instead of 10; 3 holders use 7, so none is granted until enough are returned";
        assert_eq!(words(&Resized::new(10, 1, 7, 3)), smaller);
    }
}
