//! Against a server of answers: what a cluster gives rarely, or not at all.

use super::*;
use fencelock_conformance::EventRecorder;
use fencelock_core::once::Utc;
use fencelock_core::register::Version;
use fencelock_core::{
    Acquire, Backend, Claim, Event, Holder, HolderId, Intent, Owner, Release, Renew, Renewal, Sent, Ttl,
};
use fencelock_testkit::{HttpRequest, TlsFiles, serve_http};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc;

/// Answers requests in order, and watches and dry runs in another order, each element of an array as a line; a write without a body with
/// what it has written; without an answer, the connection ends, but a dry run succeeds. Keeps the requests, but not the latter.
struct Server {
    directory: tempfile::TempDir,
    address: String,
    requests: mpsc::Receiver<String>,
}

type Answers = VecDeque<(u16, Value)>;

impl Server {
    fn start(answers: impl IntoIterator<Item = (u16, Value)>) -> (Self, RegisterLocks) {
        Self::with_watches(answers, [])
    }

    fn with_watches(
        answers: impl IntoIterator<Item = (u16, Value)>,
        watches: impl IntoIterator<Item = (u16, Value)>,
    ) -> (Self, RegisterLocks) {
        let answers = Mutex::new((answers.into_iter().collect(), watches.into_iter().collect()));
        let (sender, requests) = mpsc::channel();
        let port = serve_http(move |request| answer(&request, &mut answers.lock().unwrap(), &sender));
        let address = format!("http://127.0.0.1:{port}");
        let server = Self { directory: tempfile::tempdir().unwrap(), address, requests };
        server.write("token", "one");
        let locks = server.connect("{tokenFile: token}");
        (server, locks)
    }

    /// A client with these credentials.
    fn connect(&self, user: &str) -> RegisterLocks {
        self.write("config", &kubeconfig(&self.address, user));
        connect(&format!("kube-lease:///jobs?kubeconfig={}", self.path("config").display())).unwrap()
    }

    /// A client whose credentials come from this script.
    fn connect_by(&self, script: &str, more: &str) -> RegisterLocks {
        self.write("get", &format!("cd \"$1\" && {script}\n"));
        let args = format!("[{}, {}]", self.path("get").display(), self.path("").display());
        self.connect(&format!("{{exec: {{command: sh, args: {args}{more}}}}}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn request(&self) -> String {
        self.requests.try_recv().unwrap()
    }
}

fn answer(
    request: &HttpRequest,
    (answers, watches): &mut (Answers, Answers),
    requests: &mpsc::Sender<String>,
) -> Option<Vec<u8>> {
    let (status, body) = if request.head.contains("?watch=1") {
        watches.pop_front()?
    } else if request.head.contains("?dryRun=All") {
        watches.pop_front().unwrap_or(accepts(201))
    } else {
        requests.send(request.head.clone() + &String::from_utf8_lossy(&request.body)).unwrap();
        answers.pop_front()?
    };
    if status == 0 {
        return None;
    }
    let body = stored(request).filter(|_| body.is_null()).unwrap_or(body);
    let lines = body.as_array().cloned().unwrap_or_else(|| vec![body]);
    let body = lines.iter().map(|line| line.to_string() + "\n").collect::<String>();
    let head = format!("HTTP/1.1 {status} X\r\nDate: Thu, 26 Nov 2026 10:00:00 GMT\r\nContent-Length: {}", body.len());
    Some(format!("{head}\r\n\r\n{body}").into_bytes())
}

/// The Lease that a write stores.
fn stored(request: &HttpRequest) -> Option<Value> {
    let mut object: Value = serde_json::from_slice(&request.body).ok()?;
    let metadata = &mut object["metadata"];
    let version = metadata["resourceVersion"].as_str().map_or(0, |version| version.parse::<u64>().unwrap());
    (metadata["uid"], metadata["resourceVersion"]) = ("u1".into(), (version + 1).to_string().into());
    Some(object)
}

/// Stores what is sent.
fn accepts(code: u16) -> (u16, Value) {
    (code, Value::Null)
}

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "current-context: here\n\
         contexts:\n- name: here\n  context: {{cluster: near, user: me}}\n\
         clusters:\n- name: near\n  cluster:\n    server: {server}\n\
         users:\n- name: me\n  user: {user}\n"
    )
}

fn key() -> Key {
    Key::new("orders").unwrap()
}

fn holder(id: u8) -> Holder {
    Holder { id: HolderId::from_bytes([id; 16]), owner: Owner::new("web-1", 42, Some("night run")).unwrap() }
}

fn claim(id: u8) -> Claim {
    Claim::new(key(), holder(id), Ttl::default(), Intent::Try)
}

fn missing() -> (u16, Value) {
    (404, json!({"message": "leases \"orders\" not found", "details": {"name": "orders", "kind": "leases"}}))
}

/// The namespace does not exist.
fn nowhere() -> (u16, Value) {
    (404, json!({"message": "namespaces \"jobs\" not found", "details": {"name": "jobs", "kind": "namespaces"}}))
}

/// The namespace is deleted.
fn ending() -> (u16, Value) {
    (403, json!({"message": "it is being terminated", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}))
}

fn status(code: u16, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "message": message}))
}

/// A Lease of client-go, as the API server sends it.
fn foreign(holder: &str) -> Value {
    json!({
        "metadata": {
            "name": "orders", "uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-11-26T09:00:00Z",
            "ownerReferences": [{"name": "mine"}],
            "managedFields": [
                {"time": "2026-11-26T09:59:50Z", "fieldsV1": {"f:spec": {"f:renewTime": {}}}},
                {"time": "2026-11-26T09:59:59Z", "fieldsV1": {"f:metadata": {}}},
                {},
            ],
        },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-11-26T09:30:00.000001Z", "renewTime": "2026-11-26T09:59:50.000000Z",
        },
    })
}

fn lease(object: Value) -> LeaseObject {
    LeaseObject::new(object).unwrap()
}

fn record(object: &Value) -> Record {
    Record::from_bytes(&lease(object.clone()).content(&key()), &key()).unwrap()
}

/// A Lease that is held by the holder 1.
fn ours() -> Value {
    lease(foreign("")).with(&key(), &held(), 0)
}

fn held() -> Record {
    let hold = fencelock_core::register::Hold {
        holder: holder(1),
        ttl: Ttl::new(Duration::from_millis(2500)).unwrap(),
        since_micros: 5,
    };
    Record { nonce: 9, hold: Some(hold), ..Record::free(1_800_000_000_000_000) }
}

#[test]
fn a_record_is_written_as_client_go_reads_it_and_keeps_what_others_have_added() {
    let before = lease(foreign(""));
    let object = before.with(&key(), &held(), 1_795_687_200_000_001);
    assert_eq!(object["spec"]["holderIdentity"], format!("{} web-1:42 night run", "01".repeat(16)));
    assert_eq!(object["spec"]["leaseDurationSeconds"], 3);
    assert_eq!(object["spec"]["leaseTransitions"], 4);
    for field in ["acquireTime", "renewTime"] {
        assert_eq!(object["spec"][field], "2026-11-26T10:00:00.000001Z");
    }
    assert_eq!(object["metadata"]["ownerReferences"][0]["name"], "mine");
    assert_eq!((&object["metadata"]["uid"], &object["metadata"]["resourceVersion"]), (&json!("u1"), &json!("7")));
    assert_eq!(object["metadata"]["managedFields"], Value::Null);
    assert_eq!(record(&object), held());
    // A renewal is no other term.
    let renewed = lease(object.clone()).with(&key(), &Record { nonce: 10, ..held() }, 1_795_687_210_000_000);
    assert_eq!(renewed["spec"]["acquireTime"], object["spec"]["acquireTime"]);
    assert_eq!(
        (&renewed["spec"]["leaseTransitions"], &renewed["spec"]["renewTime"]),
        (&json!(4), &json!("2026-11-26T10:00:10.000000Z"))
    );
    let freed = lease(renewed).with(&key(), &Record { hold: None, ..held() }, 1_795_687_220_000_000);
    assert_eq!((&freed["spec"]["holderIdentity"], &freed["spec"]["leaseDurationSeconds"]), (&json!(""), &json!(1)));
}

#[test]
fn each_renewal_shows_client_go_another_second() {
    let times = |before: Value, micros: &[u64]| {
        let mut object = before;
        let mut renew = |micros: &u64| {
            object = lease(object.clone()).with(&key(), &held(), *micros);
            micros_of(object["spec"]["renewTime"].as_str().unwrap()).unwrap()
        };
        micros.iter().map(&mut renew).collect::<Vec<_>>()
    };
    let first = 1_795_687_200_900_000;
    let near = times(foreign(""), &[first, first + 25_000, first + 50_000, first + 5_000_000]);
    assert_eq!(near, [first, first + 1_000_000, first + 2_000_000, first + 5_000_000]);
    // The clock of another program is not kept.
    let mut ahead = foreign("pod-1");
    ahead["spec"]["renewTime"] = json!("2036-11-26T09:59:50.000000Z");
    assert_eq!(times(ahead, &[first]), [first]);
}

#[test]
fn a_holder_of_client_go_is_a_hold_with_an_id_for_each_of_its_terms() {
    let seen = record(&foreign("pod-1_x"));
    let hold = seen.hold.clone().unwrap();
    assert_eq!((hold.holder.owner.as_str(), hold.ttl.get()), ("pod-1_x", Duration::from_secs(15)));
    assert_eq!(lease(foreign("pod-1_x")).modified, micros_of("2026-11-26T09:59:50Z"));
    // Above all tokens of a Lease that was deleted before this one was created.
    assert_eq!(Some(seen.token - 1 - 3), micros_of("2026-11-26T09:00:01Z"));
    let mut renewed = foreign("pod-1_x");
    renewed["spec"]["renewTime"] = json!("2026-11-26T10:00:00.000000Z");
    assert_eq!(record(&renewed).hold.unwrap().holder.id, hold.holder.id);
    renewed["spec"]["leaseTransitions"] = json!(5);
    let again = record(&renewed);
    assert!(again.hold.unwrap().holder.id != hold.holder.id && again.token > seen.token);
}

#[test]
fn what_another_program_writes_over_a_hold_counts_and_its_tokens_are_kept() {
    let mut object = ours();
    for identity in ["pod-1_x", ""] {
        object["spec"]["holderIdentity"] = json!(identity);
        let seen = record(&object);
        assert_eq!(
            seen.hold.map(|hold| hold.holder.owner.as_str().to_owned()),
            Some(identity.to_owned()).filter(|text| !text.is_empty())
        );
        assert_eq!(seen.token, held().token + 1 + 4);
        // It is not this client's write.
        assert_ne!(seen.nonce, held().nonce);
    }
}

#[test]
fn a_record_of_a_later_version_is_not_overwritten() {
    let mut object = ours();
    object["metadata"]["annotations"]["fencelock.dev/record"] = json!("fencelock 2\nkey orders\n");
    object["spec"]["holderIdentity"] = json!("");
    let bytes = lease(object).content(&key());
    assert!(Record::from_bytes(&bytes, &key()).unwrap_err().to_string().contains("later version"));
}

#[test]
fn what_cannot_be_a_lock_is_told() {
    for (field, value, why) in [
        ("strategy", json!("OldestEmulationVersion"), "elects"),
        ("preferredHolder", json!("pod-2"), "elects"),
        ("leaseDurationSeconds", json!(90_000), "at most a day"),
    ] {
        let mut object = foreign("pod-1");
        object["spec"][field] = value;
        assert!(lease(object).refusal().unwrap().contains(why), "{field}");
    }
    assert_eq!(lease(foreign("pod-1")).refusal(), None);
}

#[test]
fn a_lease_tells_no_time_without_that_of_its_renewal_and_one_without_a_duration_has_the_default() {
    let mut object = foreign("pod-1");
    for managed in [json!([{}]), json!([object["metadata"]["managedFields"][1]]), json!("x"), Value::Null] {
        object["metadata"]["managedFields"] = managed;
        assert_eq!(lease(object.clone()).modified, None);
    }
    object["spec"] = json!({"holderIdentity": "pod-1"});
    assert_eq!(record(&object).hold.unwrap().ttl.get(), Duration::from_secs(15));
    assert!(LeaseObject::new(json!({"metadata": {"name": "orders"}})).is_none());
    for part in ["/metadata/annotations", "/metadata/labels", "/spec"] {
        let mut object = foreign("pod-1");
        (object["metadata"]["annotations"], object["metadata"]["labels"]) = (json!({}), json!({}));
        *object.pointer_mut(part).unwrap() = json!("text");
        assert!(LeaseObject::new(object).is_none(), "{part}");
    }
}

#[test]
fn a_key_is_the_name_of_its_object_if_it_can_be() {
    for key in ["orders", "a.b-1.c", "0"] {
        assert_eq!(lease::name(&Key::new(key).unwrap()), key);
    }
    for key in ["Orders", "a/b", "a..b", "-a", "a.", "锁", "fl-x", &"a".repeat(254)] {
        let name = lease::name(&Key::new(key).unwrap());
        assert!(name.starts_with("fl-") && name.len() == 67 && Key::new(&*name).is_ok(), "{name}");
    }
    // The SHA-256 of these bytes, by another program.
    assert_eq!(
        lease::name(&Key::new("a/b").unwrap()),
        "fl-c14cddc033f64b9dea80ea675cf280a015e672516090a5626781153dc68fea11"
    );
}

fn micros_of(time: &str) -> Option<u64> {
    Utc::parse(time).map(|time| time.0)
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_told_before_its_locks_seem_free() {
    let dry_runs = [nowhere(), ending(), status(403, "cannot create"), status(400, "no dry run"), status(429, "")];
    let (server, locks) = Server::with_watches([missing(), missing(), missing(), missing()], dry_runs);
    for why in ["create the namespace first", "being terminated"] {
        let refused = locks.inspect(&key()).await.unwrap_err();
        assert!(refused.is_permanent() && refused.to_string().contains(why), "{refused}");
    }
    // It is asked once, and who may only read is not refused.
    for _ in 0..2 {
        assert_eq!(locks.inspect(&key()).await, Ok(None));
    }
    assert_eq!(locks.check().await, Ok(()));
    assert_eq!(locks.check().await.unwrap_err().nodes()[0].fault, Fault::Busy);
    assert!((0..4).all(|_| server.request().starts_with("GET")));
}

#[tokio::test]
async fn a_claim_reads_and_creates_and_its_release_replaces_what_was_created() {
    let (server, locks) = Server::start([missing(), accepts(201), accepts(200)]);
    assert!(matches!(locks.acquire(&claim(1)).await.answer, Ok(Acquire::Granted { .. })));
    assert_eq!(locks.release(&key(), &holder(1).id).await, Ok(Release::Released));
    let path = "/apis/coordination.k8s.io/v1/namespaces/jobs/leases";
    let read = server.request();
    assert!(read.starts_with(&format!("GET {path}/orders HTTP/1.1")) && read.contains("authorization: Bearer one"));
    let create = server.request();
    assert!(
        create.starts_with(&format!("POST {path}?fieldManager=fencelock")) && !create.contains("\"uid\""),
        "{create}"
    );
    let replace = server.request();
    assert!(replace.starts_with(&format!("PUT {path}/orders?")) && replace.contains("\"uid\":\"u1\""), "{replace}");
}

/// The error of a claim with these answers.
async fn refusal(answers: Vec<(u16, Value)>) -> (Fault, String) {
    let (_server, locks) = Server::start(answers);
    let unknown = locks.acquire(&claim(1)).await.answer.unwrap_err();
    (unknown.nodes()[0].fault, unknown.to_string())
}

#[tokio::test]
async fn each_error_of_the_server_is_told_as_what_it_is() {
    let cannot = |verb: &str| status(403, &format!("User \"u\" cannot {verb} resource \"leases\""));
    let mut strategy = foreign("pod-1");
    strategy["spec"]["strategy"] = json!("OldestEmulationVersion");
    for (answers, fault, why) in [
        (vec![cannot("get")], Fault::Denied, "cannot get"),
        (vec![missing(), cannot("create")], Fault::Denied, "cannot create"),
        (vec![(200, foreign("")), cannot("update")], Fault::Denied, "cannot update"),
        (vec![status(401, "Unauthorized"), status(401, "Unauthorized")], Fault::Denied, "has expired"),
        (vec![missing(), nowhere()], Fault::Unsupported, "create the namespace"),
        (vec![missing(), ending()], Fault::Unsupported, "being terminated"),
        (vec![status(404, "the server could not find the requested resource")], Fault::Unsupported, "no API server"),
        (vec![status(302, "")], Fault::Unsupported, "redirects"),
        (vec![status(429, "too many requests")], Fault::Busy, "too many"),
        (vec![status(503, "apiserver is shutting down")], Fault::Busy, "shutting down"),
        (vec![missing(), status(504, "etcdserver: request timed out")], Fault::Busy, "timed out"),
        (vec![missing(), status(422, "Lease is invalid")], Fault::Other, "is invalid"),
        (vec![(200, json!("a page"))], Fault::Unsupported, "no Lease"),
        (vec![(200, strategy)], Fault::Unsupported, "use another name"),
        (vec![missing(), (201, foreign("pod-1"))], Fault::Unsupported, "webhook"),
        // The connection ends without an answer.
        (vec![restart()], Fault::Unreachable, "not reachable"),
    ] {
        let (seen, text) = refusal(answers).await;
        assert!(seen == fault && text.contains(why) && text.contains("kube-lease://127.0.0.1"), "{seen:?} {text}");
    }
}

#[tokio::test]
async fn a_token_that_has_expired_is_read_again_and_one_that_was_good_may_come_back() {
    let (server, locks) = Server::start([status(401, ""), (200, foreign("pod")), status(401, ""), status(401, "")]);
    assert!(matches!(locks.inspect(&key()).await, Ok(Some(_))));
    let (first, second) = (server.request(), server.request());
    assert!(first.contains("Bearer one") && second.contains("Bearer one"));
    server.write("token", "two\n");
    let refused = locks.inspect(&key()).await.unwrap_err();
    assert!(refused.is_revoked() && !refused.is_permanent(), "{refused}");
    assert!(server.request().contains("Bearer one") && server.request().contains("Bearer two"));
}

/// A server that ends, and starts again.
fn restart() -> (u16, Value) {
    (0, Value::Null)
}

#[tokio::test]
async fn a_claim_of_which_only_a_read_was_sent_needs_no_release() {
    let (_server, locks) = Server::start([restart(), missing(), restart()]);
    assert_eq!(locks.acquire(&claim(1)).await.sent, Sent::Never);
    assert_ne!(locks.acquire(&claim(1)).await.sent, Sent::Never);
}

async fn renew(locks: &RegisterLocks) -> Result<Renew, Unknown> {
    locks.renew(&[Renewal::new(key(), holder(1).id, Ttl::default())]).await.remove(0)
}

#[tokio::test]
async fn a_hold_outlives_a_restart_of_the_server() {
    let answers = [missing(), accepts(201), restart(), (200, ours()), accepts(200)];
    let (_server, locks) = Server::start(answers);
    locks.acquire(&claim(1)).await.answer.unwrap();
    let cut = renew(&locks).await.unwrap_err();
    assert_eq!(cut.nodes()[0].fault, Fault::Unreachable);
    // What was cut may have been executed, so it is read.
    assert_eq!(renew(&locks).await, Ok(Renew::Renewed { waiters: 0 }));
}

#[tokio::test]
async fn a_hold_that_another_program_has_taken_or_deleted_is_lost() {
    let mut taken = ours();
    taken["spec"]["holderIdentity"] = json!("pod-2_y");
    let (_server, locks) = Server::start([missing(), accepts(201), status(409, "modified"), (200, taken)]);
    locks.acquire(&claim(1)).await.answer.unwrap();
    let lost = renew(&locks).await.unwrap();
    assert!(matches!(&lost, Renew::TakenBy(by) if by.to_string().contains("pod-2_y")), "{lost:?}");
    let (_server, locks) = Server::start([missing(), accepts(201), missing(), missing()]);
    locks.acquire(&claim(1)).await.answer.unwrap();
    assert_eq!(renew(&locks).await, Ok(Renew::Absent));
}

#[tokio::test]
async fn a_lease_that_is_not_remembered_is_read_before_it_is_replaced() {
    let (server, locks) = Server::start([(200, foreign("")), accepts(200)]);
    let leases = Leases::new(
        &Location::parse("kube-lease:///jobs").unwrap(),
        Source::Files { files: vec![server.path("config")], context: "here".to_owned() },
    );
    drop(locks);
    let bytes = held().to_bytes(&key());
    let (leases, version) = (leases.unwrap(), Some(Version::new("u1/7")));
    assert_eq!(leases.write_if(&key(), &version, bytes.clone()).await, Ok(WriteReply::Refused { why: String::new() }));
    assert_eq!(leases.read(&key()).await.unwrap().bytes.unwrap().0, Version::new("u1/7"));
    assert!(matches!(leases.write_if(&key(), &version, bytes).await, Ok(WriteReply::Written { .. })));
}

#[tokio::test]
async fn a_listing_has_the_held_keys_of_all_its_pages() {
    let free = lease(foreign("")).with(&key(), &Record::free(1), 0);
    let pages = [
        (200, json!({"items": [free, foreign("pod-1")], "metadata": {"continue": "abc"}})),
        (200, json!({"items": [ours()], "metadata": {}})),
        (200, ours()),
        status(403, "cannot list"),
    ];
    let (server, locks) = Server::start(pages);
    let found = locks.list().await.unwrap();
    assert_eq!(found.iter().map(|holding| holding.key.clone()).collect::<Vec<_>>(), [key()]);
    assert!(server.request().contains("labelSelector=fencelock.dev%2Flock%3D1 HTTP"));
    assert!(server.request().contains("&continue=abc HTTP"));
    let denied = locks.list().await.unwrap_err();
    assert!(denied.is_permanent() && denied.to_string().contains("cannot list"), "{denied}");
}

#[tokio::test]
async fn a_listing_that_does_not_end_is_refused() {
    let page = (200, json!({"items": [], "metadata": {"continue": "abc"}}));
    let (_server, locks) = Server::start(vec![page; PAGES + 1]);
    let refused = locks.list().await.unwrap_err();
    assert!(refused.to_string().contains("more than"), "{refused}");
}

#[tokio::test]
async fn a_watch_tells_of_another_holder_and_not_of_a_renewal() {
    let event = |kind: &str, holder: &str| json!({"type": kind, "object": foreign(holder)});
    let events =
        [event("ADDED", "pod-1"), event("MODIFIED", "pod-1"), event("BOOKMARK", "pod-2"), event("DELETED", "pod-1")];
    let (_server, locks) = Server::with_watches([(200, foreign("pod-1"))], [(200, json!(events))]);
    let heard = EventRecorder::listening_to(&locks);
    let waiting = claim(1).with_intent(Intent::Enqueue);
    assert!(matches!(locks.acquire(&waiting).await.answer, Ok(Acquire::Busy(_))));
    heard.wait_for(Duration::from_secs(60), |_| Some(())).await.unwrap();
    assert_eq!(heard.recorded(), [Event::Changed { key: key() }]);
}

#[tokio::test]
async fn who_may_not_watch_polls() {
    let (_server, locks) = Server::with_watches([], [status(403, "cannot watch")]);
    assert_eq!(locks.watch(&key()).await, Ok(()));
    let refused = async {
        while locks.watch(&key()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.unwrap();
}

#[tokio::test]
async fn a_program_for_credentials_is_asked_again_when_they_are_refused() {
    let (server, _) = Server::start([status(401, ""), missing(), missing()]);
    let script = "echo >>runs; echo \"$EXTRA $KUBERNETES_EXEC_INFO\" >asked
        printf '{\"status\": {\"token\": \"number-%s\"}}' $(wc -l <runs)";
    let more =
        ", apiVersion: client.authentication.k8s.io/v1, env: [{name: EXTRA, value: more}], provideClusterInfo: true";
    let locks = server.connect_by(script, more);
    for _ in 0..2 {
        assert_eq!(locks.inspect(&key()).await, Ok(None));
    }
    for token in ["number-1", "number-2", "number-2"] {
        assert!(server.request().contains(&format!("Bearer {token}\r")), "{token}");
    }
    let asked = std::fs::read_to_string(server.path("asked")).unwrap();
    let asked: Value = serde_json::from_str(asked.strip_prefix("more ").unwrap()).unwrap();
    assert_eq!((&asked["kind"], &asked["spec"]["interactive"]), (&json!("ExecCredential"), &json!(false)));
    assert_eq!(asked["spec"]["cluster"]["server"], server.address);
}

#[tokio::test]
async fn a_program_for_credentials_that_fails_is_named_with_its_last_words_and_how_to_install_it() {
    let (server, _) = Server::start([]);
    for (command, why) in [("nowhere-to-be-found", "nowhere-to-be-found"), ("sh", "please log in")] {
        let locks = server.connect(&format!(
            "{{exec: {{command: {command}, args: [-c, 'echo please log in >&2; exit 1'], installHint: get it}}}}"
        ));
        let refused = locks.inspect(&key()).await.unwrap_err().to_string();
        assert!(refused.contains(why) && refused.contains("get it"), "{refused}");
    }
}

/// Lets the time pass after which credentials are read again.
async fn let_a_minute_pass() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn credentials_that_cannot_be_read_again_are_good_until_they_are_refused() {
    let (server, locks) = Server::start([missing(), missing(), missing(), status(401, "")]);
    locks.inspect(&key()).await.unwrap();
    std::fs::remove_file(server.path("token")).unwrap();
    for _ in 0..2 {
        let_a_minute_pass().await;
        locks.inspect(&key()).await.unwrap();
    }
    let refused = locks.inspect(&key()).await.unwrap_err();
    assert!(refused.to_string().contains("token: No such file"), "{refused}");
    for _ in 0..4 {
        assert!(server.request().contains("Bearer one\r"));
    }
}

#[tokio::test]
async fn a_program_for_credentials_goes_on_for_others_if_its_request_is_dropped() {
    let (server, _) = Server::start([missing()]);
    let script = "echo >>runs && until [ -e go ]; do sleep 0.02; done; echo '{\"status\": {}}'";
    let locks = server.connect_by(script, "");
    let runs = || std::fs::read_to_string(server.path("runs")).map_or(0, |runs| runs.len());
    let begun = async {
        while runs() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let key = key();
    tokio::select! {
        _ = locks.inspect(&key) => panic!("it has no credentials yet"),
        () = begun => {}
    }
    server.write("go", "");
    assert_eq!(locks.inspect(&key).await, Ok(None));
    assert_eq!(runs(), 1);
}

#[tokio::test]
async fn an_authority_without_a_certificate_is_not_taken_for_one_that_has_not_signed() {
    let (server, _) = Server::start([]);
    server.write("ca", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n");
    server.write("config", &kubeconfig("https://127.0.0.1:1\n    certificate-authority: ca", "{}"));
    let locks = connect(&format!("kube-lease:///jobs?kubeconfig={}", server.path("config").display())).unwrap();
    let refused = locks.inspect(&key()).await.unwrap_err().to_string();
    assert!(refused.contains("certificate-authority has no certificate"), "{refused}");
}

#[tokio::test]
async fn who_may_create_and_not_replace_is_refused_before_its_first_lock() {
    let refused = status(403, "User \"u\" cannot update resource \"leases\"");
    let (server, locks) =
        Server::with_watches([missing(), missing(), accepts(201), missing()], [accepts(201), refused]);
    let denied = locks.acquire(&claim(1)).await.answer.unwrap_err();
    assert!(denied.nodes()[0].fault == Fault::Denied && denied.to_string().contains("cannot update"), "{denied}");
    assert!(server.request().starts_with("GET") && server.requests.try_recv().is_err(), "nothing is created");
    assert!(matches!(locks.acquire(&claim(1)).await.answer, Ok(Acquire::Granted { .. })));
}

#[tokio::test]
async fn an_authority_is_read_again_when_it_has_not_signed_the_certificate_of_the_server() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [old, new] = directories.each_ref().map(|directory| TlsFiles::write_to(directory.path()).unwrap());
    let (server, _) = Server::start([]);
    let trust = |files: &TlsFiles| server.write("ca", &std::fs::read_to_string(&files.ca).unwrap());
    let port = serve_tls([&old, &new, &new, &new, &new]);
    trust(&old);
    server.write("config", &kubeconfig(&format!("https://127.0.0.1:{port}\n    certificate-authority: ca"), "{}"));
    let locks = connect(&format!("kube-lease:///jobs?kubeconfig={}", server.path("config").display())).unwrap();
    locks.check().await.unwrap();
    let refused = locks.check().await.unwrap_err().to_string();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    trust(&new);
    locks.check().await.unwrap();
}

/// A server that has these certificates, one for each connection, and accepts each request.
fn serve_tls<const N: usize>(certificates: [&TlsFiles; N]) -> u16 {
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let config = |files: &TlsFiles| {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let chain = CertificateDer::pem_file_iter(&files.certificate).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
        Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
    };
    let (configs, listener) = (certificates.map(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (config, stream) in configs.into_iter().zip(listener.incoming().flatten()) {
            let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 201 X\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
            // What is left unread would reset the connection.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    port
}

#[tokio::test]
async fn another_server_under_the_same_name_is_refused() {
    let (server, locks) = Server::start([missing()]);
    server.write("config", &kubeconfig("https://elsewhere", "{}"));
    let refused = locks.inspect(&key()).await.unwrap_err();
    assert!(refused.is_permanent() && refused.to_string().contains("elsewhere"), "{refused}");
}

#[test]
fn an_address_or_a_token_that_no_request_can_have_is_refused_at_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let at = file.path().display();
    for (server, token, url, why) in [
        ("https://127.0.0.1:99999", "t", "", "no address"),
        ("https://h#x", "t", "", "no address"),
        ("https://h", "t", "1.2.3.999:6443", "no address"),
        ("https://h", r#""s3cret\n""#, "", "one line of ASCII"),
    ] {
        std::fs::write(file.path(), kubeconfig(server, &format!("{{token: {token}}}"))).unwrap();
        let refused = connect(&format!("kube-lease://{url}/jobs?kubeconfig={at}")).unwrap_err().to_string();
        assert!(refused.contains(why) && !refused.contains("s3cret"), "{refused}");
    }
}
