//! A master with sentinels, in real failovers.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::{ConnectError, connect};
use fencelock_core::{Acquire, Backend, Claim, Fault, Renew, Renewal, Topology};
use fencelock_testkit::{Reply, ScriptedServer, Sentinels, claim, redis_or_skip, release_surely};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PAUSE: Duration = Duration::from_millis(20);
/// Much longer than a failover takes.
const PATIENCE: Duration = Duration::from_secs(60);

async fn granted(backend: &Arc<dyn Backend>, claim: &Claim) -> Duration {
    let begun = Instant::now();
    loop {
        let answer = backend.acquire(claim).await.answer;
        if matches!(answer, Ok(Acquire::Granted { .. })) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        sleep(PAUSE).await;
    }
}

fn renewal(claim: &Claim, left: Duration) -> Renewal {
    Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl).with_assumed(left)
}

async fn renew(backend: &Arc<dyn Backend>, renewal: &Renewal) -> Result<Renew, Fault> {
    let answer = backend.renew(std::slice::from_ref(renewal)).await.remove(0);
    answer.map_err(|unknown| unknown.nodes()[0].fault)
}

async fn fault(backend: &Arc<dyn Backend>, claim: &Claim) -> Option<Fault> {
    backend.acquire(claim).await.answer.err().map(|unknown| unknown.nodes()[0].fault)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_its_master() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    let backend = connect(&sentinels.url("")).await.unwrap();
    assert_eq!(backend.name(), sentinels.url(""));
    let report = backend.diagnose().await;
    assert_eq!(report.servers[0].topology, Topology::SentinelMaster, "{report:?}");
    assert!(report.servers[0].features.iter().all(|feature| feature.works), "{report:?}");
    let first = claim("k", Duration::from_secs(300));
    granted(&backend, &first).await;
    let old = sentinels.master();
    // The hold is on both replicas.
    assert_eq!(sentinels.servers[old].command(&["WAIT", "2", "20000"]), Reply::Int(2));
    sentinels.fail_over();
    let begun = Instant::now();
    let other = claim("other", Duration::from_secs(30));
    loop {
        granted(&backend, &other).await;
        let new = &sentinels.servers[sentinels.master()];
        if new.command(&["GET", "other"]).text().is_some() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it stays with the old master");
        release_surely(&backend, &other).await;
        sleep(PAUSE).await;
    }
    println!("{:?} from the failover to a grant of the new master", begun.elapsed());
    assert!(matches!(renew(&backend, &renewal(&first, Duration::from_secs(20))).await, Ok(Renew::Renewed { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_master_is_replaced() {
    let Some(mut sentinels) = Sentinels::start_or_skip() else { return };
    let backend = connect(&sentinels.url("")).await.unwrap();
    granted(&backend, &claim("a", Duration::from_secs(30))).await;
    let old = sentinels.master();
    sentinels.servers[old].kill();
    let found = claim("b", Duration::from_secs(30));
    let took = granted(&backend, &found).await;
    println!("{took:?} from the end of the master to a grant of the next one");
    assert_ne!(sentinels.master(), old);
    // A restarted master becomes a replica. No client uses it.
    sentinels.servers[old].restart().unwrap();
    granted(&connect(&sentinels.url("")).await.unwrap(), &claim("c", Duration::from_secs(30))).await;
    assert!(sentinels.servers[sentinels.master()].command(&["GET", "c"]).text().is_some());
}

/// Waits until the new master has refused a claim, and returns when that began.
async fn refused_in_quarantine(backend: &Arc<dyn Backend>, claim: &Claim) -> Instant {
    let begun = Instant::now();
    while fault(backend, claim).await != Some(Fault::Quarantined) {
        assert!(begun.elapsed() < PATIENCE, "the new master has a quarantine");
        release_surely(backend, claim).await;
        sleep(PAUSE).await;
    }
    begun
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_master_keeps_the_leases_that_were_replicated() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    // Longer than a failover takes on any machine.
    let ttl = Duration::from_secs(300);
    let trusting = connect(&sentinels.url("quarantine=on&max_ttl=300000&trust_empty=true")).await.unwrap();
    let held = claim("held", ttl);
    granted(&trusting, &held).await;
    let backend = connect(&sentinels.url("quarantine=on&max_ttl=300000")).await.unwrap();
    assert_eq!(fault(&backend, &claim("free", ttl)).await, None, "according to the marker, it serves");
    let old = sentinels.master();
    assert_eq!(sentinels.servers[old].command(&["WAIT", "2", "20000"]), Reply::Int(2));
    sentinels.fail_over();
    refused_in_quarantine(&backend, &claim("other", ttl)).await;
    // The old master could grant this key to another client before its clients detect that it was replaced.
    assert_eq!(renew(&backend, &renewal(&held, Duration::from_secs(4))).await, Err(Fault::Quarantined));
    assert_eq!(renew(&backend, &renewal(&held, Duration::MAX)).await, Err(Fault::Quarantined));
    assert!(matches!(renew(&backend, &renewal(&held, Duration::from_secs(100))).await, Ok(Renew::Renewed { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_master_begins_with_a_quarantine() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    let trusting = connect(&sentinels.url("quarantine=on&max_ttl=2000&trust_empty=true")).await.unwrap();
    granted(&trusting, &claim("k", Duration::from_secs(2))).await;
    let backend = connect(&sentinels.url("quarantine=on&max_ttl=2000")).await.unwrap();
    sentinels.fail_over();
    let other = claim("other", Duration::from_secs(2));
    let begun = refused_in_quarantine(&backend, &other).await;
    granted(&backend, &other).await;
    // The longest TTL and the window of the old master.
    assert!(begun.elapsed() >= Duration::from_secs(7), "{:?}", begun.elapsed());
    // After that, it renews all locks that it stores.
    let answer = renew(&backend, &renewal(&other, Duration::from_secs(1))).await;
    assert!(matches!(answer, Ok(Renew::Renewed { .. } | Renew::Absent)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_of_sentinels_a_quarantine_grants_nothing_and_other_clients_continue() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    let strict = connect(&sentinels.url("quarantine=on&max_ttl=1000&trust_empty=true")).await.unwrap();
    let plain = connect(&sentinels.url("prefix=plain:")).await.unwrap();
    let (held, other) = (claim("k", Duration::from_secs(1)), claim("other", Duration::from_secs(1)));
    granted(&strict, &held).await;
    sentinels.freeze_sentinel(0);
    granted(&strict, &other).await;
    sentinels.freeze_sentinel(1);
    let begun = Instant::now();
    let mut n = 0;
    // Replies are valid for a window after the last majority.
    let refused = loop {
        n += 1;
        match strict.acquire(&claim(&format!("k{n}"), Duration::from_secs(1))).await.answer {
            Err(unknown) => break unknown,
            Ok(_) => assert!(begun.elapsed() < PATIENCE, "it grants without a majority"),
        }
        sleep(PAUSE).await;
    };
    assert!(refused.to_string().contains("sentinel"), "{refused}");
    assert!(!refused.changed_nothing(), "the server may have granted it: {refused}");
    // Other replies of this master are not valid either. A release does not need a valid reply.
    assert!(strict.inspect(&held.key).await.is_err());
    assert!(strict.read_completion(&held.key).await.is_err());
    assert_eq!(renew(&strict, &renewal(&held, Duration::from_secs(1))).await, Err(Fault::Timeout));
    assert!(strict.release(&other.key, &other.holder.id).await.is_ok());
    granted(&plain, &claim("k", Duration::from_secs(1))).await;
    let fresh = connect(&sentinels.url("prefix=plain:")).await.unwrap();
    granted(&fresh, &claim("k2", Duration::from_secs(1))).await;
    assert!(connect(&sentinels.url("quarantine=on&max_ttl=1000")).await.is_err());
    sentinels.thaw_sentinel(0);
    sentinels.thaw_sentinel(1);
    granted(&strict, &claim("later", Duration::from_secs(1))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_with_other_sentinels_do_not_share_a_quarantine() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    let all = sentinels.url("quarantine=on&max_ttl=1000&trust_empty=true");
    granted(&connect(&all).await.unwrap(), &claim("k", Duration::from_secs(1))).await;
    let first = all.replacen(',', "/mymaster?", 1);
    let one = first.split_once('?').unwrap().0;
    let error = connect(&format!("{one}?quarantine=on&max_ttl=1000")).await.unwrap_err().to_string();
    assert!(error.contains("belongs to mymaster of the sentinels"), "{error}");
    let master = sentinels.servers[0].url();
    let error = connect(&format!("{master}?quarantine=on&max_ttl=1000")).await.unwrap_err().to_string();
    assert!(error.contains("belongs to mymaster of the sentinels"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_a_wrong_url_contains_the_reason() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    let url = sentinels.url("");
    let error = connect(&url.replace("mymaster", "yourmaster")).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Unknown(unknown) if unknown.is_permanent()), "{error}");
    assert!(error.to_string().contains("does not monitor a master \"yourmaster\""), "{error}");
    // A sentinel in place of a server, and a server in place of a sentinel.
    let sentinel = url.split(['/', ',']).nth(2).unwrap();
    let error = connect(&format!("redis://{sentinel}")).await.unwrap_err().to_string();
    assert!(error.contains("redis+sentinel://"), "{error}");
    let error = connect(&format!("redis+sentinel://127.0.0.1:{}/mymaster", sentinels.servers[0].port())).await;
    assert!(error.unwrap_err().to_string().contains("not a sentinel"));
    let error = connect("redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster").await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && error.contains("127.0.0.1:2"), "{error}");
}

/// Without the run id and the replication id, a restart and a promotion cannot be detected.
#[tokio::test(flavor = "multi_thread")]
async fn a_quarantine_needs_info() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    for server in &sentinels.servers {
        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info"]);
    }
    let url = |options| sentinels.url(options).replace("//", "//app:pw@");
    let plain = connect(&url("")).await.unwrap();
    granted(&plain, &claim("k", Duration::from_secs(1))).await;
    let strict = connect(&url("quarantine=on&max_ttl=1000&trust_empty=true")).await;
    assert!(strict.unwrap_err().to_string().contains("allow INFO to this user"));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_resp2_a_client_follows_its_master() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    let backend = connect(&sentinels.url("protocol=resp2&quarantine=on&max_ttl=1000&trust_empty=true")).await.unwrap();
    granted(&backend, &claim("a", Duration::from_secs(1))).await;
    sentinels.fail_over();
    let new = sentinels.master();
    let begun = Instant::now();
    while sentinels.servers[new].command(&["EXISTS", "b"]) != Reply::Int(1) {
        assert!(begun.elapsed() < PATIENCE, "it stays with the old master");
        let _ = backend.acquire(&claim("b", Duration::from_secs(1))).await.answer;
        sleep(PAUSE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_have_separate_credentials() {
    let Some(sentinels) = Sentinels::with_password_or_skip("s3cret") else { return };
    let error = connect(&sentinels.url("")).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Unknown(unknown) if unknown.is_permanent()), "{error}");
    assert!(error.to_string().contains("sentinel_password_file="), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "s3cret\n").unwrap();
    let url = sentinels.url(&format!("sentinel_password_file={}", file.display()));
    granted(&connect(&url).await.unwrap(), &claim("k", Duration::from_secs(1))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_their_master_are_used_over_tls() {
    let Some(sentinels) = Sentinels::with_tls_or_skip() else { return };
    let ca = format!("ca={}", sentinels.servers[0].tls_files().ca.display());
    for options in ["", "&quarantine=on&max_ttl=1000&trust_empty=true"] {
        let backend = connect(&sentinels.url(&format!("{ca}{options}"))).await.unwrap();
        let claim = claim("k", Duration::from_secs(1));
        granted(&backend, &claim).await;
        release_surely(&backend, &claim).await;
    }
    let untrusted = connect(&sentinels.url("")).await.unwrap_err().to_string();
    assert!(untrusted.contains("certificate is not trusted"), "{untrusted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_counts_when_replicas_of_the_named_master_have_it() {
    let Some(sentinels) = Sentinels::start_or_skip() else { return };
    let backend = connect(&sentinels.url("acks=2")).await.unwrap();
    let first = claim("k", Duration::from_secs(300));
    granted(&backend, &first).await;
    for replica in (0..3).filter(|server| *server != sentinels.master()) {
        assert!(sentinels.servers[replica].command(&["GET", "k"]).text().is_some());
    }
    // So it survives a failover to any replica.
    sentinels.fail_over();
    let other = connect(&sentinels.url("")).await.unwrap();
    assert!(matches!(other.acquire(&claim("k", Duration::from_secs(1))).await.answer, Ok(Acquire::Busy(_))));
    let begun = Instant::now();
    while !matches!(renew(&backend, &renewal(&first, Duration::from_secs(200))).await, Ok(Renew::Renewed { .. })) {
        assert!(begun.elapsed() < PATIENCE, "it is renewed at the new master");
        sleep(PAUSE).await;
    }
}

/// A sentinel that names the server at this port, and appends `push` to each reply. It counts the questions.
fn scripted_sentinel(port: &str, push: &'static str, questions: &Arc<AtomicUsize>) -> ScriptedServer {
    let (address, questions) =
        (format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len()), Arc::clone(questions));
    let answer = move |words: &[String]| match words.get(1).map(|word| word.to_uppercase()).as_deref() {
        Some("GET-MASTER-ADDR-BY-NAME") => address.clone().into_bytes(),
        Some("MASTER") => {
            questions.fetch_add(1, Ordering::Relaxed);
            format!("*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n{push}").into_bytes()
        }
        _ => ScriptedServer::greeting(words).unwrap_or_default(),
    };
    ScriptedServer::start(answer).unwrap()
}

fn port(server: &ScriptedServer) -> String {
    server.url().rsplit(':').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_of_the_sentinels_that_answer_gets_no_password() {
    let (contacts, questions) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let counted = Arc::clone(&contacts);
    let hostile = ScriptedServer::start(move |words| {
        counted.fetch_add(1, Ordering::Relaxed);
        ScriptedServer::greeting(words).unwrap_or_default()
    })
    .unwrap();
    let sentinels = [
        scripted_sentinel(&port(&hostile), "", &questions),
        scripted_sentinel("1", "", &questions),
        scripted_sentinel("2", "", &questions),
    ];
    let hosts = sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", port(sentinel))).join(",");
    let refused = connect(&format!("redis+sentinel://:s3cret@{hosts}/m")).await.unwrap_err().to_string();
    assert!(refused.contains("no majority"), "{refused}");
    assert_eq!(contacts.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_messages_of_a_sentinel_causes_a_few_questions_a_second() {
    const SWITCHED: &str = ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$1\r\nm\r\n";
    let Some(server) = redis_or_skip() else { return };
    let questions = Arc::default();
    let sentinel = scripted_sentinel(&server.port().to_string(), SWITCHED, &questions);
    let backend = connect(&format!("redis+sentinel://127.0.0.1:{}/m", port(&sentinel))).await.unwrap();
    granted(&backend, &claim("k", Duration::from_secs(30))).await;
    let before = questions.load(Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    let asked = questions.load(Ordering::Relaxed) - before;
    assert!((1..30).contains(&asked), "{asked} in two seconds");
}
