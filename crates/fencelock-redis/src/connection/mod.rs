//! The connections to one server: how they are opened and watched, and what is sent over them.
//!
//! | file | what |
//! |---|---|
//! | `link`, `session`, `server_info` | the live session and the other servers of its list, one connection, and what is known about its server |
//! | `dial`, `protocol` | opening a connection, and why it failed |
//! | `liveness`, `names` | whether a connection is alive, and the addresses of a host |
//! | `push_handler`, `shard_channels` | the messages that the server pushes |
//! | `batch`, `combiner` | requests that are sent together |
//! | `ack_writer` | writes that replicas must confirm |
//! | `fault` | the errors of all versions |

pub(crate) mod ack_writer;
pub(crate) mod batch;
pub(crate) mod combiner;
pub(crate) mod dial;
pub(crate) mod fault;
pub(crate) mod link;
pub(crate) mod liveness;
pub(crate) mod names;
pub(crate) mod protocol;
pub(crate) mod push_handler;
pub(crate) mod server_info;
pub(crate) mod session;
pub(crate) mod shard_channels;
