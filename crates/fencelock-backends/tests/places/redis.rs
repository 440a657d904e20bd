use fencelock_backends::Redis;
use fencelock_conformance::{Foreign, Place, RedisForeign, RedisServer, Site, StartError};
use fencelock_core::{Backend, BoxFuture};
use std::sync::{Arc, Mutex, PoisonError};

/// One server for all cases of a site; each backend is a connection of its own. `options` go into the URL.
pub(crate) fn site(name: &'static str, options: &'static str) -> Site {
    let server: Mutex<Option<Arc<RedisServer>>> = Mutex::default();
    Site::new(name, move || {
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let server = match &*server {
            Some(server) => Arc::clone(server),
            None => Arc::clone(server.insert(Arc::new(RedisServer::start().map_err(StartError::reason_to_skip)?))),
        };
        let (url, foreign) = (format!("{}{options}", server.url()), server.foreign());
        Ok(Box::new(OnRedis { _server: server, url, foreign }))
    })
}

struct OnRedis {
    _server: Arc<RedisServer>,
    url: String,
    foreign: RedisForeign,
}

impl Place for OnRedis {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async {
            let redis: Arc<dyn Backend> = Arc::new(Redis::open(&self.url).await.expect("a server to connect to"));
            redis
        })
    }

    fn foreign(&self) -> Result<&dyn Foreign, &'static str> {
        Ok(&self.foreign)
    }
}
