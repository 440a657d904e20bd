use super::link::is_no_script;
use super::script::Call;
use super::session::Session;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};

/// A connection that takes many commands in one go; an error of one is its own.
pub(crate) trait Carrier {
    fn carry(&self, commands: &Pipeline) -> impl Future<Output = RedisResult<Vec<RedisResult<Value>>>> + Send;
}

impl Carrier for Session {
    async fn carry(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        self.send_all(commands).await
    }
}

impl Carrier for MultiplexedConnection {
    async fn carry(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        let answers = self.clone().send_packed_commands(commands, 0, commands.len()).await?;
        Ok(answers.into_iter().map(Value::extract_error).collect())
    }
}

/// What came of a batch.
#[derive(Debug)]
pub(crate) struct Batch {
    /// One for each call, in their order.
    pub(crate) answers: Vec<RedisResult<Value>>,
    /// The answer to the command after the calls.
    pub(crate) after: Option<RedisResult<Value>>,
}

/// Sends a batch by digest; if the server does not know the script, one call in full, and by digest again.
///
/// The command `after` follows the calls in the same go, and follows those sent again once more.
pub(crate) async fn send_batch(carrier: &impl Carrier, calls: &[Call], after: Option<&Cmd>) -> RedisResult<Batch> {
    let mut batch = send_each(carrier, calls.iter().map(|call| (call.by_digest(), call.tracked)), after).await?;
    let unknown: Vec<usize> =
        (0..calls.len()).filter(|i| matches!(&batch.answers[*i], Err(error) if is_no_script(error))).collect();
    let Some((first, rest)) = unknown.split_first() else { return Ok(batch) };
    let in_full = calls[*first].in_full();
    let again = rest.iter().map(|i| (calls[*i].by_digest(), calls[*i].tracked));
    let again = send_each(carrier, std::iter::once((&in_full, calls[*first].tracked)).chain(again), after).await?;
    for (i, again) in unknown.iter().zip(again.answers) {
        batch.answers[*i] = again;
    }
    batch.after = again.after;
    Ok(batch)
}

async fn send_each<'a>(
    carrier: &impl Carrier,
    calls: impl Iterator<Item = (&'a Cmd, bool)>,
    after: Option<&Cmd>,
) -> RedisResult<Batch> {
    let mut commands = redis::pipe();
    // Where the answers to the calls are.
    let mut places = Vec::new();
    for (call, tracked) in calls {
        if tracked {
            commands.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        places.push(commands.len());
        commands.add_command(call.clone());
    }
    if places.is_empty() {
        return Ok(Batch { answers: Vec::new(), after: None });
    }
    if let Some(after) = after {
        commands.add_command(after.clone());
    }
    let mut answers: Vec<_> = carrier.carry(&commands).await?.into_iter().map(Some).collect();
    let mut answer = |place: usize| answers.get_mut(place).and_then(Option::take).unwrap_or_else(missing);
    let called = places.into_iter().map(&mut answer).collect();
    Ok(Batch { answers: called, after: after.map(|_| answer(commands.len() - 1)) })
}

fn missing() -> RedisResult<Value> {
    Err((redis::ErrorKind::Parse, "fewer answers than requests").into())
}
