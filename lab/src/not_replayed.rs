//! Why a replay failed.

use crate::lang::Lang;
use crate::server_error::server_error;
use std::fmt;

/// Why a replay failed.
#[derive(Debug)]
pub enum NotReplayed {
    /// The property holds, so there is no counterexample.
    Holds,
    /// The counterexample needs a replica.
    NeedsReplica,
    /// The server is not a replica of this master.
    NoReplica(String),
    /// The server returned an error.
    Server(redis::RedisError),
    /// The server differs from the model.
    Differs {
        /// The number of the step, from 1.
        step: usize,
        /// The result of the model.
        expected: String,
        /// The result of the server.
        got: String,
    },
    /// The machine was too slow even for the longest ticks.
    TooSlow,
    /// The replay was stopped.
    Stopped,
}

impl NotReplayed {
    /// The reason as text.
    pub fn text(&self, lang: Lang) -> String {
        match (self, lang) {
            (Self::Holds, Lang::En) => "the property holds, so there is nothing to replay".to_owned(),
            (Self::Holds, Lang::Zh) => "该性质成立，没有可以重放的反例".to_owned(),
            (Self::NeedsReplica, Lang::En) => {
                "this needs a replica of that master: name it with --replica URL; it is promoted and re-attached"
                    .to_owned()
            }
            (Self::NeedsReplica, Lang::Zh) => {
                "需要该主库的一个从库：用 --replica URL 指定；它会被提升为主库，结束后再接回去".to_owned()
            }
            (Self::NoReplica(why), Lang::En) => format!("not a replica of that master: {why}"),
            (Self::NoReplica(why), Lang::Zh) => format!("不是该主库的从库：{why}"),
            (Self::Server(error), lang) => server_error(error, lang),
            (Self::Differs { step, expected, got }, Lang::En) => {
                format!("step {step}: the model returns {expected}, the server {got}")
            }
            (Self::Differs { step, expected, got }, Lang::Zh) => {
                format!("第 {step} 步：模型认为是 {expected}，服务器是 {got}")
            }
            (Self::TooSlow, Lang::En) => "this machine is too slow at the moment".to_owned(),
            (Self::TooSlow, Lang::Zh) => "这台机器现在太慢，没法按时执行".to_owned(),
            (Self::Stopped, Lang::En) => "stopped".to_owned(),
            (Self::Stopped, Lang::Zh) => "已中止".to_owned(),
        }
    }
}

impl fmt::Display for NotReplayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(Lang::En))
    }
}

impl std::error::Error for NotReplayed {}

impl From<redis::RedisError> for NotReplayed {
    fn from(error: redis::RedisError) -> Self {
        Self::Server(error)
    }
}
