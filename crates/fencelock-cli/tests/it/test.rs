use crate::backend::TestBackend;
use crate::running::Running;
use std::process::Command;

/// One run of the program. The whole output is compared, and the exit code is 0 unless the test sets another one.
///
/// A `*` in an expected text matches anything within a line: times and process numbers.
#[must_use = "a test does nothing until it is run"]
pub(crate) struct Test<'a> {
    backend: &'a TestBackend,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    stdin: String,
    stdout: String,
    stderr: String,
    status: i32,
}

/// The program under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_fencelock");

/// The output of a process.
pub(crate) struct Output {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl<'a> Test<'a> {
    /// `line` is split at spaces; arguments with spaces are added by [`Test::arg`].
    pub(crate) fn new(backend: &'a TestBackend, line: &str) -> Self {
        let arguments = line.split_whitespace().map(str::to_owned).collect();
        let (environment, empty) = (vec![("FENCELOCK_URL", backend.url().to_owned())], String::new);
        Self { backend, arguments, environment, stdin: empty(), stdout: empty(), stderr: empty(), status: 0 }
    }

    /// `fencelock OPTIONS run KEY -- sh -c SCRIPT`.
    pub(crate) fn script(backend: &'a TestBackend, options: &str, script: &str) -> Self {
        Self::new(backend, &format!("run {options} -- sh -c")).arg(script)
    }

    pub(crate) fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// No URL is set.
    pub(crate) fn without_url(mut self) -> Self {
        self.environment.retain(|(name, _)| *name != "FENCELOCK_URL");
        self
    }

    pub(crate) fn stdin(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stdin);
        self
    }

    pub(crate) fn stdout(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stdout);
        self
    }

    pub(crate) fn stderr(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stderr);
        self
    }

    pub(crate) fn status(mut self, status: i32) -> Self {
        self.status = status;
        self
    }

    /// Runs it to its end, and compares.
    pub(crate) fn run(self) -> Output {
        let (stdout, stderr, status) = (self.stdout.clone(), self.stderr.clone(), self.status);
        let line = self.arguments.join(" ");
        let output = self.start().end();
        assert!(matches(&stdout, &output.stdout), "{line}\nstdout: {:?}\nwanted: {stdout:?}", output.stdout);
        assert!(matches(&stderr, &output.stderr), "{line}\nstderr: {:?}\nwanted: {stderr:?}", output.stderr);
        assert_eq!(output.status, status, "exit code of {line}; stderr: {}", output.stderr);
        output
    }

    /// Runs it, and expects this exit code and each of these texts in what it prints, which is returned.
    #[track_caller]
    pub(crate) fn says(self, status: i32, parts: &[&str]) -> String {
        let line = self.arguments.join(" ");
        let output = self.output();
        let text = output.stdout + &output.stderr;
        assert_eq!(output.status, status, "{line}: {text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{line}: not {parts:?} in {text}");
        text
    }

    /// Runs it and expects success, regardless of its output.
    #[track_caller]
    pub(crate) fn ok(self) {
        self.says(0, &[]);
    }

    /// Runs it, and reads its stdout.
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.output().stdout).unwrap()
    }

    /// Runs it to its end and returns the output without checks.
    pub(crate) fn output(self) -> Output {
        self.start().end()
    }

    /// Starts it without waiting for its end.
    pub(crate) fn start(self) -> Running {
        let stdin = self.stdin.clone();
        Running::start(self.command(), &stdin)
    }

    /// The command itself.
    pub(crate) fn command(self) -> Command {
        self.command_of(BINARY)
    }

    /// The arguments for another program, in a session of its own: without the terminal that the tests may have been started from.
    fn command_of(self, program: &str) -> Command {
        let mut command = Command::new("setsid");
        command.arg(program).args(self.arguments).current_dir(self.backend.dir());
        command
            .env_remove("FENCELOCK_URL")
            .env_remove("FENCELOCK_PASSWORD")
            .env_remove("FENCELOCK_KEY")
            .env_remove("FENCELOCK_KEYS")
            .env_remove("FENCELOCK_REQUIRE_URL")
            .env_remove("XDG_RUNTIME_DIR")
            // Not the settings of who runs the tests. A test writes them as fencelock.toml.
            .env("XDG_CONFIG_HOME", self.backend.dir())
            .env("AWS_ACCESS_KEY_ID", "any")
            .env("AWS_SECRET_ACCESS_KEY", "k3y-of-objects")
            .env("AWS_REGION", "us-east-1")
            .envs(self.environment);
        command
    }
}

/// A shell in the directory of the backend, with its URL.
pub(crate) fn shell(backend: &TestBackend, script: &str) -> Running {
    Running::start(Test::new(backend, "-c").arg(script).command_of("sh"), "")
}

/// Whether `text` is `pattern`, in which `*` matches anything but a line break.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.take_while(|at| !text[..*at].contains('\n')).any(|at| matches(rest, &text[at..]))
}

#[test]
fn a_star_matches_anything_within_a_line() {
    assert!(matches("a*c\n", "abbc\n") && matches("*", "") && matches("a*b*c", "a1b2b3c"));
    assert!(!matches("a*", "a\n") && !matches("a", "ab") && !matches("a*c", "ab") && !matches("", "x"));
}
