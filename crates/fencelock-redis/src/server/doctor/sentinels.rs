use crate::sentinel::Mastership;
use crate::url::hosts::shown;
use fencelock_core::{Finding, Level, NodeFault, votes_for};

/// Fewer sentinels cannot replace a master when one of them fails.
const ENOUGH: usize = 3;

/// Checks whether the sentinels reply and agree on the master of this session.
pub(crate) async fn diagnose(mastership: &Mastership) -> Vec<Finding> {
    let answers = mastership.sentinels().query(|_| false).await;
    let (named, all) = (mastership.named(), answers.named.len());
    let votes = votes_for(&answers.named, named);
    let answered = answers.named.iter().flatten().count();
    let text = format!(
        "{votes} of {all} name {} as the master, in configuration epoch {}",
        shown(&named.address),
        named.config_epoch
    );
    let mut findings = vec![match answered {
        _ if votes == all => Finding::fine("sentinels", text),
        _ if votes * 2 <= all => Finding::new(
            Level::Failure,
            "sentinels",
            format!("{text}: no majority{}", listed(&answers.faults)),
            "start the sentinels, or wait for the end of a failover; with quarantine=on nothing is granted until then",
        ),
        _ if answered < all => Finding::new(
            Level::Warning,
            "sentinels",
            format!("{text}{}", listed(&answers.faults)),
            "check these sentinels, or remove them from the URL of all clients",
        ),
        _ => {
            Finding::new(Level::Note, "sentinels", format!("{text}: a failover is in progress"), "repeat this command")
        }
    }];
    if all < ENOUGH {
        findings.push(Finding::new(
            Level::Note,
            "sentinels",
            format!("the URL lists {all}, and a majority of them must agree"),
            "list at least three sentinels, on different machines",
        ));
    }
    findings
}

fn listed(faults: &[NodeFault]) -> String {
    faults.iter().fold(String::new(), |text, fault| text + "; " + &fault.to_string())
}
