use super::Quorum;
use crate::connect::ConnectError;
use crate::redis::Redis;
use fencelock_core::{Backend, Invalid, Quorum as Size, Unknown};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long the other nodes have to answer when a majority has.
const STRAGGLERS: Duration = Duration::from_millis(250);

/// Connects to the nodes of `redlock://[user:password@]host[:port],...[?option=value&...]`. The options are those of each
/// node's `redis://` URL, and `trust_empty=true`.
///
/// A majority must answer; the others are found when they come up.
pub(crate) async fn open(url: &str) -> Result<Quorum, ConnectError> {
    let urls = node_urls(url)?;
    let size = Size::new(urls.len())?;
    let mut nodes: Vec<Arc<dyn Backend>> = Vec::new();
    for url in &urls {
        nodes.push(Arc::new(Redis::lazy(url)?));
    }
    check_nodes(size, &nodes).await?;
    Ok(Quorum::trusting_empty(nodes)?)
}

async fn check_nodes(size: Size, nodes: &[Arc<dyn Backend>]) -> Result<(), ConnectError> {
    let (answers, mut inbox) = tokio::sync::mpsc::unbounded_channel();
    for node in nodes {
        let (node, answers) = (Arc::clone(node), answers.clone());
        tokio::spawn(async move {
            let identity = node.identity().await;
            let _ = answers.send((node.name(), identity));
        });
    }
    drop(answers);
    let (mut known, mut causes, mut enough) = (Vec::<(String, Option<String>)>::new(), Vec::new(), None);
    loop {
        let answer = tokio::select! {
            answer = inbox.recv() => answer,
            () = sleep_until(enough.unwrap_or_else(Instant::now)), if enough.is_some() => break,
        };
        match answer {
            None => break,
            Some((_, Err(cause))) => causes.extend(cause.nodes().to_vec()),
            Some((name, Ok(identity))) => {
                refuse_twin(&known, &name, identity.as_deref())?;
                known.push((name, identity));
                if known.len() >= size.majority() {
                    enough = enough.or_else(|| Some(Instant::now() + STRAGGLERS));
                }
            }
        }
    }
    if known.len() < size.majority() { Err(Unknown::of_nodes(causes).into()) } else { Ok(()) }
}

fn refuse_twin(known: &[(String, Option<String>)], name: &str, identity: Option<&str>) -> Result<(), Invalid> {
    match known.iter().find(|(_, other)| identity.is_some() && other.as_deref() == identity) {
        None => Ok(()),
        Some((twin, _)) => Err(Invalid::new(format!(
            "{twin} and {name} are the same server: a quorum is made of servers that fail one by one"
        ))),
    }
}

/// One `redis://` URL for each node. Its errors do not repeat the URL, for it may carry passwords.
fn node_urls(url: &str) -> Result<Vec<String>, Invalid> {
    let rest = url.strip_prefix("redlock://").unwrap_or(url);
    let (list, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (mut options, mut trust) = (Vec::new(), None);
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("trust_empty", value)) => trust = Some(value),
            _ => options.push(option),
        }
    }
    if trust != Some("true") {
        return Err(Invalid::new(
            "redlock:// needs ?trust_empty=true for now: the quarantine of restarted nodes is not built yet, so a node that \
             was restarted empty, flushed or failed over is trusted at once. With trust_empty=true, keep such a node away \
             for the longest TTL in use",
        ));
    }
    let mut urls = Vec::new();
    let mut hosts: Vec<String> = Vec::new();
    for node in list.split(',') {
        let host = node.rsplit_once('@').map_or(node, |(_, host)| host).trim_end_matches('/').to_lowercase();
        if host.is_empty() {
            return Err(Invalid::new("redlock:// names its nodes like this: redlock://one:6379,two:6379,three:6379"));
        }
        let host = if has_port(&host) { host } else { format!("{host}:6379") };
        if hosts.contains(&host) {
            return Err(Invalid::new(format!("{host} is named twice: a quorum is made of different servers")));
        }
        hosts.push(host);
        let question = if options.is_empty() { "" } else { "?" };
        urls.push(format!("redis://{node}{question}{}", options.join("&")));
    }
    Ok(urls)
}

/// Colons inside the brackets of an IPv6 address are no port.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']').map_or(host, |(_, after)| after).contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(rest: &str) -> Result<Vec<String>, String> {
        node_urls(&format!("redlock://{rest}")).map_err(|error| error.to_string())
    }

    #[test]
    fn options_go_to_every_node_and_credentials_to_their_own() {
        let urls = urls("a:1,u:p@b,[::1]:7?prefix=x%3A&trust_empty=true&timeout=50").unwrap();
        let options = "?prefix=x%3A&timeout=50";
        assert_eq!(urls, ["a:1", "u:p@b", "[::1]:7"].map(|node| format!("redis://{node}{options}")));
    }

    #[test]
    fn without_trust_it_is_refused_with_the_reason() {
        for rest in ["a,b,c", "a,b,c?trust_empty=false", "a,b,c?trust_empty"] {
            assert!(urls(rest).unwrap_err().contains("restarted"), "{rest}");
        }
    }

    #[test]
    fn one_server_named_twice_is_refused_without_its_password() {
        for rest in ["a,b,a", "a,b,A:6379", "u:s3cret@a,b,a:6379", "[::1],[::1]:6379"] {
            let error = urls(&format!("{rest}?trust_empty=true")).unwrap_err();
            assert!(error.contains("twice") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_node_without_a_name_is_refused() {
        for rest in ["", "a,,b", "a,"] {
            assert!(urls(&format!("{rest}?trust_empty=true")).unwrap_err().contains("one:6379"), "{rest}");
        }
    }
}
