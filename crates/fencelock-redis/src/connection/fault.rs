//! Classifies the errors of the server and the driver, for all versions.

use crate::tls;
use fencelock_core::{Fault, Unknown};
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Errors by their code in capitals, or by a part of their text, if the code is `ERR` or there is none; and the remedy, if the error of the
/// server does not contain it.
const KNOWN: [(&str, Fault, &str); 30] = [
    // The text of the server mentions HELLO, which confuses users.
    ("NOAUTH", Fault::Denied, PASSWORD),
    ("WRONGPASS", Fault::Denied, ""),
    ("NOPERM", Fault::Denied, ""),
    // Protected mode: only local connections are accepted.
    ("DENIED", Fault::Denied, ""),
    ("READONLY", Fault::ReadOnly, ""),
    // A demoted server ends the blocked requests of its clients, and refuses new ones.
    ("UNBLOCKED", Fault::ReadOnly, ""),
    ("LOADING", Fault::Loading, ""),
    ("OOM", Fault::Full, ""),
    ("MISCONF", Fault::Full, ""),
    ("NOREPLICAS", Fault::Full, ""),
    ("BUSY", Fault::Busy, ""),
    ("TRYAGAIN", Fault::Busy, ""),
    ("CLUSTERDOWN", Fault::Busy, "a master is down, or slots have no node: redis-cli --cluster check HOST:PORT"),
    ("MASTERDOWN", Fault::Busy, ""),
    ("MOVED", Fault::Unsupported, CLUSTER),
    ("ASK", Fault::Unsupported, CLUSTER),
    ("CROSSSLOT", Fault::Unsupported, CLUSTER),
    ("invalid password", Fault::Denied, ""),
    // A command or a key in a script: up to Redis 7.0, and from 7.2 and in Valkey.
    ("The user executing the script", Fault::Denied, SCRIPTS),
    ("ACL failure in script", Fault::Denied, SCRIPTS),
    ("WAIT cannot be used with replica", Fault::ReadOnly, ""),
    ("max number of clients", Fault::Busy, ""),
    ("DB index is out of range", Fault::Unsupported, DATABASE),
    // Raised by `lua/tokens.lua`.
    ("the fencing token of this key has reached 2^53", Fault::Unsupported, COUNTER),
    ("SELECT is not allowed in cluster mode", Fault::Unsupported, CLUSTER),
    // The command is renamed, or the server is only similar to Redis: in a script, of Redis and of Valkey, and the scripts
    // themselves.
    ("nknown Redis command called from", Fault::Unsupported, COMMANDS),
    ("nknown command called from", Fault::Unsupported, COMMANDS),
    ("unknown command 'EVAL", Fault::Unsupported, ""),
    ("unknown command `EVAL", Fault::Unsupported, ""),
    // Of the proxy of Tair.
    ("bad lua script for redis cluster", Fault::Unsupported, LITERAL_KEYS),
];

const PASSWORD: &str = "the server requires a password; give it in the URL: password_file=FILE or [USER]:PASSWORD@HOST";
const CLUSTER: &str = "this is a node of a Redis Cluster: use redis+cluster://HOST:PORT";
const SCRIPTS: &str = "allow this user the commands in the scripts, as docs/en/operations.md lists them";
const COMMANDS: &str = "the scripts need every command that docs/en/operations.md lists, under its own name";
const DATABASE: &str = "name a database that the server has at the end of the URL; 0 is the default";
const COUNTER: &str = "no clock reaches this value, so another program has written its counter, fencelock:{KEY}:fence: delete that key, and what \
                       receivers remember as the greatest token";
const LITERAL_KEYS: &str = "a proxy reads the text of each script, and accepts no key that is not written as KEYS[n]: connect to the server itself, or \
                            switch the check off";

/// The kind of fault of a driver error.
pub(crate) fn fault_of(error: &RedisError) -> Fault {
    if error.is_timeout() {
        return Fault::Timeout;
    }
    // This comes first: for the driver, a certificate that is not accepted is an error of I/O.
    if let Some((fault, _)) = tls::cause(error) {
        return fault;
    }
    if error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal() {
        return Fault::Unreachable;
    }
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) => Fault::Denied,
        (_, Some(code)) => Words::of(code, error.detail()).known().0,
        (_, None) => Fault::Other,
    }
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether a user may not use a key, so that the error says nothing about a command. `detail` is the text of the server.
pub(crate) fn is_about_a_key(detail: &str) -> bool {
    ["one of the keys", "access a key"].iter().any(|words| detail.contains(words))
}

/// The server does not have this command. Its text depends on the version.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.to_ascii_lowercase().contains("unknown command"))
}

pub(crate) fn unknown(node: &str, error: &RedisError) -> Unknown {
    let fault = fault_of(error);
    let detail = match fault {
        // The driver's text adds nothing to the fault.
        Fault::Timeout => String::new(),
        _ => words(error),
    };
    Unknown::new(node, fault, detail)
}

/// The text of the server, without the additions of the driver.
pub(crate) fn words(error: &RedisError) -> String {
    if let Some((_, why)) = tls::cause(error) {
        return why;
    }
    match error.code() {
        Some(code) => Words::of(code, error.detail()).for_people(),
        None if error.kind() == ErrorKind::Parse => "its reply is not the Redis protocol".to_owned(),
        None => error.to_string(),
    }
}

/// An error of the server. Errors from scripts have additions that depend on the version: Redis 6.2
/// puts the code into the middle of the text, 7 and later append the position in the script, Valkey without a digest.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    code: String,
    text: String,
}

impl Words {
    fn of(code: &str, detail: Option<&str>) -> Self {
        let line = detail.map_or_else(|| code.to_owned(), |detail| format!("{code} {detail}"));
        let line = without_position(without_frame(&line)).trim_start_matches('-');
        // An error raised by a script has a code, and gets another one.
        let line = line.strip_prefix("ERR ").filter(|rest| has_code(rest)).unwrap_or(line);
        let code = code_of(line).unwrap_or_default();
        Self { code: code.to_owned(), text: line[code.len()..].trim_start().to_owned() }
    }

    /// Its fault and the remedy.
    fn known(&self) -> (Fault, &'static str) {
        let by_code = KNOWN.iter().find(|(code, ..)| *code == self.code);
        let by_text = || KNOWN.iter().find(|(text, ..)| self.text.contains(text) && text.contains(' '));
        by_code.or_else(by_text).map_or((Fault::Other, ""), |(_, fault, remedy)| (*fault, remedy))
    }

    fn for_people(&self) -> String {
        let Self { code, text } = self;
        let line = [code.as_str(), text].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        match self.known().1 {
            "" => line,
            remedy if code == "NOAUTH" => format!("{code}: {remedy}"),
            remedy => format!("{line}: {remedy}"),
        }
    }
}

/// `ERR Error running script (call to f_...): @user_script:1: @user_script: 1: -OOM ...`, as up to Redis 6.2.
fn without_frame(line: &str) -> &str {
    let framed = line.strip_prefix("ERR Error running script (call to ").and_then(|rest| rest.split_once("): "));
    let mut rest = framed.map_or(line, |(_, rest)| rest);
    while let Some((_, after)) = rest
        .strip_prefix("@user_script:")
        .and_then(|number| number.split_once(": "))
        .filter(|(number, _)| number.trim_start().bytes().all(|byte| byte.is_ascii_digit()))
    {
        rest = after;
    }
    rest
}

/// `... script: <digest>, on @user_script:12.`, and without the digest.
fn without_position(line: &str) -> &str {
    line.rsplit_once(" script: ")
        .filter(|(_, position)| position.contains("on @user_script:"))
        .map_or(line, |(words, _)| words)
}

/// Whether the text after a code starts with a code. Other words may be in capitals, too: `ERR DB index is out of range`.
fn has_code(line: &str) -> bool {
    code_of(line).is_some_and(|word| word == "ERR" || KNOWN.iter().any(|(code, ..)| *code == word))
}

/// The first word, if it is in capitals.
fn code_of(line: &str) -> Option<&str> {
    let word = line.split(' ').next()?;
    (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase())).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors as servers send them, without the first character. The first column names the versions.
    const SAMPLES: &[(&str, &str, Fault)] = &[
        (
            "6.2",
            "ERR Error running script (call to f_db8d): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
            Fault::Denied,
        ),
        (
            "7.0",
            "ERR The user executing the script can't run this command or subcommand script: db8d, on @user_script:1.",
            Fault::Denied,
        ),
        (
            "7.0",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 2498, on @user_script:1.",
            Fault::Denied,
        ),
        (
            "8.2",
            "ERR ACL failure in script: User app has no permissions to run the 'set' command script: db8d, on @user_script:1.",
            Fault::Denied,
        ),
        (
            "8.2",
            "ERR ACL failure in script: No permissions to access a key script: 2498, on @user_script:1.",
            Fault::Denied,
        ),
        (
            "valkey 9.1",
            "ERR ACL failure in script: User app has no permissions to run the 'set' command script: on @user_script:1.",
            Fault::Denied,
        ),
        ("all", "NOPERM this user has no permissions to run the 'eval' command", Fault::Denied),
        ("all", "WRONGPASS invalid username-password pair or user is disabled.", Fault::Denied),
        ("all", "NOAUTH Authentication required.", Fault::Denied),
        ("all", "DENIED Redis is running in protected mode because protected mode is enabled", Fault::Denied),
        (
            "6.2",
            "ERR Error running script (call to f_db8d): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
            Fault::Full,
        ),
        (
            "7.0",
            "OOM command not allowed when used memory > 'maxmemory'. script: db8d, on @user_script:1.",
            Fault::Full,
        ),
        (
            "6.2",
            "ERR Error running script (call to f_db8d): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good replicas to write.",
            Fault::Full,
        ),
        ("valkey 9.1", "NOREPLICAS Not enough good replicas to write. script: on @user_script:1.", Fault::Full),
        (
            "6.2",
            "ERR Error running script (call to f_db8d): @user_script:1: @user_script: 1: -MISCONF Redis is configured to save RDB snapshots",
            Fault::Full,
        ),
        (
            "7.0",
            "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk. script: db8d, on @user_script:1.",
            Fault::Full,
        ),
        (
            "6.2",
            "ERR Error running script (call to f_db8d): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
            Fault::ReadOnly,
        ),
        (
            "7.0",
            "READONLY You can't write against a read only replica. script: db8d, on @user_script:1.",
            Fault::ReadOnly,
        ),
        ("all", "ERR WAIT cannot be used with replica instances. Please also note", Fault::ReadOnly),
        (
            "all",
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            Fault::ReadOnly,
        ),
        ("all", "LOADING Redis is loading the dataset in memory", Fault::Loading),
        ("all", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Fault::Busy),
        ("all", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Fault::Busy),
        ("all", "CLUSTERDOWN Hash slot not served", Fault::Busy),
        ("all", "ERR max number of clients reached", Fault::Busy),
        ("all", "MOVED 866 127.0.0.1:7001", Fault::Unsupported),
        ("all", "ASK 866 127.0.0.1:7001", Fault::Unsupported),
        ("all", "CROSSSLOT Keys in request don't hash to the same slot", Fault::Unsupported),
        ("all", "ERR DB index is out of range", Fault::Unsupported),
        ("up to 8.2", "ERR SELECT is not allowed in cluster mode", Fault::Unsupported),
        (
            "6.2",
            "ERR Error running script (call to f_db8d): @user_script:1: @user_script: 1: Unknown Redis command called from Lua script",
            Fault::Unsupported,
        ),
        ("7.0", "ERR Unknown Redis command called from script script: db8d, on @user_script:1.", Fault::Unsupported),
        ("valkey 9.1", "ERR Unknown command called from script script: on @user_script:1.", Fault::Unsupported),
        ("6.2", "ERR unknown command `EVALSHA`, with args beginning with: `db8d`, ", Fault::Unsupported),
        ("7.0", "ERR unknown command 'EVALSHA', with args beginning with: 'db8d' ", Fault::Unsupported),
        (
            "proxy",
            "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array",
            Fault::Unsupported,
        ),
        (
            "6.2",
            "ERR Error running script (call to f_42d5): @user_script:1: ERR fencelock: the fencing token",
            Fault::Other,
        ),
        ("7.0", "ERR ERR fencelock: the fencing token script: 18f0, on @user_script:1.", Fault::Other),
        ("all", "ERR wrong number of arguments for 'get' command", Fault::Other),
    ];

    fn parsed(line: &str) -> Words {
        let (code, detail) = line.split_once(' ').unwrap();
        Words::of(code, Some(detail))
    }

    #[test]
    fn errors_of_all_versions_are_classified_equally() {
        for (version, line, fault) in SAMPLES {
            assert_eq!(parsed(line).known().0, *fault, "{version}: {line}");
        }
    }

    #[test]
    fn messages_contain_the_server_text_without_script_additions() {
        for (version, line, _) in SAMPLES {
            let message = parsed(line).for_people();
            assert!(!message.contains("user_script") && !message.contains("call to"), "{version}: {message}");
        }
        let message = |line| parsed(line).for_people();
        assert_eq!(message(SAMPLES[10].1), "OOM command not allowed when used memory > 'maxmemory'.");
        for raised in [SAMPLES[SAMPLES.len() - 3].1, SAMPLES[SAMPLES.len() - 2].1] {
            assert_eq!(message(raised), "ERR fencelock: the fencing token");
        }
    }

    #[test]
    fn permanent_errors_contain_a_remedy() {
        let message = |line| parsed(line).for_people();
        assert!(
            message("MOVED 866 127.0.0.1:7001")
                .ends_with("is a node of a Redis Cluster: use redis+cluster://HOST:PORT")
        );
        assert!(message("ERR DB index is out of range").contains("0 is the default"));
        assert!(message("NOAUTH HELLO must be called with").starts_with("NOAUTH: the server requires a password"));
        assert!(message(SAMPLES[3].1).contains("the 'set' command: allow this user the commands in the scripts"));
    }
}
