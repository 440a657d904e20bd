//! What holds on an API server beside the contract of every backend.

use fencelock_conformance::EventRecorder;
use fencelock_core::{
    Acquire, Backend, Claim, Event, Expiry, Fault, FencingToken, Holder, HolderId, Holding, Intent, Key, Level, Owner,
    Release, Renew, Renewal, Ttl, Unknown,
};
use fencelock_register::RegisterLocks;
use fencelock_register::kube::connect;
use fencelock_testkit::{KubeCluster, Proxy, TestProcess};
use futures_util::future::LocalBoxFuture;
use libtest_mimic::{Failed, Trial};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

/// What takes some seconds on a machine with nothing else to do.
const SOON: Duration = Duration::from_secs(60);
/// The lease of the elections.
const LEASE: Duration = Duration::from_secs(8);

type Check = for<'a> fn(&'a KubeCluster) -> LocalBoxFuture<'a, ()>;

/// Each in a runtime of its own.
pub(crate) fn trials(cluster: &Arc<KubeCluster>) -> Vec<Trial> {
    macro_rules! checks {
        ($($name:ident),+ $(,)?) => { [$((stringify!($name), (|cluster| Box::pin($name(cluster))) as Check)),+] };
    }
    let checks = checks![
        a_candidate_of_client_go_waits_for_a_lock_and_takes_it_when_it_is_free_or_over,
        a_lock_waits_for_a_leader_of_client_go_and_is_granted_when_it_crashes,
        a_candidate_of_client_go_that_ends_frees_what_it_finds_and_whoever_holds_it_hears_of_it,
        a_leader_of_client_go_that_is_cut_off_stops_before_the_lock_is_granted,
        whoever_is_cut_off_loses_its_lock_to_client_go_and_hears_of_it,
        whoever_waits_is_woken_by_a_release_and_whoever_holds_by_a_loss,
        a_role_without_a_verb_is_told,
        the_role_of_the_package_suffices_and_its_token_may_expire,
        the_manifests_of_the_package_are_accepted,
        credentials_are_checked,
        a_namespace_that_is_deleted_ends_its_locks,
    ];
    let trial = |(name, check): (&str, Check)| {
        let cluster = Arc::clone(cluster);
        Trial::test(format!("kube::{name}"), move || {
            Runtime::new().unwrap().block_on(check(&cluster));
            Ok::<(), Failed>(())
        })
    };
    checks.into_iter().map(trial).collect()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn client(cluster: &KubeCluster, account: &str, namespace: &str) -> RegisterLocks {
    connect(&cluster.url(account, namespace)).unwrap()
}

pub(crate) fn admin(cluster: &KubeCluster) -> RegisterLocks {
    client(cluster, "admin", "default")
}

fn claim(key: &Key, id: u8) -> Claim {
    let holder = Holder { id: HolderId::from_bytes([id; 16]), owner: Owner::new("web-1", 42, None).unwrap() };
    Claim::new(key.clone(), holder, Ttl::new(LEASE).unwrap(), Intent::Try)
}

async fn acquire(locks: &RegisterLocks, key: &Key, id: u8, intent: Intent) -> Result<Acquire, Unknown> {
    locks.acquire(&claim(key, id).with_intent(intent)).await.answer
}

fn granted(answer: Result<Acquire, Unknown>) -> FencingToken {
    match answer.unwrap() {
        Acquire::Granted { tokens } => tokens.last(),
        other => panic!("{other:?}"),
    }
}

/// The error of a claim.
async fn refusal(locks: &RegisterLocks, name: &str) -> Unknown {
    acquire(locks, &key(name), 1, Intent::Try).await.unwrap_err()
}

fn is_for(unknown: &Unknown, fault: Fault, words: &str) -> bool {
    unknown.nodes()[0].fault == fault && unknown.to_string().contains(words)
}

#[track_caller]
fn assert_denied(unknown: &Unknown, words: &str) {
    assert!(is_for(unknown, Fault::Denied, words), "{unknown}");
}

async fn acquire_by_polling(locks: &RegisterLocks, key: &Key, id: u8) -> FencingToken {
    let polls = async {
        loop {
            let answer = acquire(locks, key, id, Intent::Enqueue).await;
            if !matches!(answer, Ok(Acquire::Busy(_))) {
                return granted(answer);
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SOON, polls).await.unwrap()
}

async fn renew(locks: &RegisterLocks, key: &Key, id: u8) -> Result<Renew, Unknown> {
    let renewal = Renewal::new(key.clone(), HolderId::from_bytes([id; 16]), Ttl::new(LEASE).unwrap());
    locks.renew(&[renewal]).await.remove(0)
}

async fn release(locks: &RegisterLocks, key: &Key, id: u8) -> Result<Release, Unknown> {
    locks.release(key, &HolderId::from_bytes([id; 16])).await
}

const RENEWED: Result<Renew, Unknown> = Ok(Renew::Renewed { waiters: 0 });

async fn holding(locks: &RegisterLocks, key: &Key) -> Option<Holding> {
    locks.inspect(key).await.unwrap()
}

/// Asks until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asks = async {
        while !is_so().await {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SOON, asks).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// Waits until a listener hears of a change.
async fn is_told(who: &str, events: &EventRecorder) {
    let change = |event: &Event| matches!(event, Event::Changed { .. }).then_some(());
    assert!(events.wait_for(SOON, change).await.is_some(), "{who} is not told");
}

/// A candidate of client-go in the namespace `default`.
struct Candidate(TestProcess);

impl Candidate {
    fn start(cluster: &KubeCluster, account: &str, key: &Key, identity: &str, lease: Duration) -> Self {
        Self(TestProcess::spawn(cluster.candidate(account, key.as_str(), identity, lease)).unwrap())
    }

    async fn leading(cluster: &KubeCluster, account: &str, key: &Key, lease: Duration) -> Self {
        let mut candidate = Self::start(cluster, account, key, "pod-1_x", lease);
        candidate.says("leads").await;
        candidate
    }

    /// Waits until it says this.
    async fn says(&mut self, words: &str) {
        let heard = timeout(SOON, self.0.receive_async(words)).await;
        assert!(heard.is_ok_and(|heard| heard.is_some()), "never said {words:?}");
    }

    /// It does not say this within this time.
    async fn does_not_say(&mut self, words: &str, span: Duration) {
        assert!(timeout(span, self.0.receive_async(words)).await.is_err(), "it said {words:?}, or has ended");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.0.pid().to_string()).status();
        assert!(sent.unwrap().success());
    }
}

async fn a_candidate_of_client_go_waits_for_a_lock_and_takes_it_when_it_is_free_or_over(cluster: &KubeCluster) {
    let (locks, key) = (admin(cluster), key("ours-first"));
    let first = granted(acquire(&locks, &key, 1, Intent::Try).await);
    let mut candidate = Candidate::start(cluster, "admin", &key, "pod-1_x", LEASE);
    candidate.says(&format!("sees {} web-1:42", HolderId::from_bytes([1; 16]))).await;
    let started = Instant::now();
    while started.elapsed() < LEASE * 2 {
        assert_eq!(renew(&locks, &key, 1).await, RENEWED);
        candidate.does_not_say("leads", LEASE / 3).await;
    }
    assert_eq!(release(&locks, &key, 1).await, Ok(Release::Released));
    candidate.says("leads").await;
    let seen = holding(&locks, &key).await.unwrap();
    assert_eq!(seen.first().occupant.to_string(), "pod-1_x");
    assert!(seen.first().fence > Some(first));
    candidate.signal("TERM");
    candidate.says("stopped").await;
    let second = acquire_by_polling(&locks, &key, 2).await;
    assert!(Some(second) > seen.first().fence);
    // This one is not renewed, as after a crash.
    let (mut candidate, started) = (Candidate::start(cluster, "admin", &key, "pod-2_y", LEASE), Instant::now());
    candidate.says("leads").await;
    assert!(started.elapsed() >= LEASE, "{:?}", started.elapsed());
    assert!(matches!(renew(&locks, &key, 2).await, Ok(Renew::TakenBy(_))));
}

async fn a_lock_waits_for_a_leader_of_client_go_and_is_granted_when_it_crashes(cluster: &KubeCluster) {
    let (locks, key) = (admin(cluster), key("theirs-first"));
    let candidate = Candidate::leading(cluster, "admin", &key, LEASE).await;
    let started = Instant::now();
    while started.elapsed() < LEASE * 2 {
        let Ok(Acquire::Busy(occupied)) = acquire(&locks, &key, 1, Intent::Enqueue).await else { panic!("not busy") };
        assert!(matches!(occupied.expiry, Expiry::In(left) if left <= LEASE));
        sleep(LEASE / 8).await;
    }
    candidate.signal("KILL");
    let crashed = Instant::now();
    acquire_by_polling(&locks, &key, 1).await;
    // Its last renewal was at most its period, an eighth of its lease, before.
    assert!(crashed.elapsed() >= LEASE * 3 / 4, "{:?}", crashed.elapsed());
}

/// It asks its memory whether it leads.
async fn a_candidate_of_client_go_that_ends_frees_what_it_finds_and_whoever_holds_it_hears_of_it(
    cluster: &KubeCluster,
) {
    let (proxy, locks, key) = (Proxy::to(cluster.port()).unwrap(), admin(cluster), key("freed"));
    cluster.write_kubeconfig("delayed", "token: admin", proxy.port());
    // It would end by itself when two thirds of its lease are over.
    let mut candidate = Candidate::leading(cluster, "delayed", &key, SOON * 10).await;
    proxy.hold();
    locks.evict(&holding(&locks, &key).await.unwrap()).await.unwrap();
    let token = granted(acquire(&locks, &key, 1, Intent::Try).await);
    assert_eq!(renew(&locks, &key, 1).await, RENEWED);
    let told = EventRecorder::listening_to(&locks);
    candidate.signal("TERM");
    candidate.says("ends").await;
    proxy.forward();
    is_told("whoever holds", &told).await;
    assert_eq!(renew(&locks, &key, 1).await, Ok(Renew::Absent));
    assert!(granted(acquire(&locks, &key, 2, Intent::Try).await) > token);
}

async fn a_leader_of_client_go_that_is_cut_off_stops_before_the_lock_is_granted(cluster: &KubeCluster) {
    let (proxy, locks, key) = (Proxy::to(cluster.port()).unwrap(), admin(cluster), key("cut-theirs"));
    cluster.write_kubeconfig("behind", "token: admin", proxy.port());
    let mut candidate = Candidate::leading(cluster, "behind", &key, LEASE).await;
    proxy.cut();
    let stopped = async {
        candidate.says("stopped").await;
        Instant::now()
    };
    let granted = async {
        acquire_by_polling(&locks, &key, 1).await;
        Instant::now()
    };
    let (stopped, granted) = tokio::join!(stopped, granted);
    assert!(stopped < granted, "{:?}", stopped.duration_since(granted));
}

async fn whoever_is_cut_off_loses_its_lock_to_client_go_and_hears_of_it(cluster: &KubeCluster) {
    let (proxy, key) = (Proxy::to(cluster.port()).unwrap(), key("cut-ours"));
    cluster.write_kubeconfig("proxied", "token: admin", proxy.port());
    let locks = client(cluster, "proxied", "default");
    granted(acquire(&locks, &key, 1, Intent::Try).await);
    assert_eq!(renew(&locks, &key, 1).await, RENEWED);
    let mut candidate = Candidate::start(cluster, "admin", &key, "pod-1_x", LEASE);
    candidate.says("sees").await;
    proxy.black_hole();
    let told = EventRecorder::listening_to(&locks);
    candidate.says("leads").await;
    proxy.forward();
    is_told("whoever held", &told).await;
    until("the loss", async || matches!(renew(&locks, &key, 1).await, Ok(Renew::TakenBy(_)))).await;
    // It frees nothing of others.
    assert!(matches!(release(&locks, &key, 1).await, Ok(Release::TakenBy(_))));
}

async fn whoever_waits_is_woken_by_a_release_and_whoever_holds_by_a_loss(cluster: &KubeCluster) {
    let (one, other, key) = (admin(cluster), admin(cluster), key("hints"));
    let told = EventRecorder::listening_to(&one);
    granted(acquire(&one, &key, 1, Intent::Try).await);
    assert_eq!(renew(&one, &key, 1).await, RENEWED);
    // The watch may not have begun: then it begins with the loss.
    other.evict(&holding(&other, &key).await.unwrap()).await.unwrap();
    is_told("whoever holds", &told).await;
    assert_eq!(renew(&one, &key, 1).await, Ok(Renew::Absent));
    granted(acquire(&other, &key, 2, Intent::Try).await);
    assert!(matches!(acquire(&one, &key, 3, Intent::Enqueue).await, Ok(Acquire::Busy(_))));
    let told = EventRecorder::listening_to(&one);
    assert_eq!(release(&other, &key, 2).await, Ok(Release::Released));
    is_told("whoever waits", &told).await;
}

async fn a_role_without_a_verb_is_told(cluster: &KubeCluster) {
    cluster.create_namespace("verbs");
    for (user, verbs) in [("reads", "get"), ("creates", "get, create"), ("updates", "get, create, update")] {
        cluster.allow(user, "verbs", verbs);
    }
    let locks = |user| client(cluster, user, "verbs");
    // The API server knows a role after a moment.
    let (updates, k) = (locks("updates"), key("k"));
    until("the role", async || acquire(&updates, &k, 1, Intent::Try).await.is_ok()).await;
    assert_eq!(renew(&updates, &k, 1).await, RENEWED);
    assert_eq!(release(&updates, &k, 1).await, Ok(Release::Released));
    assert_denied(&updates.list().await.unwrap_err(), "cannot list");
    until("no watch", async || updates.watch(&k).await.is_err()).await;
    let findings = updates.try_out(Some(&key("tried"))).await;
    let notes = findings.iter().filter(|finding| finding.level == Level::Note);
    assert_eq!(notes.map(|note| note.subject).collect::<Vec<_>>(), ["watch"]);
    granted(acquire(&locks("creates"), &key("new"), 1, Intent::Try).await);
    for (user, name, words) in [
        ("nobody", "k", "cannot get resource \"leases\""),
        ("reads", "other", "cannot create resource \"leases\""),
        ("reads", "k", "cannot update resource \"leases\""),
    ] {
        assert_denied(&refusal(&locks(user), name).await, words);
    }
    // What has created a lock and may not free it is told, and the lock ends by itself.
    let creates = locks("creates");
    granted(acquire(&creates, &key("kept"), 1, Intent::Try).await);
    assert_denied(&release(&creates, &key("kept"), 1).await.unwrap_err(), "cannot update");
}

const PACKAGE: &str = include_str!("../../../../packaging/kubernetes/leases.yaml");

async fn the_role_of_the_package_suffices_and_its_token_may_expire(cluster: &KubeCluster) {
    cluster.create_namespace("jobs");
    cluster.create("jobs", PACKAGE);
    let account = "/api/v1/namespaces/jobs/serviceaccounts/fencelock";
    let asked = "{\"apiVersion\": \"authentication.k8s.io/v1\", \"kind\": \"TokenRequest\", \"spec\": {}}";
    let answer = cluster.api("POST", &format!("{account}/token"), asked);
    let token = answer.split_once("\"token\":\"").unwrap().1.split('"').next().unwrap();
    cluster.write_kubeconfig("account", &format!("token: {token}"), cluster.port());
    let (locks, other, k) = (client(cluster, "account", "jobs"), client(cluster, "admin", "jobs"), key("k"));
    until("the role", async || acquire(&locks, &k, 1, Intent::Try).await.is_ok()).await;
    let told = EventRecorder::listening_to(&locks);
    assert_eq!(renew(&locks, &k, 1).await, RENEWED);
    assert_eq!(locks.list().await.unwrap().len(), 1);
    other.evict(&holding(&other, &k).await.unwrap()).await.unwrap();
    is_told("it", &told).await;
    assert!(locks.watch(&k).await.is_ok());
    cluster.api("DELETE", account, "");
    // The API server remembers good tokens for some seconds.
    until("the end of the token", async || match renew(&locks, &k, 1).await {
        Ok(_) => false,
        Err(unknown) => {
            assert!(is_for(&unknown, Fault::Revoked, "Unauthorized"), "{unknown}");
            true
        }
    })
    .await;
}

async fn the_manifests_of_the_package_are_accepted(cluster: &KubeCluster) {
    cluster.create_namespace("package");
    cluster.create("package", include_str!("../../../../packaging/kubernetes/cronjob.yaml"));
    cluster.create("package", include_str!("../../../../packaging/kubernetes/deployment.yaml"));
}

async fn credentials_are_checked(cluster: &KubeCluster) {
    granted(acquire(&client(cluster, "certified", "default"), &key("certified"), 1, Intent::Try).await);
    cluster.write_kubeconfig("stranger", "token: guessed", cluster.port());
    assert_denied(&refusal(&client(cluster, "stranger", "default"), "k").await, "has expired");
}

async fn a_namespace_that_is_deleted_ends_its_locks(cluster: &KubeCluster) {
    let (locks, k) = (client(cluster, "admin", "short"), key("k"));
    let missing = refusal(&locks, "k").await;
    assert!(is_for(&missing, Fault::Unsupported, "create the namespace"), "{missing}");
    cluster.create_namespace("short");
    granted(acquire(&locks, &k, 1, Intent::Try).await);
    let namespace = cluster.api("DELETE", "/api/v1/namespaces/short", "");
    assert_eq!(renew(&locks, &k, 1).await, RENEWED);
    let ending = refusal(&locks, "other").await;
    assert!(is_for(&ending, Fault::Unsupported, "being terminated"), "{ending}");
    // What a controller does then.
    cluster.api("DELETE", "/apis/coordination.k8s.io/v1/namespaces/short/leases", "");
    assert_eq!(renew(&locks, &k, 1).await, Ok(Renew::Absent));
    assert_eq!(release(&locks, &k, 1).await, Ok(Release::Absent));
    let finalized = namespace.replace("\"finalizers\":[\"kubernetes\"]", "\"finalizers\":[]");
    assert_ne!(finalized, namespace);
    cluster.api("PUT", "/api/v1/namespaces/short/finalize", &finalized);
    until("its end", async || is_for(&refusal(&locks, "k").await, Fault::Unsupported, "create the namespace")).await;
}
