//! Classifies the errors of the server and the driver, by SQLSTATE.

use fencelock_core::{Fault, Unknown};
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

/// A function that does not exist, a missing schema, or a missing table.
pub(crate) const NOT_INSTALLED: [SqlState; 3] =
    [SqlState::INVALID_SCHEMA_NAME, SqlState::UNDEFINED_FUNCTION, SqlState::UNDEFINED_TABLE];

/// Behind a pooler, another server answers than before.
const OTHER_SERVER: &str = "FL003";

/// Nothing was executed.
pub(crate) const LOCKED: &str = "a transaction holds the row of this key, such as one that has called lock_in";

const PASSWORD: &str = "write it in the file of password_file=, in PGPASSWORD, or in ~/.pgpass";
const CONNECT: &str = "GRANT CONNECT ON DATABASE ... TO this role";
const INSTALL: &str = "run `fencelock init` with this URL once, or add create=true to it; the case of schema= counts";
const RIGHTS: &str = "the role needs USAGE on the schema and EXECUTE on its functions, as docs/en/postgres.md lists them; `init` needs the \
                      owner of the schema, or CREATE on the database where there is none";
const DATABASE: &str = "create it with `createdb`, or correct the URL; its case counts";
const ROLE: &str =
    "name a role that may connect from here, as in postgres://ROLE@HOST/DATABASE, or make one with `createuser`";
const ENCODING: &str =
    "use a key and a label of letters that the encoding of the database has, or a database with ENCODING UTF8";
const STANDBY: &str = "if it is a standby, name the primary in the URL";

/// What codes mean, and what to do.
const CODES: [(SqlState, Fault, &str); 17] = [
    (SqlState::INVALID_SCHEMA_NAME, Fault::Unsupported, INSTALL),
    (SqlState::UNDEFINED_FUNCTION, Fault::Unsupported, INSTALL),
    (SqlState::UNDEFINED_TABLE, Fault::Unsupported, INSTALL),
    (SqlState::INVALID_CATALOG_NAME, Fault::Unsupported, DATABASE),
    (SqlState::INSUFFICIENT_PRIVILEGE, Fault::Denied, RIGHTS),
    (SqlState::INVALID_PASSWORD, Fault::Denied, PASSWORD),
    (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, Fault::Denied, ROLE),
    (SqlState::UNTRANSLATABLE_CHARACTER, Fault::Unsupported, ENCODING),
    (SqlState::CHARACTER_NOT_IN_REPERTOIRE, Fault::Unsupported, ENCODING),
    // A standby does not even begin a transaction that writes.
    (SqlState::READ_ONLY_SQL_TRANSACTION, Fault::ReadOnly, STANDBY),
    (SqlState::FEATURE_NOT_SUPPORTED, Fault::ReadOnly, STANDBY),
    (SqlState::CANNOT_CONNECT_NOW, Fault::Loading, ""),
    (SqlState::QUERY_CANCELED, Fault::Timeout, ""),
    (SqlState::TOO_MANY_CONNECTIONS, Fault::Busy, ""),
    (SqlState::LOCK_NOT_AVAILABLE, Fault::Busy, LOCKED),
    (SqlState::T_R_SERIALIZATION_FAILURE, Fault::Busy, ""),
    (SqlState::T_R_DEADLOCK_DETECTED, Fault::Busy, ""),
];

/// The rest by the first two characters of their code.
const CLASSES: [(&str, Fault); 9] = [
    // Data that this database never takes, such as a key with a letter that its encoding lacks, or more of it than a limit allows.
    ("22", Fault::Unsupported),
    ("54", Fault::Unsupported),
    (OTHER_SERVER, Fault::Unreachable),
    // A superuser must not make functions in the schema of another role.
    ("FL004", Fault::Denied),
    ("28", Fault::Denied),
    ("53", Fault::Full),
    ("57", Fault::Unreachable),
    ("58", Fault::Full),
    ("08", Fault::Unreachable),
];

/// What `error` of a request to `node` means.
pub(crate) fn unknown(node: &str, error: &Error) -> Unknown {
    let Some(error) = error.as_db_error() else {
        let text = with_causes(error);
        // The driver has only a text for this: the server asks for a password, and there is none.
        if text.ends_with("password missing") {
            return Unknown::new(node, Fault::Denied, format!("the server asks for a password: {PASSWORD}"));
        }
        let fault = if text.ends_with("channel binding") { Fault::Denied } else { Fault::Unreachable };
        return Unknown::new(node, fault, text);
    };
    if error.message().contains("statement pooling mode") {
        let text = "the pooler allows no transaction: use pool_mode = transaction, or another port";
        return Unknown::new(node, Fault::Unsupported, text);
    }
    let message = error.message();
    // A server refuses a login so, and goes on after a request.
    let at_login = error.parsed_severity() == Some(Severity::Fatal);
    let text = match known(error.code()).1 {
        "" => message.to_owned(),
        RIGHTS if at_login => format!("{message}: {CONNECT}"),
        remedy => format!("{message}: {remedy}"),
    };
    Unknown::new(node, known(error.code()).0, text)
}

/// Whether a new connection may lead to a server that takes writes, although this one is open: its server was replaced, or demoted.
pub(crate) fn has_moved(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code() == OTHER_SERVER || known(code).0 == Fault::ReadOnly)
}

/// A server that could not be reached, or that refuses this client, and the remedy. In contrast to a request, nothing was executed.
fn known(code: &SqlState) -> (Fault, &'static str) {
    if let Some((_, fault, remedy)) = CODES.iter().find(|(known, ..)| known == code) {
        return (*fault, remedy);
    }
    let class = CLASSES.iter().find(|(class, _)| code.code().starts_with(class));
    (class.map_or(Fault::Other, |(_, fault)| *fault), "")
}

/// The text of the driver names only the step that failed.
fn with_causes(error: &Error) -> String {
    let causes =
        std::iter::successors(std::error::Error::source(error), |cause| cause.source()).map(ToString::to_string);
    let add = |text: String, cause: String| if text.contains(&cause) { text } else { format!("{text}: {cause}") };
    causes.fold(error.to_string(), add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_faults() {
        for (code, fault) in [
            ("28P01", Fault::Denied),
            ("42501", Fault::Denied),
            ("3D000", Fault::Unsupported),
            ("3F000", Fault::Unsupported),
            ("42883", Fault::Unsupported),
            ("25006", Fault::ReadOnly),
            ("FL003", Fault::Unreachable),
            ("57P03", Fault::Loading),
            ("57P01", Fault::Unreachable),
            ("57014", Fault::Timeout),
            ("53100", Fault::Full),
            ("53300", Fault::Busy),
            ("55P03", Fault::Busy),
            ("40001", Fault::Busy),
            ("40P01", Fault::Busy),
            ("22021", Fault::Unsupported),
            ("22P05", Fault::Unsupported),
            ("54000", Fault::Unsupported),
            ("23505", Fault::Other),
        ] {
            assert_eq!(known(&SqlState::from_code(code)).0, fault, "{code}");
        }
    }
}
