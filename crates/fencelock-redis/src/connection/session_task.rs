use super::liveness::Liveness;
use tokio::task::JoinHandle;

/// A task that ends with its session, when this value is dropped; and a session that ends with its task, even if it panics.
#[derive(Debug)]
pub(crate) struct SessionTask(JoinHandle<()>);

/// Ends the session when it is dropped.
struct EndSession(Liveness);

impl Drop for EndSession {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl SessionTask {
    pub(crate) fn spawn(session: &Liveness, task: impl Future<Output = ()> + Send + 'static) -> Self {
        let end = EndSession(session.clone());
        Self(tokio::spawn(async move {
            let _end = end;
            task.await;
        }))
    }
}

impl Drop for SessionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
