// Connections: how they begin, who shares them, how they end.
import assert from 'node:assert/strict';
import cluster from 'node:cluster';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { connect, Unreachable, UsageError } from '../index.js';
import { directory, fake, GREETING, index, redis, script, send, serve, sleep, test, until } from './environment.js';

const package_ = JSON.parse(readFileSync(new URL('../package.json', import.meta.url)));

/** The processes of the program that this one has started. */
const children = (pid = process.pid) => readdirSync('/proc').filter((name) => {
  try {
    const [, parent] = /\) . (\d+)/.exec(readFileSync(`/proc/${name}/stat`, 'utf8'));
    return Number(parent) === pid && readFileSync(`/proc/${name}/cmdline`, 'utf8').includes('--stdio');
  } catch {
    return false;
  }
});

/** Waits for the end of the children, which is not sudden. */
const childless = () => until('no child', () => children().length === 0);

/** Sets a variable for the time of a test. */
function set(t, name, value) {
  const before = process.env[name];
  process.env[name] = value;
  t.after(() => { if (before === undefined) delete process.env[name]; else process.env[name] = before; });
}

test('the argument comes before FENCELOCK_SOCKET, which comes before a child', async (t) => {
  const [named, argument] = [await serve(t, `file:${directory(t)}`), await serve(t, `file:${directory(t)}`)];
  set(t, 'FENCELOCK_SOCKET', `unix:${named.path}`);
  const [first, second] = [await connect(argument.path), await connect()];
  const held = await first.lock('k');
  await (await second.lock('k', { wait: 0 })).release();
  assert.deepEqual(children(), []);
  await held.release();
  await Promise.all([first.close(), second.close()]);
});

test('one child serves all clients of a process, and ends with the last one', async (t) => {
  await childless();
  const url = `file:${directory(t)}`;
  const [one, other] = await Promise.all([connect(url), connect(url)]);
  assert.equal(children().length, 1);
  const held = await one.lock('k');
  assert.equal(await other.tryLock('k'), null);
  const kept = await other.lock('kept');
  const failed = assert.rejects(one.lock('kept'), /the client was closed/);
  await new Promise(setImmediate); // it is sent
  await one.close();
  await failed;
  assert.equal(held.signal.aborted, true);
  assert.ok(await kept.remaining() > 0);
  assert.equal(children().length, 1);
  await (await other.lock('k', { wait: 5 })).release();
  await other.close();
  await childless();
  const again = await connect(url);
  await (await again.lock('k', { wait: 0 })).release();
  await again.close();
});

test('a child that was killed is a loss, and the next lock starts another', async (t) => {
  await childless();
  const { url } = await redis(t);
  const client = await connect(url);
  const held = await client.lock('k', { ttl: 1 });
  process.kill(children()[0], 'SIGKILL');
  await until('the loss', () => held.signal.aborted);
  assert.match(held.signal.reason.message, /has ended \(SIGKILL\)/);
  await (await client.lock('k', { wait: 10 })).release();
  await client.close();
});

test('a child that is frozen does not hold up the end of its clients', async (t) => {
  await childless();
  const client = await connect(`file:${directory(t)}`);
  const child = children()[0];
  process.kill(child, 'SIGSTOP');
  t.after(async () => {
    process.kill(child, 'SIGCONT');
    await childless();
  });
  await client.close();
});

test('the URL is not in the arguments of the child', async (t) => {
  await childless();
  const client = await connect(`file:${directory(t)}`);
  assert.doesNotMatch(readFileSync(`/proc/${children()[0]}/cmdline`, 'utf8'), /file:/);
  await client.close();
});

test('other processes inherit no connection', async (t) => {
  const inherited = () => execFileSync('ls', ['-l', '/proc/self/fd'], { stdio: ['ignore', 'pipe', 'ignore'], encoding: 'utf8' }).match(/\d+ -> (socket|pipe).*/g);
  const before = inherited();
  const { path } = await serve(t, `file:${directory(t)}`);
  const clients = [await connect(path), await connect(`file:${directory(t)}`)];
  // Without those of the runner, and the one that `execFileSync` reads.
  const fresh = inherited().filter((line) => !before.includes(line) && !line.startsWith('1 '));
  assert.deepEqual(fresh, []);
  const own = readdirSync('/proc/self/fd').filter((fd) => { try { return readlinkSync(`/proc/self/fd/${fd}`).startsWith('socket:'); } catch { return false; } });
  assert.ok(own.length >= 2, 'the test sees connections');
  await Promise.all(clients.map((client) => client.close()));
});

test('a process of cluster has its own connection, and its end frees its locks', async (t) => {
  const { path } = await serve(t, `file:${directory(t)}`);
  const files = directory(t);
  writeFileSync(join(files, 'worker.mjs'), `
    import { connect } from '${index}';
    const client = await connect();
    process.send('ready');
    process.on('message', async (order) => {
      if (order === 'lock') { globalThis.held = await client.lock('k'); process.send('held'); }
      if (order === 'close') { await client.close(); process.send('closed'); }
    });
  `);
  cluster.setupPrimary({ exec: join(files, 'worker.mjs') });
  set(t, 'FENCELOCK_SOCKET', path);
  const client = await connect();
  const mine = await client.lock('mine');
  const workers = [cluster.fork(), cluster.fork()];
  t.after(() => { for (const worker of workers) worker.process.kill('SIGKILL'); });
  await Promise.all(workers.map((worker) => once(worker, 'message')));
  workers[0].send('lock');
  assert.deepEqual((await once(workers[0], 'message'))[0], 'held');
  assert.equal(await client.tryLock('k'), null);
  workers[1].send('close');
  assert.deepEqual((await once(workers[1], 'message'))[0], 'closed');
  assert.equal(await client.tryLock('k'), null, 'the other process has closed its own connection only');
  assert.ok(await mine.remaining() > 0);
  workers[0].process.kill('SIGKILL');
  await (await client.lock('k', { wait: 5 })).release();
  await mine.release();
  await client.close();
});

test('a process that is forked by its parent starts a child of its own', async (t) => {
  const url = `file:${directory(t)}`;
  const client = await connect(url);
  const held = await client.lock('k');
  const forked = script(t, `
    const client = await connect('${url}');
    print(await client.tryLock('k'));
    await (await client.lock('free')).release();
    await client.close();
  `);
  assert.equal(await forked.ended, 0, forked.errors);
  assert.equal(forked.text, 'null\n');
  assert.ok(await held.remaining() > 0);
  await held.release();
  await client.close();
});

test('threads exclude each other, and the end of one frees its locks', async (t) => {
  await childless();
  const url = `file:${directory(t)}`;
  const client = await connect(url);
  const worker = new Worker(`
    const { parentPort } = require('node:worker_threads');
    import('${index}').then(async ({ connect }) => {
      globalThis.held = await (await connect('${url}')).lock('k');
      parentPort.postMessage('held');
      setInterval(() => {}, 1000);
    });
  `, { eval: true });
  t.after(() => worker.terminate());
  await once(worker, 'message');
  assert.equal(await client.tryLock('k'), null);
  assert.equal(children().length, 2);
  await worker.terminate();
  await (await client.lock('k', { wait: 5 })).release();
  await client.close();
});

for (const [how, code] of Object.entries({
  'process.exit': 'process.exit(3)',
  'an error': 'throw new Error("work")',
  SIGKILL: 'process.kill(process.pid, "SIGKILL")',
  'SIGTERM': 'process.kill(process.pid, "SIGTERM"); await new Promise(() => setInterval(() => {}, 1000))',
})) {
  for (const kind of ['a child', 'a socket']) {
    test(`${how} in the middle frees the lock held through ${kind}`, async (t) => {
      const url = `file:${directory(t)}`;
      const { path } = await serve(t, url);
      const ended = script(t, `
        const client = await connect(${kind === 'a child' ? `'${url}'` : `'${path}'`});
        await client.lock('k');
        print('held');
        await client.lock('other');
        ${code}
      `);
      await ended.ended;
      assert.equal(ended.text, 'held\n', ended.errors);
      const client = await connect(path);
      await (await client.lock(['k', 'other'], { wait: 5 })).release();
      await client.close();
    });
  }
}

test('what is held or idle does not keep a process alive, what is waited for does', async (t) => {
  const { path } = await serve(t, `file:${directory(t)}`);
  for (const where of [path, `file:${directory(t)}`]) {
    const idle = script(t, `const client = await connect('${where}'); await client.lock('idle'); print('end');`);
    assert.equal(await idle.ended, 0, idle.errors);
    assert.equal(idle.text, 'end\n');
    const waits = script(t, `
      const client = await connect('${where}');
      await client.lock('k');
      client.lock('k', { wait: 0.5 }).catch((error) => print(error.name));
    `);
    assert.equal(await waits.ended, 0, waits.errors);
    assert.equal(waits.text, 'LockBusy\n');
  }
});

test('a program that is missing, cannot be executed, or is another, is named with what to do', async (t) => {
  const other = join(directory(t), 'other');
  set(t, 'FENCELOCK_PROGRAM', other);
  const refused = (code) => (error) => error instanceof UsageError && error.cause.code === code
    && /cannot start \S+other serve --stdio: .* program.*FENCELOCK_PROGRAM.*FENCELOCK_SOCKET/.test(error.message);
  await assert.rejects(connect(), refused('ENOENT'));
  writeFileSync(other, '#!/bin/sh\necho "no such command: $1" >&2\nexit 64\n');
  await assert.rejects(connect(), refused('EACCES'));
  chmodSync(other, 0o755);
  await assert.rejects(connect(), { name: 'UsageError', message: /other serve --stdio has ended \(exit code 64\): no such command: serve/ });
  writeFileSync(other, '#!/bin/sh\nexit 69\n');
  await assert.rejects(connect(), { name: 'Unreachable', message: /exit code 69/ });
});

test('a URL that the program refuses is told in its words', async () => {
  await assert.rejects(connect('nonsense:x'), (error) => error instanceof UsageError && /nonsense/.test(error.message) && error.message.length > 60);
  await childless();
});

test('a wrong address is told, with what to do', async (t) => {
  await assert.rejects(connect('/nonexistent/socket'), /\/nonexistent\/socket: there is no such socket: start `fencelock serve --listen unix:\/nonexistent\/socket`/);
  await assert.rejects(connect('relative'), UsageError);
  await assert.rejects(connect(''), { name: 'UsageError', message: /connect\(\) is set, but empty.*unix:\/run/ });
  set(t, 'FENCELOCK_SOCKET', '');
  await assert.rejects(connect(), { name: 'UsageError', message: /FENCELOCK_SOCKET is set, but empty.*unix:\/run/ });
  await assert.rejects(connect('unix:redis://h'), UsageError);
  set(t, 'FENCELOCK_SOCKET', 'redis://:secret@localhost');
  await assert.rejects(connect(), (error) => error instanceof UsageError && /FENCELOCK_SOCKET names redis:.*FENCELOCK_URL/.test(error.message) && !/secret/.test(error.message));
  const file = join(directory(t), 'file');
  writeFileSync(file, '');
  await assert.rejects(connect(file), Unreachable);
});

test('a server of another protocol, or of something else, is refused', async (t) => {
  const newer = await fake(t, { hello: () => ({ ...GREETING, protocol: 2 }) });
  await assert.rejects(connect(newer.path), /speaks protocol 2, and this client 1/);
  const older = await fake(t, { hello: () => ({ error: { code: 64, message: 'protocol 1 is not supported, but 0' } }) });
  await assert.rejects(connect(older.path), /protocol 1 is not supported, but 0/);
  const path = join(directory(t), 'redis');
  const server = createServer((socket) => socket.on('error', () => {}).end('-ERR unknown command\r\n')).listen(path);
  await once(server, 'listening');
  t.after(() => server.close());
  await assert.rejects(connect(path), /is not `fencelock serve`: it sent "-ERR unknown command/);
});

test('a server that does not answer is waited for 10 s, by connect, by try and by release', async (t) => {
  const server = await fake(t, { hello: () => undefined });
  const freezing = await fake(t, { lock: ({ key }) => (key === 'held' ? { hold: 1, key, token: 1, remaining: null } : undefined), release: () => undefined });
  const client = await connect(freezing.path);
  const held = await client.lock('held');
  await Promise.all(Object.entries({ hello: connect(server.path), lock: client.tryLock('k', { ttl: 60 }), release: held.release() }).map(([method, answer]) => (
    assert.rejects(answer, { name: 'Unreachable', message: new RegExp(`has not answered \`${method}\` within 10 s`) }))));
  await client.close();
});

test('a server that has no connection left says so', async (t) => {
  const { path } = await serve(t, `file:${directory(t)}`, { args: ['--connections', '1'] });
  // The one by which the test has seen the server may not be over yet.
  const client = await until('a connection', () => connect(path).catch(() => null));
  // Its words may be lost, if it closes before it has read ours.
  await assert.rejects(connect(path), (error) => error.limit === 'connections' || /has reached a limit/.test(error.message));
  assert.equal(await client.tryLock('k').then((held) => held.key), 'k');
  await client.close();
});

test('an error of the whole connection ends it', async (t) => {
  const server = await fake(t, {
    hello: (_, message, socket) => { send(socket, { id: null, error: { code: -32001, message: 'too many', data: { limit: 'connections' } } }); },
  });
  await assert.rejects(connect(server.path), { name: 'LimitReached', limit: 'connections' });
});

test('an error has the stack of the caller', async (t) => {
  const server = await fake(t, { lock: () => ({ error: { code: 75, message: 'busy' } }) });
  const client = await connect(server.path);
  const caller = async () => { await client.lock('k'); };
  assert.match((await caller().catch((error) => error)).stack, /at async caller/);
  await client.close();
});

test('the client is told to the server as it is packaged', async (t) => {
  let client;
  const server = await fake(t, { hello: (params) => { client = params.client; return GREETING; } });
  await (await connect(server.path)).close();
  assert.equal(client, `node/${package_.version}`);
});

test('processes of cluster that are killed at random count to the right number', async (t) => {
  const { path } = await serve(t, `file:${directory(t)}`);
  const counter = join(directory(t), 'counter');
  writeFileSync(counter, '0');
  // Each line that a process prints is written under the lock, so every number occurs once, or twice if it was killed between.
  const code = `
    import { readFileSync, writeFileSync } from 'node:fs';
    const client = await connect('${path}');
    for (;;) await client.run('counter', async () => {
      const number = Number(readFileSync('${counter}', 'utf8')) + 1;
      await new Promise(setImmediate);
      writeFileSync('${counter}.new', String(number));
      const { renameSync } = await import('node:fs');
      renameSync('${counter}.new', '${counter}');
      print(number);
    });
  `;
  const seen = [];
  const begin = () => script(t, code);
  const running = Array.from({ length: 4 }, begin);
  const counts = (one) => until(`three numbers, but: ${one.text}${one.errors}`, () => one.text.split('\n').length > 3);
  for (let round = 0; round < 6; round += 1) {
    const at = round % running.length;
    await counts(running[at]);
    await sleep(Math.random() * 30);
    running[at].child.kill('SIGKILL');
    await running[at].ended;
    seen.push(running[at]);
    running[at] = begin();
  }
  await Promise.all(running.map(counts));
  for (const one of running) one.child.kill('SIGKILL');
  await Promise.all(running.map(({ ended }) => ended));
  const numbers = [...seen, ...running].flatMap(({ text }) => text.split('\n').slice(0, -1).map(Number)).sort((a, b) => a - b);
  const last = Number(readFileSync(counter, 'utf8'));
  assert.ok(last > 20, `${last}`);
  assert.equal(new Set(numbers).size, numbers.length, 'no number was counted twice');
  assert.ok(last - numbers.length <= 10, `${numbers.length} of ${last} were printed, and ten processes were killed`);
});
