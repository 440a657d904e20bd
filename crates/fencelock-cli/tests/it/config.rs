//! The files of settings: what applies, what is refused, and what `fencelock config` shows.

use crate::backend::TestBackend;
use crate::running::{Running, copy_program};
use crate::surroundings::in_namespaces;
use crate::terminal::on_a_terminal;
use crate::test::{BINARY, Output, Test};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A command whose only source of settings is this file of the user.
fn with_file<'a>(backend: &'a TestBackend, text: &str, line: &str) -> Test<'a> {
    write(&backend.file("fencelock.toml"), text, 0o600);
    Test::new(backend, line).without_url()
}

/// Writes a file with this mode, whatever the umask.
fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn url_of(backend: &TestBackend) -> String {
    format!("url = '{}'\n", backend.url())
}

/// A command in which `etc` of the backend is /etc, and `home` the home of its user.
fn with_system_file(backend: &TestBackend, text: &str, script: &str) -> Option<Output> {
    let etc = backend.file("etc");
    fs::create_dir_all(&etc).unwrap();
    let passwd = format!("root:x:0:0::{}:/bin/sh\n", backend.file("home").display());
    fs::write(etc.join("passwd"), passwd).unwrap();
    write(&etc.join("fencelock.toml"), text, 0o644);
    let script = format!("mount --bind etc /etc && unset FENCELOCK_URL && {}", script.replace("fencelock", BINARY));
    Some(in_namespaces(backend, &["--mount"], &script)?.end())
}

#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    assert_eq!(output.status, 64, "{}", output.stdout);
    // `config` shows the other settings.
    let shown = output.stdout.starts_with("SETTING");
    assert!((shown || output.stdout.is_empty()) && output.stderr.lines().count() == 1, "{}", output.stderr);
    for part in parts {
        assert!(output.stderr.contains(part), "no {part:?} in {}", output.stderr);
    }
}

#[test]
fn this_machine_has_no_settings_that_change_the_tests() {
    let settings = fs::read_to_string("/etc/fencelock.toml").unwrap_or_default();
    let sets = settings.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'));
    assert!(!sets, "comment out what /etc/fencelock.toml sets: it applies to the program under test");
}

#[test]
fn the_url_of_the_file_is_used_if_neither_an_option_nor_the_environment_has_one() {
    let (backend, other) = (TestBackend::files(), TestBackend::files());
    with_file(&backend, &url_of(&backend), "run k -- true").run();
    assert!(backend.file("locks/k.lock").exists());
    let both = |line: &str| with_file(&backend, &url_of(&other), line);
    both("run a -- true").env("FENCELOCK_URL", backend.url()).run();
    both(&format!("run b --url {} -- true", backend.url())).env("FENCELOCK_URL", other.url()).run();
    assert!(backend.file("locks/a.lock").exists() && backend.file("locks/b.lock").exists());
    assert!(!other.file("locks").exists(), "neither was stored where the file says");
}

#[test]
fn the_ttl_and_the_label_of_the_file_are_defaults_of_the_options() {
    let Some(backend) = TestBackend::redis() else { return };
    let text = "label = 'from the file'\nttl = '77s'\n";
    let acquire = |options: &str| {
        let line = format!("acquire --json {options}");
        let output = with_file(&backend, text, &line).env("FENCELOCK_URL", backend.url()).output();
        assert!(output.stdout.contains("ttl_ms"), "{}", output.stderr);
        output.stdout
    };
    assert!(acquire("a").contains(r#""ttl_ms":77000"#));
    assert!(acquire("b --ttl 5m --label mine").contains(r#""ttl_ms":300000"#));
    let status = |key: &str| Test::new(&backend, &format!("status {key}")).output().stdout;
    assert!(status("a").contains("(from the file)"), "{}", status("a"));
    assert!(status("b").contains("(mine)"), "{}", status("b"));
}

#[test]
fn a_required_url_may_come_from_anywhere_but_must_come() {
    let backend = TestBackend::files();
    for line in ["run k -- touch ran", "status k", "list", "doctor", "acquire k", "elect e -- touch ran", "config"] {
        let of_file = with_file(&backend, "require_url = true\n", line).output();
        refused(&of_file, &["no URL is set, and ", "fencelock.toml requires one", "--url", "file:DIR"]);
        let of_variable = with_file(&backend, "", line).env("FENCELOCK_REQUIRE_URL", "1").output();
        refused(&of_variable, &["no URL is set, and FENCELOCK_REQUIRE_URL requires one"]);
    }
    assert!(!backend.file("ran").exists());
    let file = format!("require_url = true\n{}", url_of(&backend));
    with_file(&backend, &file, "run k -- true").env("FENCELOCK_REQUIRE_URL", "true").run();
    let explicit = format!("run k --url {} -- true", backend.url());
    with_file(&backend, "require_url = true\n", &explicit).run();
    with_file(&backend, "require_url = true\n", "completions bash").ok();
}

#[test]
fn a_variable_that_is_neither_yes_nor_no_is_refused() {
    let backend = TestBackend::files();
    let output = with_file(&backend, "", "status k").env("FENCELOCK_REQUIRE_URL", "ture").output();
    refused(&output, &["FENCELOCK_REQUIRE_URL is \"ture\": set it to 1, or unset it"]);
    for off in ["", "0", "no"] {
        with_file(&backend, &url_of(&backend), "status k").env("FENCELOCK_REQUIRE_URL", off).ok();
        let output = with_file(&backend, "require_url = true", "status k").env("FENCELOCK_REQUIRE_URL", off).output();
        refused(&output, &["fencelock.toml requires one"]);
    }
}

#[test]
fn an_empty_url_in_a_file_is_an_error_and_not_the_default() {
    let backend = TestBackend::files();
    refused(
        &with_file(&backend, "url = ' '", "status k").output(),
        &["the URL is empty: ", "fencelock.toml must name"],
    );
}

#[test]
fn what_cannot_be_used_in_a_file_is_refused_with_its_line_and_without_its_content() {
    let backend = TestBackend::files();
    let long = "#".repeat((1 << 16) + 1);
    for (text, why) in [
        ("# one\nulr = 'redis://h'\n", "line 2: unknown field `ulr`, expected one of `url`"),
        ("url = 'a'\nurl = 'b'\n", "line 2: duplicate key"),
        ("\r\n\r\nurl = redis://:sesame@h\r\n", "line 3: "),
        ("label = 'x'\nurl = 'redis://:sesame@h\n", "line 2: "),
        ("ttl = 30\n", "line 1: invalid type: integer `30`, expected a string"),
        ("ttl = '1 hour'\n", "ttl: \"1 hour\" is not a duration; write"),
        ("ttl = '1ms'\n", "ttl: a TTL lies between"),
        (r#"label = "a\nb""#, "label: a label must not contain control characters"),
        ("require_url = 'yes'\n", "line 1: invalid type: string \"yes\", expected a boolean"),
        ("[redis]\nurl = 'a'\n", "line 1: unknown field `redis`"),
        (&long, "it has more than 65536 bytes"),
        ("url = 'nowhere:x'\n", "url: unknown scheme"),
        ("url = 'redis://:sesame@h?tiemout=1'\n", "url: "),
        ("url = 'memory:'\n", "url: locks at memory: end with this process"),
        ("ttl = 'redis://:sesame@h'\n", "ttl: "),
        ("require_url = 'redis://:sesame@h'\n", "line 1: "),
        ("\"redis://:sesame@h\" = 1\n", "line 1: "),
    ] {
        for line in ["run k -- true", "status k", "config"] {
            let output = with_file(&backend, text, line).output();
            refused(&output, &["/fencelock.toml: ", why]);
            assert!(!output.stderr.contains("sesame"), "{}", output.stderr);
        }
    }
    with_file(&backend, "nonsense", "completions bash").ok();
}

#[test]
fn a_file_of_another_editor_is_read() {
    let backend = TestBackend::files();
    let text = format!("\u{feff}# settings\r\n{}\r\nrequire_url = true\r\n", url_of(&backend).trim_end());
    with_file(&backend, &text, "run k -- true").run();
    fs::write(backend.file("fencelock.toml"), [0xff, 0xfe, b'u', 0]).unwrap();
    refused(&Test::new(&backend, "status k").output(), &["it is not UTF-8 text"]);
}

#[test]
fn what_is_not_a_file_is_refused_and_never_waited_for() {
    let backend = TestBackend::files();
    let path = backend.file("fencelock.toml");
    let says = |why: &str| refused(&Test::new(&backend, "status k").output(), &["/fencelock.toml: ", why]);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    says("it is not a file");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    says("it is not a file");
    fs::remove_dir(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    says("it is not a file");
    fs::remove_file(&path).unwrap();
    symlink("nowhere", &path).unwrap();
    says("cannot be read: No such file");
}

#[test]
fn a_link_to_a_file_is_followed() {
    let backend = TestBackend::files();
    with_file(&backend, &url_of(&backend), "run a -- true").run();
    fs::rename(backend.file("fencelock.toml"), backend.file("dotfile")).unwrap();
    symlink("dotfile", backend.file("fencelock.toml")).unwrap();
    Test::new(&backend, "run k -- true").without_url().run();
    assert!(backend.file("locks/k.lock").exists());
}

#[test]
fn a_password_in_a_file_that_others_may_read_is_refused() {
    let backend = TestBackend::files();
    let (path, secret) = (backend.file("fencelock.toml"), "url = 'redis://:sesame@127.0.0.1:1'\n");
    let shown = |mode: u32| {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        Test::new(&backend, "config").without_url().output()
    };
    let _ = with_file(&backend, secret, "config");
    for mode in [0o644, 0o640, 0o604] {
        let output = shown(mode);
        refused(&output, &["has a password", "chmod 600", "password_file=", "FENCELOCK_PASSWORD"]);
        assert!(!output.stderr.contains("sesame"), "{}", output.stderr);
    }
    let output = shown(0o600);
    assert!(output.status == 0 && output.stdout.contains("redis://127.0.0.1:1"), "{}", output.stderr);
    for text in [output.stdout, with_file(&backend, secret, "config --json").output().stdout] {
        assert!(text.contains("redis://127.0.0.1:1") && !text.contains("sesame"), "{text}");
    }
    let _ = with_file(&backend, "url = 'redis://user@127.0.0.1:1'", "config");
    assert_eq!(shown(0o644).status, 0, "a user name is no secret");
}

#[test]
fn a_file_that_others_may_change_is_refused() {
    let backend = TestBackend::files();
    let _ = with_file(&backend, &url_of(&backend), "config");
    for mode in [0o620, 0o602, 0o664, 0o666] {
        fs::set_permissions(backend.file("fencelock.toml"), Permissions::from_mode(mode)).unwrap();
        let output = Test::new(&backend, "status k").output();
        refused(&output, &["other users may change it", &format!("{mode:o}"), "chmod go-w"]);
    }
}

/// `config` as user 12345, with the directory `name` of the backend as that of the settings; `None` if only root can do that.
fn as_another_user(backend: &TestBackend, name: &str) -> Option<Output> {
    if fs::metadata(backend.dir()).unwrap().uid() != 0 {
        eprintln!("skipped: only root may become another user");
        return None;
    }
    let program = backend.file("fencelock");
    copy_program(&program);
    fs::set_permissions(backend.dir(), Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command.args(["config", "--json"]).current_dir("/").env("FENCELOCK_URL", "file:/tmp");
    command.env("XDG_CONFIG_HOME", backend.file(name)).uid(12_345).gid(12_345);
    Some(Running::start(command, "").end())
}

#[test]
fn a_file_of_another_user_is_refused() {
    let backend = TestBackend::files();
    let _ = with_file(&backend, "label = 'x'", "config");
    if chown(backend.file("fencelock.toml"), Some(12_345), None).is_err() {
        return eprintln!("skipped: only root may give a file to another user");
    }
    // As with sudo, which may keep the variables of the user.
    let output = Test::new(&backend, "status k").output();
    refused(&output, &["it belongs to user 12345, not to this user, 0, or root", "XDG_CONFIG_HOME"]);
}

#[test]
fn a_file_of_root_applies_if_it_can_be_read_and_is_an_error_if_not() {
    let backend = TestBackend::files();
    write(&backend.file("fencelock.toml"), "label = 'x'", 0o644);
    let Some(output) = as_another_user(&backend, "") else { return };
    assert!(output.stdout.contains(r#""label":"x""#), "{}", output.stderr);
    write(&backend.file("fencelock.toml"), "label = 'x'", 0o600);
    let Some(output) = as_another_user(&backend, "") else { return };
    assert!(output.status == 64 && output.stderr.contains("cannot be read: Permission denied"), "{}", output.stderr);
}

#[test]
fn the_closed_home_of_another_user_has_no_settings_of_this_user() {
    let backend = TestBackend::files();
    // HOME=/root, after `setpriv` and other programs that change the user and not the environment.
    fs::create_dir(backend.file("home")).unwrap();
    fs::set_permissions(backend.file("home"), Permissions::from_mode(0o700)).unwrap();
    write(&backend.file("home/fencelock.toml"), "nonsense", 0o644);
    let Some(output) = as_another_user(&backend, "home") else { return };
    assert!(output.stdout.contains(r#"home/fencelock.toml":"inaccessible""#), "{}", output.stderr);
}

#[test]
fn config_shows_each_setting_and_its_origin() {
    let backend = TestBackend::files();
    let dir = backend.dir().display();
    let table = format!(
        "SETTING      VALUE*  FROM\n\
         url          file:{dir}/locks  FENCELOCK_URL\n\
         label        nightly*  {dir}/fencelock.toml\n\
         ttl          30s*  default\n\
         require_url  false*  default\n\
         \n\
         FILE*  FOUND\n\
         {dir}/fencelock.toml  read\n\
         /etc/fencelock.toml*\n"
    );
    with_file(&backend, "label = 'nightly'", "config").env("FENCELOCK_URL", backend.url()).stdout(&table).run();
    assert!(!backend.file("locks").exists(), "it creates nothing");
    let line = "config --json --url redis://127.0.0.1:1?prefix=a:";
    let output = with_file(&backend, "ttl = '1m'\nrequire_url = true\n", line).output();
    let document = format!(
        r#"{{"backend":"redis://127.0.0.1:1?prefix=a:","files":{{"/etc/fencelock.toml":"*","{dir}/fencelock.toml":"read"}},"from":{{"label":null,"require_url":"{dir}/fencelock.toml","ttl":"{dir}/fencelock.toml","url":"--url"}},"label":null,"require_url":true,"ttl_ms":60000}}"#
    );
    assert!(crate::test::matches(&format!("{document}\n"), &output.stdout), "{}\n{document}", output.stdout);
}

#[test]
fn a_text_in_a_file_does_not_control_the_terminal() {
    let backend = TestBackend::files();
    for text in [r#"label = "a\u001b[2Jb""#, r#""a\u001b[2Jb" = 1"#, "label = 'a\u{1b}[2Jb'"] {
        let output = with_file(&backend, text, "config").output();
        refused(&output, &["/fencelock.toml: "]);
        assert!(!output.stderr.contains('\x1b'), "{text}: {}", output.stderr);
    }
    let output = with_file(&backend, "label = 'a\u{202e}b'", "config").env("FENCELOCK_URL", backend.url()).output();
    assert!(output.stdout.contains(r"a\u{202e}b"), "{}{}", output.stdout, output.stderr);
}

#[test]
fn relative_and_empty_directories_of_settings_are_ignored() {
    let backend = TestBackend::files();
    fs::create_dir_all(backend.file("home/.config")).unwrap();
    write(&backend.file("home/.config/fencelock.toml"), "label = 'home'", 0o600);
    write(&backend.file("fencelock.toml"), "label = 'here'", 0o600);
    let home = backend.file("home").display().to_string();
    let shown = |xdg: &str, home: &str| {
        let test = Test::new(&backend, "config --json").env("XDG_CONFIG_HOME", xdg).env("HOME", home);
        test.output().stdout
    };
    for xdg in ["", ".", "relative"] {
        assert!(shown(xdg, &home).contains(r#""label":"home""#), "{xdg:?}");
        assert!(shown(xdg, ".").contains(r#""label":null"#), "{xdg:?}");
    }
    let none = shown("/dev/null", &home);
    assert!(none.contains(r#""/dev/null/fencelock.toml":"missing""#), "{none}");
}

#[test]
fn the_file_of_a_user_takes_precedence_over_that_of_the_system_key_by_key() {
    let backend = TestBackend::files();
    let home = backend.file("home/.config");
    fs::create_dir_all(&home).unwrap();
    write(&home.join("fencelock.toml"), "label = 'user'\nrequire_url = false\n", 0o600);
    let text = "url = 'redis://127.0.0.1:1'\nlabel = 'system'\nttl = '2m'\n";
    // Without HOME, as in a service of systemd, the home is that of the password file.
    let script = "unset HOME XDG_CONFIG_HOME; fencelock config --json";
    let Some(output) = with_system_file(&backend, text, script) else { return };
    let wanted = [
        r#""label":"user""#.to_owned(),
        r#""ttl_ms":120000"#.to_owned(),
        format!(r#""label":"{}/fencelock.toml""#, home.display()),
        r#""url":"/etc/fencelock.toml""#.to_owned(),
    ];
    for part in wanted {
        assert!(output.stdout.contains(&part), "no {part} in {}{}", output.stdout, output.stderr);
    }
}

#[test]
fn nobody_switches_off_that_the_system_requires_a_url_except_with_one() {
    let backend = TestBackend::files();
    write(&backend.file("fencelock.toml"), "require_url = false\n", 0o600);
    let script = "FENCELOCK_REQUIRE_URL=0 fencelock run k -- true; echo $?; fencelock run --url file:$PWD/locks k -- echo explicit";
    let Some(output) = with_system_file(&backend, "require_url = true\n", script) else { return };
    assert_eq!(output.stdout, "64\nexplicit\n", "{}", output.stderr);
    assert!(output.stderr.contains("/etc/fencelock.toml requires one"), "{}", output.stderr);
}

#[test]
fn a_command_at_a_terminal_says_where_its_lock_is_if_no_url_is_set() {
    let backend = TestBackend::files();
    let told = "fencelock: no URL is set: the lock is at file:/";
    let says = |line: &str, times: usize| {
        let line = format!("unset FENCELOCK_URL; {BINARY} {line}");
        let output = on_a_terminal(&backend, &line).end();
        assert_eq!(output.stdout.matches(told).count(), times, "{line}: {}", output.stdout);
        assert_eq!(output.status, 0, "{line}: {}", output.stdout);
        output.stdout
    };
    let key = format!("config-test-{}", std::process::id());
    // A machine without /run/lock has the warning of the library instead.
    let once = usize::from(!cfg!(target_os = "linux") || Path::new("/run/lock").exists());
    let mut directory = None;
    for line in ["run", "run --also b", "elect"] {
        let said = says(&format!("{line} {key} -- true").replace("also b", &format!("also {key}-b")), once);
        directory = said.split_once(told).and_then(|(_, rest)| Some(format!("/{}", rest.split_once(',')?.0)));
    }
    for line in ["-q run", "--json run", "-v run"] {
        says(&format!("{line} {key} -- true"), 0);
    }
    says(&format!("run {key} -- true 2> err"), 0);
    assert!(fs::read_to_string(backend.file("err")).unwrap().is_empty());
    for line in [format!("status {key}"), "list > /dev/null".to_owned(), "config".to_owned()] {
        says(&line, 0);
    }
    says(&format!("--url {} run k -- true", backend.url()), 0);
    // Nothing is left to whoever runs the tests.
    let Some(directory) = directory else { return };
    assert!(fs::remove_file(format!("{directory}/{key}.lock")).is_ok(), "no lock in {directory}");
    fs::remove_file(format!("{directory}/{key}-b.lock")).unwrap();
}

#[test]
fn the_example_of_the_package_sets_nothing_and_is_valid_with_every_line_in_force() {
    let backend = TestBackend::files();
    let example = include_str!("../../../../packaging/fencelock.toml");
    let from = r#""from":{"label":null,"require_url":null,"ttl":null,"url":"FENCELOCK_URL"}"#;
    with_file(&backend, example, "config --json").env("FENCELOCK_URL", backend.url()).says(0, &[from]);
    let is_setting = |line: &&str| line.starts_with('#') && line.contains(" = ") && !line.starts_with("# ");
    let keys: Vec<_> = example.lines().filter(is_setting).collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    let all: Vec<_> = example.lines().map(|line| if is_setting(&line) { &line[1..] } else { line }).collect();
    let parts = [r#""backend":"redis://redis.example:6379""#, r#""label":"batch""#, r#""require_url":true"#];
    let said = with_file(&backend, &all.join("\n"), "config --json").says(0, &parts);
    assert!(!said.contains("null"), "{said}");
}

#[test]
fn a_file_that_others_may_replace_is_refused() {
    let backend = TestBackend::files();
    let settings = backend.file("settings");
    fs::create_dir(&settings).unwrap();
    write(&settings.join("fencelock.toml"), &url_of(&backend), 0o600);
    let output = |mode| {
        fs::set_permissions(&settings, Permissions::from_mode(mode)).unwrap();
        Test::new(&backend, "status k").env("XDG_CONFIG_HOME", settings.to_str().unwrap()).output()
    };
    refused(&output(0o777), &["other users may replace it: chmod o-w ", "settings"]);
    assert_eq!(output(0o1777).status, 0, "only its owner may replace it");
}

#[test]
fn a_directory_that_is_not_mounted_is_not_taken_for_no_settings() {
    let backend = TestBackend::files();
    symlink("/nowhere/at/all", backend.file("config")).unwrap();
    let line = Test::new(&backend, "run k -- true").env("XDG_CONFIG_HOME", backend.file("config").to_str().unwrap());
    refused(&line.output(), &["config/fencelock.toml: cannot be read"]);
}

#[test]
fn a_file_of_the_own_user_in_a_closed_directory_is_an_error() {
    let backend = TestBackend::files();
    let closed = backend.file("closed");
    fs::create_dir(&closed).unwrap();
    write(&closed.join("fencelock.toml"), "require_url = true\n", 0o600);
    if chown(&closed, Some(12_345), Some(12_345)).is_err() {
        return eprintln!("skipped: only root may give a directory to another user");
    }
    fs::set_permissions(&closed, Permissions::from_mode(0o600)).unwrap();
    let Some(output) = as_another_user(&backend, "closed") else { return };
    assert!(output.status == 64 && output.stderr.contains("cannot be read: Permission denied"), "{}", output.stderr);
}

#[test]
fn a_file_of_the_system_that_belongs_to_a_user_is_refused() {
    let backend = TestBackend::files();
    if with_system_file(&backend, "label = 'x'\n", "fencelock run k -- true").is_none_or(|output| output.status != 0) {
        return eprintln!("skipped: /etc cannot be replaced here");
    }
    if chown(backend.file("etc/fencelock.toml"), Some(12_345), None).is_err() {
        return eprintln!("skipped: only root may give a file to another user");
    }
    // The namespace has no other user than root.
    let script = format!("mount --bind etc /etc && unset FENCELOCK_URL && {BINARY} run k -- true");
    let output = in_namespaces(&backend, &["--mount"], &script).unwrap().end();
    refused(&output, &["/etc/fencelock.toml: it belongs to user 65534: chown root it"]);
}

#[test]
fn config_shows_the_settings_of_a_url_that_cannot_be_used() {
    let backend = TestBackend::files();
    with_file(&backend, "require_url = true\nlabel = 'x'\n", "config")
        .says(64, &["require_url  true", "fencelock.toml  read", "no URL is set"]);
    with_file(&backend, "url = 'nonsense:'\n", "config --json").says(64, &[r#"{"backend":null"#]);
}

#[test]
fn a_url_in_the_place_of_a_key_is_refused() {
    let backend = TestBackend::files();
    for line in ["run redis://h -- true", "run redis://h k -- true", "status redis://h", "acquire file:///x"] {
        Test::new(&backend, line)
            .says(64, &["this is a URL, and a KEY was expected; to choose the backend: --url URL"]);
    }
    // A variable from a file with line ends of another system.
    Test::new(&backend, "run k -- true").env("FENCELOCK_URL", &format!("{}\r", backend.url())).says(64, &["%0D"]);
}
