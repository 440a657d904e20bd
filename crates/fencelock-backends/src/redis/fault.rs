use fencelock_core::{Fault, Unknown};
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What kind of "could not tell" an error of the driver is.
///
/// Scripts pass on the errors of the commands in them: since Redis 7 with their code, before that inside the text.
pub(crate) fn fault_of(error: &RedisError) -> Fault {
    if error.is_timeout() {
        return Fault::Timeout;
    }
    if error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal() {
        return Fault::Unreachable;
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => Fault::Denied,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::NoPerm => Fault::Denied,
            ServerErrorKind::ReadOnly => Fault::ReadOnly,
            ServerErrorKind::BusyLoading => Fault::Loading,
            ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown => Fault::Busy,
            _ => fault_of_words(error),
        },
        _ => fault_of_words(error),
    }
}

fn fault_of_words(error: &RedisError) -> Fault {
    const WORDS: [(&str, Fault); 15] = [
        ("NOAUTH", Fault::Denied),
        ("WRONGPASS", Fault::Denied),
        ("NOPERM", Fault::Denied),
        ("invalid password", Fault::Denied),
        ("The user executing the script", Fault::Denied),
        ("READONLY", Fault::ReadOnly),
        // A server that is demoted ends the waits of its clients, and refuses new ones.
        ("UNBLOCKED", Fault::ReadOnly),
        ("WAIT cannot be used with replica", Fault::ReadOnly),
        ("LOADING", Fault::Loading),
        ("OOM ", Fault::Full),
        ("MISCONF", Fault::Full),
        ("NOREPLICAS", Fault::Busy),
        ("BUSY", Fault::Busy),
        ("TRYAGAIN", Fault::Busy),
        ("MASTERDOWN", Fault::Busy),
    ];
    let text = format!("{} {}", error.code().unwrap_or_default(), error);
    WORDS.iter().find(|(word, _)| text.contains(word)).map_or(Fault::Other, |(_, fault)| *fault)
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(crate) fn unknown(node: &str, error: &RedisError) -> Unknown {
    let fault = fault_of(error);
    let detail = match fault {
        // The words of the driver say no more than the fault does.
        Fault::Timeout => String::new(),
        _ => words(error),
    };
    Unknown::new(node, fault, detail)
}

/// The server's own words, without the driver's frame.
fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        // The server explains HELLO instead, which nobody has typed.
        (Some("NOAUTH"), _) => {
            "NOAUTH: it wants a password, in the URL before the host: [USER]:PASSWORD@HOST".to_owned()
        }
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}
