use tokio::task::JoinHandle;

/// A task that ends with its session, when this value is dropped.
#[derive(Debug)]
pub(crate) struct SessionTask(JoinHandle<()>);

impl SessionTask {
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }
}

impl Drop for SessionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
