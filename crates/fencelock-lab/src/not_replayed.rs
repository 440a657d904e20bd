//! Why a counterexample could not be done on a real server.

use crate::trouble::trouble;
use crate::words::Lang;
use std::fmt;

/// Why there is no replay.
#[derive(Debug)]
pub enum NotReplayed {
    /// This property holds, so there is nothing to show.
    Holds,
    /// It needs a replica.
    NeedsReplica,
    /// The replica is none, or none of this master's.
    NoReplica(String),
    /// The server did not do what was asked.
    Server(redis::RedisError),
    /// The server does not do what the model says.
    Differs {
        /// Which step, counted from 1.
        step: usize,
        /// What the model says.
        expected: String,
        /// What the server says.
        got: String,
    },
    /// The machine was too slow even for the longest ticks.
    TooSlow,
    /// It was told to stop.
    Stopped,
}

impl NotReplayed {
    /// The reason, for people.
    pub fn text(&self, lang: Lang) -> String {
        match (self, lang) {
            (Self::Holds, Lang::En) => "the property holds, so there is nothing to replay".to_owned(),
            (Self::Holds, Lang::Zh) => "该性质成立，没有可以重放的反例".to_owned(),
            (Self::NeedsReplica, Lang::En) => {
                "this needs a replica of that master: say which with --replica URL; it is promoted and re-attached"
                    .to_owned()
            }
            (Self::NeedsReplica, Lang::Zh) => {
                "需要该主库的一个从库：用 --replica URL 指定；它会被提升为主库，结束后再接回去".to_owned()
            }
            (Self::NoReplica(why), Lang::En) => format!("not a replica of that master: {why}"),
            (Self::NoReplica(why), Lang::Zh) => format!("不是该主库的从库：{why}"),
            (Self::Server(error), lang) => trouble(error, lang),
            (Self::Differs { step, expected, got }, Lang::En) => {
                format!("step {step}: the model says {expected}, the server {got}")
            }
            (Self::Differs { step, expected, got }, Lang::Zh) => {
                format!("第 {step} 步：模型认为是 {expected}，服务器是 {got}")
            }
            (Self::TooSlow, Lang::En) => "this machine is too slow for it now".to_owned(),
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
