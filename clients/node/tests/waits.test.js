// The end of a wait, and replies that cross it.
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { connect, LockBusy, LockLost, Unreachable } from '../index.js';
import { backends, fake, lostAtOnce, send, serve, sleep, test, until } from './environment.js';

for (const [backend, url] of Object.entries(backends)) {
  test(`${backend}: an aborted wait is withdrawn`, async (t) => {
    const { path } = await serve(t, await url(t));
    const [one, other] = [await connect(path), await connect(path)];
    t.after(() => Promise.all([one.close(), other.close()]));
    const held = await one.lock('k');
    const leaving = new AbortController();
    const waiting = other.lock('k', { signal: leaving.signal });
    const waiters = (number) => until(`${number} waiters`, async () => [number, null].includes((await one.status('k')).waiters)); // null: files
    await waiters(1);
    leaving.abort(new Error('enough'));
    await assert.rejects(waiting, /enough/);
    assert.equal(getEventListeners(leaving.signal, 'abort').length, 0);
    await waiters(0);
    await held.release();
    await assert.rejects(other.lock('k', { signal: leaving.signal }), /enough/);
    await (await one.lock('k', { wait: 0 })).release();
  });

  test(`${backend}: waits that are aborted at any moment leave nothing behind`, async (t) => {
    const { path } = await serve(t, await url(t));
    const [one, other] = [await connect(path), await connect(path)];
    t.after(() => Promise.all([one.close(), other.close()]));
    for (let round = 0; round < 60; round += 1) {
      const leaving = new AbortController();
      const granted = one.lock('k', { signal: leaving.signal }).then((held) => held.release(), () => {});
      if (round % 3 === 0) await new Promise(setImmediate);
      if (round % 3 === 1) await sleep(round / 20);
      leaving.abort();
      await granted;
    }
    await (await other.lock('k', { wait: 10 })).release();
  });

  test(`${backend}: a timeout of the caller ends the wait`, async (t) => {
    const { path } = await serve(t, await url(t));
    const client = await connect(path);
    t.after(() => client.close());
    const held = await client.lock('k');
    await assert.rejects(client.lock('k', { signal: AbortSignal.timeout(100) }), { name: 'TimeoutError' });
    await held.release();
  });
}

test('a grant that crosses the cancel is given back', async (t) => {
  let grant;
  const server = await fake(t, {
    lock: (_, { id }, socket) => { grant = () => send(socket, { id, result: { hold: 7, key: 'k', token: 1, remaining: 30 } }); },
  });
  const client = await connect(server.path);
  const leaving = new AbortController();
  const waiting = client.lock('k', { signal: leaving.signal });
  const { id } = await until('the request', () => server.seen.find(({ method }) => method === 'lock'));
  leaving.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  const cancel = await until('the cancel', () => server.seen.find(({ method }) => method === 'cancel'));
  assert.deepEqual(cancel.params, { id });
  grant();
  const release = await until('the release', () => server.seen.find(({ method }) => method === 'release'));
  assert.deepEqual(release.params, { hold: 7 });
  await client.close();
});

test('a cancelled request that is answered with its cancellation holds nothing', async (t) => {
  let cancelled;
  const server = await fake(t, {
    lock: (_, { id }, socket) => { cancelled = () => send(socket, { id, error: { code: -32800, message: 'cancelled' } }); },
    cancel: () => cancelled(),
    status: () => ({}),
  });
  const client = await connect(server.path);
  const leaving = new AbortController();
  const waiting = client.lock('k', { signal: leaving.signal });
  await until('the request', () => cancelled);
  leaving.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  await client.status('k');
  assert.deepEqual(server.seen.map(({ method }) => method), ['hello', 'lock', 'cancel', 'status']);
  await client.close();
});

test('a lock that is lost as soon as it is granted is lost for the caller', async (t) => {
  const server = await fake(t, lostAtOnce);
  const client = await connect(server.path);
  const held = await client.lock('k');
  assert.equal(held.signal.aborted, true);
  assert.equal(held.signal.reason.reason, 'deleted');
  await assert.rejects(held.release(), LockLost);
  await client.close();
});

test('the age of a grant after a long wait is not guessed', async (t) => {
  let asked = 0;
  const server = await fake(t, {
    lock: (_, { id }, socket) => { setTimeout(() => send(socket, { id, result: { hold: 1, key: 'k', token: 1, remaining: 30 } }), 1200); },
    remaining: () => {
      asked += 1;
      return { error: { code: 76, message: 'lost', data: { cause: 'too late' } } };
    },
  });
  const client = await connect(server.path);
  await assert.rejects(client.lock('k'), /too late/);
  assert.equal(asked, 1);
  await client.close();
});

test('a message in pieces, and several in one, are read', async (t) => {
  const server = await fake(t, {
    status: (_, { id }, socket) => {
      const bytes = Buffer.from(`{"jsonrpc":"2.0","method":"unknown"}\n${JSON.stringify({ jsonrpc: '2.0', id, result: { key: '锁\u2028' } })}\n`);
      const pieces = [...bytes].map((_, at) => bytes.subarray(at, at + 1));
      const next = () => pieces.length && socket.write(pieces.shift(), () => setImmediate(next));
      next();
    },
  });
  const client = await connect(server.path);
  assert.deepEqual(await client.status('锁'), { key: '锁\u2028' });
  await client.close();
});

test('errors have their names, and what the server knows', async (t) => {
  const replies = {
    busy: { code: 75, message: 'busy', data: { key: 'k', holder: { host: 'h', pid: 1, label: null, name: null }, foreign: null, remaining: 3, waited: 0, advice: 'wait' } },
    away: { code: 69, message: 'away', data: { advice: 'look at the server' } },
    ending: { code: 71, message: 'the server is being stopped' },
    many: { code: -32001, message: 'too many', data: { limit: 'holds' } },
  };
  const server = await fake(t, { lock: ({ key }) => ({ error: replies[key] }) });
  const client = await connect(server.path);
  const busy = await client.lock('busy').catch((error) => error);
  assert.ok(busy instanceof LockBusy);
  assert.deepEqual({ ...busy }, { key: 'k', holder: replies.busy.data.holder, remaining: 3, waited: 0, advice: 'wait', name: 'LockBusy', code: 75 });
  assert.equal(await client.tryLock('busy'), null);
  const away = await client.tryLock('away').catch((error) => error);
  assert.ok(away instanceof Unreachable);
  assert.equal(away.message, 'away: look at the server');
  await assert.rejects(client.lock('ending'), { name: 'FencelockError', code: 71 });
  await assert.rejects(client.lock('many'), { name: 'LimitReached', limit: 'holds' });
  await client.close();
});
