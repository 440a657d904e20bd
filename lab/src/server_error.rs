//! What went wrong with a server.

use crate::lang::Lang;
use redis::RedisError;

/// Human-readable.
pub(crate) fn server_error(error: &RedisError, lang: Lang) -> String {
    match (error.is_io_error(), lang) {
        (true, Lang::En) => format!("cannot reach the server: {error}"),
        (true, Lang::Zh) => format!("连不上服务器：{error}"),
        (false, Lang::En) => format!("the server rejected a command: {error}"),
        (false, Lang::Zh) => format!("服务器没有照做：{error}"),
    }
}
