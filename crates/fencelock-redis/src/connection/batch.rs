use super::fault::{fault_of, is_no_script};
use crate::scripts::lua::{Commands, Lua};
use crate::scripts::script::Call;
use fencelock_core::Fault;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use std::sync::LazyLock;

/// A connection that sends many commands in one pipeline; each has its own error.
pub(crate) trait PipelineSender {
    fn carry(&self, commands: &Pipeline) -> impl Future<Output = RedisResult<Vec<RedisResult<Value>>>> + Send;
}

impl PipelineSender for MultiplexedConnection {
    async fn carry(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        let answers = self.clone().send_packed_commands(commands, 0, commands.len()).await?;
        Ok(answers.into_iter().map(Value::extract_error).collect())
    }
}

/// Sends a batch by digest; if the server has refused calls so that it helps ([`again`]), sends one of them in full, and the rest by digest
/// again. The answers are in the order of the calls.
///
/// The command `after` follows the calls in the same pipeline, and follows repeated calls once more. Its answer is the last one.
pub(crate) async fn send_batch(
    carrier: &impl PipelineSender,
    calls: Vec<Call>,
    after: Option<&Cmd>,
) -> RedisResult<Vec<RedisResult<Value>>> {
    let (parts, digests): (Vec<_>, Vec<_>) = calls.into_iter().map(Call::into_parts).unzip();
    let sent = Batch::new(digests.into_iter().zip(parts.iter().map(|(_, tracked)| *tracked)), after);
    let mut answers = sent.carry(carrier).await?;
    let commands = |i: usize| Some((i, again(parts[i].0, answers[i].as_ref().err()?)?));
    let refused: Vec<_> = (0..parts.len()).filter_map(commands).collect();
    let Some((first, _)) = refused.first() else { return Ok(answers) };
    let calls = refused.iter().filter_map(|(i, commands)| {
        let (call, (lua, tracked)) = (sent.commands.cmd_iter().nth(sent.indexes[*i])?, parts[*i]);
        Some((if i == first { commands.in_full(lua, call) } else { commands.by_digest(lua, call) }, tracked))
    });
    let mut repeated = Batch::new(calls, after).carry(carrier).await?;
    answers.splice(parts.len().., repeated.split_off(refused.len()));
    for ((i, _), again) in refused.iter().zip(repeated) {
        // If it was no right to read that it lacks, the first error names it.
        if again.is_ok() || !matches!(&answers[*i], Err(error) if fault_of(error) == Fault::Denied) {
            answers[*i] = again;
        }
    }
    Ok(answers)
}

/// How to send a call again that the server has refused by digest, if that may help: in full if it has not cached the script, and so
/// that it cannot write if the user may not use the usual commands, or only read the keys.
pub(crate) fn again(lua: &Lua, refusal: &RedisError) -> Option<Commands> {
    match fault_of(refusal) {
        _ if is_no_script(refusal) => Some(Commands::USUAL),
        Fault::Denied if lua.only_reads => Some(Commands::READING),
        _ => None,
    }
}

/// Commands of one pipeline.
struct Batch {
    commands: Pipeline,
    /// The indexes of the calls, and of the command that follows them.
    indexes: Vec<usize>,
}

impl Batch {
    fn new(calls: impl Iterator<Item = (Cmd, bool)>, after: Option<&Cmd>) -> Self {
        let (mut commands, mut indexes) = (redis::pipe(), Vec::new());
        for (call, tracked) in calls {
            if tracked {
                commands.add_command(CACHING.clone());
            }
            indexes.push(commands.len());
            commands.add_command(call);
        }
        if let Some(after) = after.filter(|_| !indexes.is_empty()) {
            indexes.push(commands.len());
            commands.add_command(after.clone());
        }
        Self { commands, indexes }
    }

    async fn carry(&self, carrier: &impl PipelineSender) -> RedisResult<Vec<RedisResult<Value>>> {
        if self.indexes.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers: Vec<_> = carrier.carry(&self.commands).await?.into_iter().map(Some).collect();
        let missing = || Err((redis::ErrorKind::Parse, "fewer replies than requests").into());
        let mut answer = |index: &usize| answers.get_mut(*index).and_then(Option::take).unwrap_or_else(missing);
        Ok(self.indexes.iter().map(&mut answer).collect())
    }
}

/// Sent before a call whose keys are to be tracked.
static CACHING: LazyLock<Cmd> = LazyLock::new(|| {
    let mut caching = redis::cmd("CLIENT");
    caching.arg("CACHING").arg("YES");
    caching
});
