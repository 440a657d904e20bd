use crate::backend::TestBackend;
use crate::test::Test;
use fencelock_testkit::{RedisServer, redis_or_skip};

fn server() -> Option<RedisServer> {
    drop(redis_or_skip()?);
    Some(RedisServer::options().password("s3cret/@").start().unwrap())
}

/// What the command of `run` sees, and the watcher above it.
fn seen(backend: &TestBackend, options: &str, variables: &[(&'static str, &str)]) -> String {
    let script = "env; tr '\\0' '\\n' < /proc/$PPID/environ; echo \"url=$FENCELOCK_URL\"";
    let test = Test::script(backend, &format!("{options} k"), script);
    let output = variables.iter().fold(test, |test, (name, value)| test.env(name, value)).output();
    assert_eq!(output.status, 0, "{}", output.stderr);
    assert!(output.stdout.contains("FENCELOCK_KEY=k"), "{}", output.stdout);
    output.stdout
}

#[test]
fn neither_the_password_nor_a_url_with_one_reaches_the_command() {
    let Some(server) = server() else { return };
    let backend = TestBackend::files();
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let whole = format!("redis://:s3cret%2F%40@127.0.0.1:{}", server.port());
    let apart = [("FENCELOCK_URL", bare.as_str()), ("FENCELOCK_PASSWORD", "s3cret/@")];
    let inside = [("FENCELOCK_URL", whole.as_str())];
    let command = seen(&backend, "", &apart);
    assert!(!command.contains("s3cret") && command.ends_with(&format!("url={bare}\n")), "{command}");
    let command = seen(&backend, "", &inside);
    assert!(!command.contains("s3cret") && command.ends_with("url=\n"), "{command}");
    assert!(seen(&backend, "--pass-url", &apart).contains("FENCELOCK_PASSWORD=s3cret/@\n"));
    assert!(seen(&backend, "--pass-url", &inside).ends_with(&format!("url={whole}\n")));
}

#[test]
fn a_password_comes_from_a_file_or_a_variable() {
    let Some(server) = server() else { return };
    let backend = TestBackend::files();
    std::fs::write(backend.file("password"), "s3cret/@\n").unwrap();
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let url = |option: &str| format!("{bare}?{option}");
    let refused = Test::new(&backend, "status k").env("FENCELOCK_URL", &bare).output();
    assert_ne!(refused.status, 0, "{}", refused.stdout);
    let file = url(&format!("password_file={}", backend.file("password").display()));
    Test::new(&backend, "status k").env("FENCELOCK_URL", &file).stdout("k: free\n").run();
    let quorum = file.replace("redis://", "redlock://");
    Test::new(&backend, "init --trust-empty").env("FENCELOCK_URL", &quorum).ok();
    let by_variable = |url: &str, line: &str| {
        Test::new(&backend, line).env("FENCELOCK_URL", url).env("FENCELOCK_PASSWORD", "s3cret/@").output()
    };
    assert_eq!(by_variable(&bare, "status k").stdout, "k: free\n");
    assert_eq!(by_variable(&bare.replace("redis://", "redlock://"), "status k").stdout, "k: free\n");
    // The file that the URL names is nearer.
    std::fs::write(backend.file("password"), "wr0ng\n").unwrap();
    for line in ["status k", "list", "doctor", "run -n k -- true", "-v status k"] {
        let output = by_variable(&file, line);
        let said = output.stdout + &output.stderr;
        assert!(output.status != 0 && !said.contains("wr0ng") && !said.contains("s3cret"), "{line}: {said}");
    }
}
