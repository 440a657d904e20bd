// What locks promise, on each backend, with the real server.
import assert from 'node:assert/strict';
import { connect, Held, LockBusy, UsageError } from '../index.js';
import { backends, directory, serve, test } from './environment.js';

for (const [backend, url] of Object.entries(backends)) {
  const on = (name, body) => test(`${backend}: ${name}`, async (t) => {
    const { path } = await serve(t, await url(t));
    const [one, other] = [await connect(path), await connect(`unix:${path}`)];
    t.after(() => Promise.all([one.close(), other.close()]));
    await body(one, other, t);
  });

  on('a held lock excludes until it is released', async (one, other) => {
    const held = await one.lock('k', { label: 'the first' });
    assert.equal(held.key, 'k');
    assert.deepEqual(held.keys, ['k']);
    assert.ok(Number.isInteger(held.token) && held.token > 0);
    assert.ok(await held.remaining() > 0);
    assert.equal(await other.tryLock('k'), null);
    await held.release();
    const next = await other.tryLock('k');
    assert.ok(next.token > held.token);
    assert.equal(held.signal.aborted, false);
    await next.release();
  });

  on('busy names the holder and the time left', async (one, other) => {
    const held = await one.lock('k', { label: 'nightly report' });
    const begun = performance.now();
    const error = await other.lock('k', { wait: 0.2 }).catch((caught) => caught);
    assert.ok(performance.now() - begun >= 190);
    assert.ok(error instanceof LockBusy, error.stack);
    assert.equal(error.name, 'LockBusy');
    assert.equal(error.code, 75);
    assert.equal(error.key, 'k');
    assert.equal(error.holder.label, 'nightly report');
    assert.ok(error.holder.pid > 0);
    assert.match(error.message, /k.*nightly report/);
    if (backend === 'redis') assert.ok(error.remaining > 0 && error.remaining <= 60, `${error.remaining}`);
    assert.ok(error.waited >= 0.19, `${error.waited}`);
    await held.release();
  });

  on('a waiter gets the lock when it is released', async (one, other) => {
    const held = await one.lock('k');
    let granted = false;
    const waiting = other.lock('k', { wait: 30 }).finally(() => { granted = true; });
    assert.equal(await one.tryLock('k'), null);
    assert.equal(granted, false);
    await held.release();
    await (await waiting).release();
  });

  on('coroutines of one client exclude each other', async (one) => {
    let inside = 0;
    let count = 0;
    await Promise.all(Array.from({ length: 20 }, () => one.run('k', async () => {
      inside += 1;
      assert.equal(inside, 1);
      await new Promise(setImmediate);
      inside -= 1;
      count += 1;
    })));
    assert.equal(count, 20);
  });

  on('several keys are taken together or not at all', async (one, other) => {
    const both = await one.lock(['a', 'b']);
    assert.deepEqual(both.keys, ['a', 'b']);
    assert.equal(both.tokens.length, 2);
    assert.equal(both.key, undefined);
    assert.equal(both.token, undefined);
    assert.equal(await other.tryLock('b'), null);
    assert.equal(await other.tryLock(['c', 'b']), null);
    const free = await other.tryLock('c');
    await free.release();
    await both.release();
    await (await other.lock('b', { wait: 0 })).release();
  });

  on('shared holders exclude an exclusive one', async (one, other) => {
    const first = await one.lock('k', { shared: true });
    const second = await other.lock('k', { shared: true, wait: 0 });
    assert.equal(await other.tryLock('k'), null);
    await first.release();
    await second.release();
    await (await other.lock('k', { wait: 0 })).release();
  });

  on('a semaphore has as many permits as its limit', async (one, other) => {
    const two = await one.lock('k', { limit: 3, permits: 2 });
    const last = await other.lock('k', { limit: 3, wait: 0 });
    assert.equal(await other.tryLock('k', { limit: 3 }), null);
    await two.release();
    await (await other.lock('k', { limit: 3, permits: 2, wait: 0 })).release();
    await last.release();
  });

  on('slots have numbers', async (one, other) => {
    const held = [await one.lock('k', { slots: 2 }), await other.lock('k', { slots: 2, wait: 0 })];
    assert.deepEqual(held.map(({ slot }) => slot).sort(), [0, 1]);
    assert.equal(await other.tryLock('k', { slots: 2 }), null);
    for (const one of held) await one.release();
  });

  on('run releases also if the work fails', async (one, other) => {
    const failure = new Error('work');
    await assert.rejects(one.run('k', { wait: 1 }, async (held) => {
      assert.ok(held instanceof Held);
      assert.equal(await other.tryLock('k'), null);
      throw failure;
    }), failure);
    assert.equal(await other.run('k', { wait: 0 }, () => 7), 7);
  });

  on('a disposed lock is released', async (one, other) => {
    const held = await one.lock('k');
    if (Symbol.asyncDispose) await held[Symbol.asyncDispose]();
    else await held.release();
    await (await other.lock('k', { wait: 0 })).release();
  });

  on('release again gives the same promise, and what was released is not held', async (one) => {
    const held = await one.lock('k');
    assert.equal(held.release(), held.release());
    await held.release();
    await assert.rejects(held.remaining(), UsageError);
  });

  on('a closed client holds nothing and waits for nothing', async (one, other) => {
    const held = await one.lock('k');
    await other.lock('b');
    const waiting = one.lock('b');
    const failed = assert.rejects(waiting, /the client was closed/);
    await new Promise(setImmediate); // it is sent
    await one.close();
    await failed;
    assert.equal(held.signal.aborted, true);
    await assert.rejects(held.release(), { name: 'LockLost' });
    await assert.rejects(one.lock('k'), /the client was closed/);
    await (await other.lock('k', { wait: 5 })).release();
  });

  on('status and list show what is held', async (one, other) => {
    const held = await one.lock('k', { label: 'shown' });
    assert.equal((await other.status('k')).owner.label, 'shown');
    assert.deepEqual((await other.list()).map(({ key }) => key), ['k']);
    assert.deepEqual(await other.list('x'), []);
    await held.release();
    assert.equal((await other.status('k')).held, false);
  });

  on('one candidate leads', async (one, other) => {
    const term = await one.elect('boss', { wait: 5 });
    await assert.rejects(other.elect('boss', { wait: 0 }), LockBusy);
    await term.release();
    const next = await other.elect('boss', { wait: 5 });
    assert.ok(next.token > term.token);
    await next.release();
  });

  on('work is done once in a window', async (one, other) => {
    const failure = new Error('not done');
    await assert.rejects(one.oncePer('k', 3600, () => { throw failure; }), failure);
    const first = await one.oncePer('k', 3600, (held) => held.token);
    assert.equal(first.ran, true);
    const second = await other.oncePer('k', 3600, { wait: 5 }, () => assert.fail('done twice'));
    assert.equal(second.ran, false);
    assert.equal(second.token, first.value);
    assert.ok(second.next > 0 && second.next <= 3600);
  });
}

test('options that cannot be used are refused', async (t) => {
  const { path } = await serve(t, `file:${directory(t)}`);
  const client = await connect(path);
  t.after(() => client.close());
  await assert.rejects(client.lock('k', { waitt: 5 }), (error) => error instanceof UsageError && /waitt/.test(error.message));
  await assert.rejects(client.lock('k', { wait: '5' }), UsageError);
  await assert.rejects(client.lock('k', { wait: NaN }), /wait is NaN/);
  await assert.rejects(client.lock('k', { ttl: Infinity }), /ttl is Infinity/);
  for (const call of [client.lock('k', 5), client.tryLock('k', 5), client.run('k', null, () => {}), client.elect('k', '5'), client.lock('k', () => {})]) {
    await assert.rejects(call, { name: 'UsageError', message: /options are an object such as \{ wait: 5 \}, and not / });
  }
  await assert.rejects(client.lock(''), UsageError);
  await assert.rejects(client.lock(undefined), UsageError);
  await assert.rejects(client.lock('k', { shared: true, slots: 2 }), UsageError);
  await assert.rejects(client.lock('k', { mode: 'shard' }), UsageError);
  await assert.rejects(client.lock('k', { owner: 'me' }), /owner is/);
  const other = await client.lock('other', { key: 'k' });
  assert.equal(other.key, 'other');
  await assert.rejects(client.lock('k'.repeat(70_000)), /may have 65536 bytes/);
  assert.ok(await other.remaining() > 0);
  await (await client.lock('k', { wait: Infinity })).release();
});
