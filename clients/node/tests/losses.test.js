// Losses: each is told by `held.signal`, and by `release`.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, rmSync } from 'node:fs';
import { connect, LockLost, Unreachable } from '../index.js';
import { directory, fake, lostAtOnce, redis, send, serve, sleep, test, until } from './environment.js';

const lost = async (held, within) => {
  const begun = performance.now();
  if (!held.signal.aborted) await Promise.race([once(held.signal, 'abort'), sleep(within, undefined, { ref: true }).then(() => { throw new Error(`no loss within ${within} ms`); })]);
  assert.ok(held.signal.reason instanceof LockLost);
  await assert.rejects(held.remaining(), LockLost);
  await assert.rejects(held.release(), held.signal.reason);
  return performance.now() - begun;
};

test('redis: a deleted key is a loss', async (t) => {
  const { url, command } = await redis(t);
  const { path } = await serve(t, url);
  const client = await connect(path);
  t.after(() => client.close());
  const [held, both] = [await client.lock('k', { ttl: 2 }), await client.lock(['a', 'b'], { ttl: 2 })];
  assert.equal(await command('DEL', 'k', 'b'), '2');
  await lost(held, 5000);
  assert.equal(held.signal.reason.key, 'k');
  await lost(both, 5000);
  assert.equal(both.signal.reason.key, 'b');
  await (await client.lock('a', { wait: 5 })).release();
  await (await client.lock('k', { wait: 5 })).release();
});

test('file: a deleted lock file is a loss', async (t) => {
  const files = directory(t);
  const { path } = await serve(t, `file:${files}`);
  const client = await connect(path);
  t.after(() => client.close());
  const held = await client.lock('k');
  for (const name of readdirSync(files)) rmSync(`${files}/${name}`, { recursive: true });
  await lost(held, 30_000);
});

test('the end of the longest hold is a loss', async (t) => {
  const { path } = await serve(t, `file:${directory(t)}`);
  const client = await connect(path);
  t.after(() => client.close());
  const begun = performance.now();
  const held = await client.lock('k', { maxHold: 0.5 });
  await lost(held, 30_000);
  assert.ok(performance.now() - begun >= 450);
  await (await client.lock('k', { wait: 5 })).release();
});

test('the end of the server is a loss, and the next lock connects again', async (t) => {
  const { url } = await redis(t);
  const server = await serve(t, url);
  const client = await connect(server.path);
  t.after(() => client.close());
  const [held, long] = [await client.lock('k', { ttl: 1 }), await client.lock('long', { ttl: 60 })];
  const warnings = [];
  process.on('warning', (warning) => warnings.push(warning));
  const failed = Promise.all(Array.from({ length: 20 }, () => assert.rejects(
    client.lock('k'),
    (error) => error instanceof Unreachable && error.message.includes(server.path),
  )));
  server.child.kill('SIGKILL');
  await lost(long, 10_000); // long before its next question
  await lost(held, 1000);
  await failed;
  await until('the end of the server', () => server.child.signalCode);
  await assert.rejects(client.lock('k'), /start `fencelock serve --listen/);
  await serve(t, url, { path: server.path });
  await (await client.lock('k', { wait: 10 })).release();
  assert.deepEqual(warnings, []);
});

test('a server that is frozen is a loss within a second of the question', async (t) => {
  const server = await serve(t, `file:${directory(t)}`);
  const client = await connect(server.path);
  const held = await client.lock('k', { ttl: 30 });
  server.child.kill('SIGSTOP');
  const begun = performance.now();
  await assert.rejects(held.remaining(), LockLost);
  const took = performance.now() - begun;
  assert.ok(took >= 990 && took < 3000, `${took}`);
  assert.equal(held.signal.aborted, true);
  // What was lost here is released there.
  server.child.kill('SIGCONT');
  await (await client.lock('k', { wait: 5 })).release();
  await client.close();
});

test('a frozen server does not hold up the end of a client', async (t) => {
  const server = await serve(t, (await redis(t)).url);
  const client = await connect(server.path);
  const held = await client.lock('k');
  const failed = assert.rejects(client.lock('k'), /the client was closed/);
  server.child.kill('SIGSTOP');
  await client.close();
  await failed;
  assert.equal(held.signal.aborted, true);
});

test('a frozen server is noticed without a question, before the lease ends', async (t) => {
  const server = await serve(t, (await redis(t)).url);
  const client = await connect(server.path);
  const held = await client.lock('k', { ttl: 5 });
  await sleep(5500);
  assert.equal(held.signal.aborted, false, 'it is renewed');
  const left = await held.remaining();
  server.child.kill('SIGSTOP');
  const took = await lost(held, 10_000);
  assert.ok(took <= left * 1000 + 500, `lost after ${took} ms of ${left} s`);
  server.child.kill('SIGCONT');
  await client.close();
});

test('a remaining time that is over is a loss, even before events are handled', async (t) => {
  const server = await fake(t, {
    lock: () => ({ hold: 1, key: 'k', token: 1, remaining: 1.5 }),
    remaining: () => ({ remaining: 1.5 }),
  });
  const client = await connect(server.path);
  const held = await client.lock('k');
  await sleep(2000);
  assert.equal(held.signal.aborted, false);
  for (const begun = performance.now(); performance.now() - begun < 1600;); // JavaScript is busy
  assert.equal(held.signal.aborted, true);
  await assert.rejects(held.release(), /its time is over/);
  await until('the server is told', () => server.seen.find(({ method }) => method === 'release'));
  await client.close();
});

test('the remaining time counts from the question', async (t) => {
  const server = await fake(t, {
    lock: () => ({ hold: 1, key: 'k', token: 1, remaining: 30 }),
    remaining: (_, { id }, socket) => { setTimeout(() => send(socket, { id, result: { remaining: 30 } }), 300); },
  });
  const client = await connect(server.path);
  const held = await client.lock('k');
  const left = await held.remaining();
  assert.ok(left > 28 && left <= 29.71, `${left}`);
  await client.close();
});

test('a busy JavaScript is no frozen server', async (t) => {
  const { path } = await serve(t, `file:${directory(t)}`);
  const client = await connect(path);
  t.after(() => client.close());
  const held = await client.lock('k', { ttl: 30 });
  const asked = held.remaining();
  for (const begun = performance.now(); performance.now() - begun < 1500;);
  assert.ok(await asked > 20);
  await held.release();
});

test('a loss that only the release tells is an error', async (t) => {
  const server = await fake(t, {
    lock: () => ({ hold: 1, key: 'k', token: 1, remaining: 30 }),
    release: () => ({ error: { code: 76, message: 'the lock k was lost', data: { key: 'k', cause: 'deleted' } } }),
  });
  const client = await connect(server.path);
  await assert.rejects(client.run('k', () => 'done'), { name: 'LockLost', reason: 'deleted' });
  const failure = new Error('work');
  await assert.rejects(client.run('k', () => { throw failure; }), (error) => error instanceof LockLost && error.cause === failure);
  const held = await client.lock('k');
  await assert.rejects(held.release(), LockLost);
  assert.equal(held.signal.aborted, true);
  await client.close();
});

test('the reason of the signal is thrown once', async (t) => {
  const server = await fake(t, lostAtOnce);
  const client = await connect(server.path);
  const error = await client.run('k', (held) => held.signal.throwIfAborted()).catch((caught) => caught);
  assert.ok(error instanceof LockLost);
  assert.equal(error.cause, undefined);
  await client.close();
});

test('a release that is not confirmed is an error', async (t) => {
  const server = await fake(t, { lock: () => ({ hold: 1, key: 'k', token: 1, remaining: 1.5 }), release: () => undefined });
  const client = await connect(server.path);
  const held = await client.lock('k');
  await assert.rejects(held.release(), Unreachable);
  for (const socket of server.sockets) socket.destroy();
  await client.close();
});

test('holders are told that the server is being stopped', async (t) => {
  const server = await serve(t, `file:${directory(t)}`);
  const client = await connect(server.path);
  const held = await client.lock('k');
  const ending = once(client, 'ending');
  server.child.kill('SIGTERM');
  const [grace] = await ending;
  assert.ok(grace > 0);
  assert.equal(held.signal.aborted, false);
  await assert.rejects(client.lock('other'), { code: 71 });
  await held.release();
  await client.close();
});
