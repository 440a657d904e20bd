use crate::args::Init;
use crate::context::{Context, print};
use crate::exit::{Exit, Failure};
use crate::json::millis;
use crate::signals::Signals;
use crate::text::{plain, table};
use fencelock::Span;
use fencelock::backends::{Change, ConnectError, RegisteredNode, init as register};
use serde_json::{Value, json};

/// Registers the servers as one set.
pub(super) async fn init(init: Init, context: &Context) -> Result<Exit, Failure> {
    let url = context.url()?;
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let registered = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        registered = register(&url, init.trust_empty) => registered.map_err(|error| failure(error, url.starts_with("quorum:")))?,
    };
    if context.report.json {
        let nodes: Value = registered.iter().map(describe).collect();
        print(&format!("{}\n", json!({ "nodes": nodes })))?;
    } else {
        context.answer(&in_columns(&registered))?;
    }
    Ok(Exit::Success)
}

fn failure(error: ConnectError, is_set: bool) -> Failure {
    match error {
        ConnectError::Url(invalid) => Failure::new(Exit::Usage, invalid),
        // Of a permanent refusal, its remedy is enough.
        ConnectError::Unknown(cause) if !cause.is_permanent() => Failure::new(
            Exit::Unreachable,
            format!(
                "{}{cause}; run `fencelock doctor` for details",
                if is_set { "every server must reply before the set is registered: " } else { "" }
            ),
        ),
        other => fencelock::Error::from(other).into(),
    }
}

fn in_columns(registered: &[RegisteredNode]) -> String {
    let head = ["NODE", "WAS", "READY"].map(str::to_owned);
    let row = |node: &RegisteredNode| {
        let ready = if node.ready_in.is_zero() { "now".to_owned() } else { format!("in {}", Span(node.ready_in)) };
        [plain(&node.node), words(node.change)[1].to_owned(), ready]
    };
    let rows: Vec<_> = std::iter::once(head).chain(registered.iter().map(row)).collect();
    remarks(registered).into_iter().fold(table(&rows), |text, remark| text + &remark + "\n")
}

/// Warnings about likely mistakes.
fn remarks(registered: &[RegisteredNode]) -> Vec<String> {
    let mut remarks = Vec::new();
    let moved = registered.iter().filter(|node| node.change == Change::Moved).count();
    if moved > 0 {
        remarks.push(format!(
            "Clients that use {} in another set fail from now on. To undo this, run `init` with the URL of that set.",
            if moved == 1 { "this node" } else { "these nodes" }
        ));
    }
    // A single server is not a set: it may have replicas and sentinels.
    if registered.len() == 2 {
        remarks.push("A set of two nodes tolerates no failure: use three or five nodes.".to_owned());
    }
    remarks
}

fn describe(node: &RegisteredNode) -> Value {
    json!({ "node": node.node, "was": words(node.change)[0], "ready_in_ms": millis(node.ready_in) })
}

/// What a node was before, in JSON and as text.
const fn words(change: Change) -> [&'static str; 2] {
    match change {
        Change::New => ["new", "new"],
        Change::Moved => ["other_set", "in another set"],
        Change::None => ["this_set", "in this set"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_node_has_a_line() {
        let node = |node: &str, change, ms| RegisteredNode::new(node, change, Duration::from_millis(ms));
        let nodes = [node("redis://a:6379", Change::New, 60_600), node("redis://b:6379", Change::Moved, 0)];
        assert_eq!(
            in_columns(&nodes),
            "NODE            WAS             READY\n\
             redis://a:6379  new             in 1 min\n\
             redis://b:6379  in another set  now\n\
             Clients that use this node in another set fail from now on. To undo this, run `init` with the URL of that set.\n\
             A set of two nodes tolerates no failure: use three or five nodes.\n"
        );
        let three = [Change::New; 3].map(|change| node("redis://a:6379", change, 0));
        assert_eq!(remarks(&three), [""; 0], "no likely mistake");
    }
}
