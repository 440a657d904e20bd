//! The scripts of a lock: their Lua, one typed call for each, what they reply, and what they write.
//!
//! Every decision is a Lua script, and so an atomic step on the server. The scripts are in `lua/`, one file each. This room opens
//! no connection.
//!
//! | file | what |
//! |---|---|
//! | `lua/`, `lua`, `script`, `call` | the scripts, their parts, and one typed function for each |
//! | `combined` | the script that carries out the common cases of several locks |
//! | `reply`, `shared` | the replies, locks that several clients hold, and what this version cannot read |
//! | `wire`, `message` | the version of the format, and the message of a hand-off |
//! | `quarantine` | the marker of a server that may have lost its locks |

pub(crate) mod call;
pub(crate) mod combined;
pub(crate) mod lua;
pub(crate) mod message;
#[cfg(test)]
mod on_a_server;
pub(crate) mod quarantine;
pub(crate) mod reply;
pub(crate) mod script;
pub(crate) mod shared;
pub(crate) mod side_key;
pub(crate) mod wire;
