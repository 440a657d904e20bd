//! What a user may do wrong, and what a store may: each is told, and nothing is overwritten.

use fencelock_core::{
    Acquire, Backend, Claim, Expiry, Fault, FencingToken, Holder, HolderId, Holding, Intent, Key, Level, ManualClock,
    Occupant, Owner, Release, Ttl, Unknown,
};
use fencelock_register::RegisterLocks;
use fencelock_register::objects::connect;
use fencelock_testkit::{ObjectFaults, ObjectServer, serve_http};
use libtest_mimic::Trial;
use std::sync::Arc;
use std::time::Duration;

/// How a new process sees what the store refuses.
const PROOF: [&str; 4] =
    ["GET locks/p/.fencelock", "PUT locks/p/.fencelock", "PUT locks/p/.fencelock", "GET locks/p/.fencelock"];

pub(crate) struct Client(pub(crate) RegisterLocks);

impl Client {
    fn new(server: &ObjectServer) -> Self {
        Self::at(&server.url("locks/p", ""))
    }

    pub(crate) fn at(url: &str) -> Self {
        Self(connect(url).unwrap())
    }

    pub(crate) fn claim(&self, key: &str, holder: u8) -> Result<Acquire, Unknown> {
        let holder = Holder { id: id(holder), owner: Owner::from_text("web-1:42") };
        let claim = Claim::new(Key::new(key).unwrap(), holder, Ttl::default(), Intent::Try);
        wait(self.0.acquire(&claim)).answer
    }

    pub(crate) fn acquire(&self, key: &str, holder: u8) -> FencingToken {
        match self.claim(key, holder) {
            Ok(Acquire::Granted { tokens }) => tokens.last(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn release(&self, key: &str, holder: u8) -> Release {
        wait(self.0.release(&Key::new(key).unwrap(), &id(holder))).unwrap()
    }

    /// A claim on this key is refused for this cause, in these words.
    #[track_caller]
    fn is_refused(&self, key: &str, fault: Fault, words: &str) {
        let unknown = self.claim(key, 2).unwrap_err();
        assert!(unknown.nodes()[0].fault == fault && unknown.to_string().contains(words), "{unknown}");
    }

    fn inspect(&self, key: &str) -> Result<Option<Holding>, Unknown> {
        wait(self.0.inspect(&Key::new(key).unwrap()))
    }
}

/// What no register does, and the words for it.
fn lies() -> [(ObjectFaults, &'static str); 3] {
    let none = ObjectFaults::default;
    [
        (ObjectFaults { ignores_existence: true, ..none() }, "that exists"),
        (ObjectFaults { ignores_version: true, ..none() }, "another version"),
        (ObjectFaults { executes_refused: true, ..none() }, "executes"),
    ]
}

/// Requests with this method are refused.
fn refuses(method: &'static str, status: u16, code: &'static str) -> ObjectFaults {
    ObjectFaults { refuses: Some((method, status, code)), ..ObjectFaults::default() }
}

fn id(holder: u8) -> HolderId {
    HolderId::from_bytes([holder; 16])
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn an_endpoint_takes_precedence_over_the_emulator_of_the_environment() {
    let (sender, requests) = std::sync::mpsc::channel();
    let port = serve_http(move |request| {
        let _ = sender.send(request.head);
        Some(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec())
    });
    let url = format!("az://account/locks?endpoint=http://127.0.0.1:{port}");
    Client::at(&url).is_refused("k", Fault::Denied, &url);
    assert!(requests.try_recv().unwrap().starts_with("GET /account/locks/k.lock "));
}

fn a_lock_costs_three_requests_and_two_if_this_client_used_the_key_last() {
    let server = ObjectServer::start();
    Client::new(&server).acquire("other", 1);
    server.requests();
    let client = Client::new(&server);
    client.acquire("k", 1);
    assert_eq!(client.release("k", 1), Release::Released);
    // A new process sees two writes refused first.
    let lock = ["GET locks/p/k.lock", "PUT locks/p/k.lock", "PUT locks/p/k.lock"];
    assert_eq!(server.requests(), [&lock[..1], &PROOF, &lock[1..]].concat());
    client.acquire("k", 2);
    client.release("k", 2);
    assert_eq!(server.requests(), ["PUT locks/p/k.lock"; 2]);
}

fn a_path_that_drops_or_ignores_conditions_is_refused_whatever_was_proved_before() {
    for (faults, what) in lies() {
        for was_proved in [false, true] {
            let server = ObjectServer::start();
            if was_proved {
                Client::new(&server).acquire("other", 1);
            }
            let names = server.names();
            server.set(faults.clone());
            let clients = (0..8).map(|_| {
                let url = server.url("locks/p", "");
                std::thread::spawn(move || Client::at(&url).claim("k", 1).unwrap_err())
            });
            for client in clients.collect::<Vec<_>>() {
                let unknown = client.join().unwrap();
                let (fault, text) = (unknown.nodes()[0].fault, unknown.to_string());
                // Of several that prove at once, one may see what another one has written.
                assert!(fault == Fault::Unsupported && text.contains(what) || fault == Fault::Busy, "{text}");
            }
            Client::new(&server).is_refused("k", Fault::Unsupported, what);
            assert!(server.get("p/k.lock").is_none(), "no lock is written");
            assert!(!was_proved || server.names() == names);
            Client::at(&server.url("locks/p", "&verify=off")).acquire("k", 1);
            server.set(ObjectFaults::default());
            Client::new(&server).acquire("again", 1);
        }
    }
}

fn a_store_is_proved_again_while_it_is_used() {
    let (server, clock) = (ObjectServer::start(), Arc::new(ManualClock::at(Duration::from_secs(3600))));
    let client = Client(connect(&server.url("locks/p", "")).unwrap().with_clock(clock.clone()));
    client.acquire("a", 1);
    server.set(ObjectFaults { ignores_version: true, ..ObjectFaults::default() });
    clock.advance(Duration::from_secs(599));
    client.acquire("b", 1);
    clock.advance(Duration::from_secs(1));
    client.is_refused("k", Fault::Unsupported, "another version");
    // It was granted before.
    assert_eq!(client.release("b", 1), Release::Released);
}

fn a_refusal_for_no_reason_is_that_of_the_store() {
    let server = ObjectServer::start();
    let client = Client::new(&server);
    client.acquire("k", 1);
    client.release("k", 1);
    let everything = refuses("PUT", 412, "InventedByAProxy");
    let versions = ObjectFaults { refuses_versions: true, ..ObjectFaults::default() };
    for (faults, code) in [(everything, "InventedByAProxy: told by the test"), (versions, "PreconditionFailed")] {
        server.set(faults);
        for client in [&client, &Client::new(&server)] {
            server.requests();
            let why = format!("nobody has changed it meanwhile: 412 {code}");
            client.is_refused("k", Fault::Unsupported, &why);
            let writes = server.requests().iter().filter(|request| *request == "PUT locks/p/k.lock").count();
            assert!((1..=8).contains(&writes), "{writes}");
        }
    }
}

fn what_another_program_wrote_stays() {
    let server = ObjectServer::start();
    for content in [b"a photograph".to_vec(), vec![b'x'; 10 << 20], Vec::new()] {
        server.put("p/k.lock", content.clone());
        let client = Client::new(&server);
        let claimed = client.claim("k", 1);
        assert!(matches!(&claimed, Ok(Acquire::Busy(occupied)) if occupied.expiry == Expiry::Never), "{claimed:?}");
        assert!(matches!(client.release("k", 1), Release::TakenBy(_)));
        let seen = client.inspect("k").unwrap().unwrap();
        assert!(matches!(seen.first().occupant, Occupant::Foreign(_)));
        assert!(server.get("p/k.lock") == Some(content), "it was overwritten");
    }
    server.put("p/.fencelock", "a photograph");
    server.delete("p/k.lock");
    Client::new(&server).is_refused("k", Fault::Unsupported, "another prefix");
    assert_eq!(server.get("p/.fencelock").unwrap(), b"a photograph");
}

fn a_right_that_is_missing_is_named() {
    let server = ObjectServer::start();
    Client::new(&server).acquire("k", 1);
    let before = server.get("p/k.lock");
    for (method, key, what) in [("GET", "k", "reading k.lock"), ("PUT", "new", "writing .fencelock")] {
        server.set(refuses(method, 403, "AccessDenied"));
        let words = format!("{what}: AccessDenied: told by the test");
        Client::new(&server).is_refused(key, Fault::Denied, &words);
    }
    server.set(refuses("GET", 403, "AccessDenied"));
    let denied = wait(Client::new(&server).0.list()).unwrap_err();
    assert!(denied.is_permanent() && denied.to_string().contains("listing: AccessDenied"), "{denied}");
    assert_eq!(server.get("p/k.lock"), before);
}

fn a_wrong_address_is_told() {
    let server = ObjectServer::start();
    let is_refused = |url: &str, fault, words: &str| Client::at(url).is_refused("k", fault, words);
    is_refused(&server.url("nowhere", ""), Fault::Unsupported, "NoSuchBucket");
    is_refused("s3://locks?endpoint=http://127.0.0.1:1", Fault::Unreachable, "refused");
    is_refused(&server.url("locks", "").replace("http:", "https:"), Fault::Unreachable, "not reachable");
    for status in [301, 307, 400] {
        server.set(ObjectFaults { region: Some("eu-west-1"), ..refuses("GET", status, "PermanentRedirect") });
        is_refused(&server.url("locks", ""), Fault::Unsupported, "region=eu-west-1");
    }
    let wrong = ["AuthorizationHeaderMalformed", "InvalidBucketName", "InvalidToken"].map(|code| (400, code));
    for (status, code) in wrong.into_iter().chain([(501, "NotImplemented")]) {
        server.set(refuses("GET", status, code));
        let refused = Client::new(&server).claim("k", 1).unwrap_err();
        assert!(refused.is_permanent() && refused.to_string().contains(code), "{refused}");
    }
}

fn a_key_is_free_only_if_the_store_says_that_its_object_does_not_exist() {
    let server = ObjectServer::start();
    for code in ["XAdminUserNotFound", "NoSuchBucket", ""] {
        server.set(refuses("GET", 404, code));
        let refused = Client::new(&server).inspect("k").unwrap_err();
        assert!(refused.is_permanent() && refused.to_string().contains(code), "{refused}");
    }
    server.set(ObjectFaults::default());
    assert_eq!(Client::new(&server).inspect("k"), Ok(None));
}

fn an_object_that_cannot_be_read_hides_no_lock() {
    let server = ObjectServer::start();
    let client = Client::new(&server);
    client.acquire("k", 1);
    server.put("p/x.lock", "a photograph");
    server.set(ObjectFaults { untagged: Some("x.lock"), ..ObjectFaults::default() });
    let listed = wait(client.0.list()).unwrap();
    assert!(listed.iter().map(|held| held.key.as_str()).eq(["k", "x"]), "{listed:?}");
    assert!(listed[1].first().occupant.to_string().contains("no version of x.lock"), "{listed:?}");
}

fn a_clock_that_is_off_is_told_if_the_store_refuses_it_and_harms_no_lock() {
    let server = ObjectServer::start();
    server.set(ObjectFaults { ahead: 1200, ..refuses("GET", 403, "RequestTimeTooSkewed") });
    Client::new(&server).is_refused("k", Fault::Denied, "the clock of this machine is");
    server.set(ObjectFaults { ahead: 1200, ..ObjectFaults::default() });
    let before = Client::new(&server).acquire("k", 1);
    assert!(matches!(Client::new(&server).claim("k", 2), Ok(Acquire::Busy(_))), "it compares its own times only");
    Client::new(&server).release("k", 1);
    assert!(Client::new(&server).acquire("k", 2) > before);
}

fn every_key_has_an_object_of_its_own() {
    let server = ObjectServer::start();
    let client = Client::at(&server.url("locks/p/", ""));
    let long = ["a", "b"].map(|end| "k".repeat(511) + end);
    let mut keys = vec!["..", "a/../b", "orders", "Orders", "订单", "%2e%2e", &long[0], &long[1]];
    for key in &keys {
        client.acquire(key, 1);
    }
    let names = server.names();
    assert!(names.len() == keys.len() + 1 && names.iter().all(|name| name.starts_with("p/") && name.is_ascii()));
    let listed = wait(client.0.list()).unwrap();
    let mut listed: Vec<_> = listed.iter().map(|holding| holding.key.as_str()).collect();
    keys.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, keys);
    // Without a prefix, or under a part of one, they are other locks.
    for prefix in ["", "p/p/", "a~b@c [1]/"] {
        let path = format!("locks/{}", prefix.replace('@', "%40"));
        Client::at(&server.url(&path, "")).acquire("orders", 2);
        assert!(server.names().contains(&format!("{prefix}orders.lock")));
    }
}

fn a_store_that_is_busy_is_asked_again() {
    let server = ObjectServer::start();
    let client = Client::new(&server);
    client.acquire("k", 1);
    for (status, code) in [(503, "SlowDown"), (429, "TooManyRequests"), (500, "InternalError")] {
        server.set(refuses("PUT", status, code));
        let unknown = wait(client.0.release(&Key::new("k").unwrap(), &id(1))).unwrap_err();
        assert!(unknown.nodes()[0].fault == Fault::Busy && unknown.to_string().contains(code), "{unknown}");
    }
    server.set(ObjectFaults::default());
    assert_eq!(client.release("k", 1), Release::Released);
}

fn a_client_waits_as_long_as_its_plan_says() {
    let server = ObjectServer::start();
    let facts = Client::new(&server).0.capabilities();
    assert_eq!((facts.polls.first, facts.polls.longest), (Duration::from_millis(100), Duration::from_secs(2)));
    assert!(facts.check_ttl(Ttl::new(Duration::from_millis(2999)).unwrap()).is_err());
    assert!(facts.check_ttl(Ttl::new(Duration::from_secs(3)).unwrap()).is_ok());
    assert!(!facts.modes.shared && !facts.modes.permits && facts.modes.because.contains("because"));
}

fn a_trial_finds_what_a_store_does_wrong_and_removes_what_it_wrote() {
    let found = |faults: ObjectFaults| {
        let server = ObjectServer::start();
        let client = Client::at(&server.url("locks/p", "&verify=off"));
        server.set(faults);
        let findings = wait(client.0.try_out(None));
        let findings = findings.into_iter().filter(|finding| finding.level > Level::Fine);
        (findings.map(|finding| (finding.subject, finding.level)).collect::<Vec<_>>(), server.names())
    };
    assert_eq!(found(ObjectFaults::default()), (vec![], vec![]));
    for (faults, _) in lies() {
        assert_eq!(found(faults), (vec![("conditions", Level::Failure)], vec![]));
    }
    let ahead = ObjectFaults { ahead: 1200, ..ObjectFaults::default() };
    assert_eq!(found(ahead).0, [("clock", Level::Warning)]);
    let folds_case = ObjectFaults { folds_case: true, ..ObjectFaults::default() };
    assert_eq!(found(folds_case).0, [("names", Level::Warning)]);
    let (findings, names) = found(refuses("DELETE", 403, "AccessDenied"));
    assert_eq!((findings, names.len()), (vec![("trial", Level::Note)], 4));
    let (findings, _) = found(refuses("PUT", 403, "AccessDenied"));
    assert_eq!(findings, [("trial", Level::Failure), ("conditions", Level::Failure)]);
    let (findings, _) = found(refuses("PUT", 503, "SlowDown"));
    assert_eq!(findings, [("trial", Level::Failure), ("conditions", Level::Warning)], "it was not seen to be true");
}

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! facts {
        ($($fact:ident),+ $(,)?) => {
            vec![$(Trial::test(stringify!($fact), || {
                $fact();
                Ok(())
            })),+]
        };
    }
    facts![
        a_lock_costs_three_requests_and_two_if_this_client_used_the_key_last,
        a_path_that_drops_or_ignores_conditions_is_refused_whatever_was_proved_before,
        a_store_is_proved_again_while_it_is_used,
        a_refusal_for_no_reason_is_that_of_the_store,
        what_another_program_wrote_stays,
        a_right_that_is_missing_is_named,
        a_wrong_address_is_told,
        an_endpoint_takes_precedence_over_the_emulator_of_the_environment,
        a_key_is_free_only_if_the_store_says_that_its_object_does_not_exist,
        an_object_that_cannot_be_read_hides_no_lock,
        a_clock_that_is_off_is_told_if_the_store_refuses_it_and_harms_no_lock,
        every_key_has_an_object_of_its_own,
        a_store_that_is_busy_is_asked_again,
        a_client_waits_as_long_as_its_plan_says,
        a_trial_finds_what_a_store_does_wrong_and_removes_what_it_wrote,
    ]
}
