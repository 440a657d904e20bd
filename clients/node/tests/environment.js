// What the tests need: servers of locks, a Redis, a server that follows a script, other processes.
import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect as dial, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test as nodeTest } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

export { sleep };
export const index = new URL('../index.js', import.meta.url).href;
export const program = process.env.FENCELOCK_PROGRAM;
assert.ok(program, 'FENCELOCK_PROGRAM names no program: run clients/node/test');
for (const name of Object.keys(process.env)) {
  if (name.startsWith('FENCELOCK_') && !['FENCELOCK_PROGRAM', 'FENCELOCK_TEST_RUN'].includes(name)) delete process.env[name];
}
process.env.XDG_CONFIG_HOME = '/nonexistent';

/** A test that cannot hang. */
export const test = (name, ...rest) => nodeTest(name, { timeout: 60_000, ...(rest.length > 1 && rest[0]) }, rest.at(-1));

/** A directory that ends with the test. */
export function directory(t) {
  const path = mkdtempSync(join(tmpdir(), 'fencelock-node-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Waits until `condition` gives something true. */
export async function until(what, condition) {
  for (let tries = 0; tries < 1000; tries += 1) {
    const found = await condition();
    if (found) return found;
    await sleep(10);
  }
  throw new Error(`still not: ${what}`);
}

/** Ends a process with the test, also one that is stopped. */
export async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

/** `fencelock serve --listen` of the locks at `url`. */
export async function serve(t, url, { path = join(directory(t), 'socket'), args = [] } = {}) {
  const child = spawn(program, ['serve', '--listen', `unix:${path}`, ...args], { env: { ...process.env, FENCELOCK_URL: url }, stdio: 'inherit' });
  t.after(() => end(child));
  await until(`a server at ${path}`, () => {
    assert.equal(child.exitCode, null, 'the server has ended');
    return listens(path);
  });
  return { path, child };
}

function listens(path) {
  return new Promise((resolve) => {
    const socket = dial({ path }, () => resolve(socket.destroy()));
    socket.on('error', () => resolve(false));
  });
}

/** A Redis server: its URL, and a function that sends it a command. */
export async function redis(t) {
  const path = join(directory(t), 'redis');
  const child = spawn('redis-server', ['--port', '0', '--unixsocket', path, '--save', '', '--appendonly', 'no'], { stdio: 'ignore' });
  t.after(() => end(child));
  await until('a Redis server', () => existsSync(path) && listens(path));
  const command = async (...words) => (await promisify(execFile)('redis-cli', ['-s', path, ...words])).stdout.trim();
  return { url: `redis+unix://${path}`, command, child };
}

/** Whether the program serves these locks. Some refuse those in memory. */
const serves = (url) => spawnSync(program, ['serve', '--stdio'], { env: { ...process.env, FENCELOCK_URL: url } }).status === 0;

/** The URLs of the backends, by name. */
export const backends = {
  ...(serves('memory:') && { memory: () => 'memory:' }),
  file: (t) => `file:${directory(t)}`,
  redis: async (t) => (await redis(t)).url,
};

/** The greeting of a server. */
export const GREETING = { protocol: 1, version: '0', backend: 'fake', limits: { line: 65536 } };

/**
 * A server that follows a script: `script[method](params, message, socket)` gives the result, or undefined for no reply.
 * `seen` has all messages.
 */
export async function fake(t, script) {
  const path = join(directory(t), 'fake');
  const seen = [];
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    let rest = '';
    socket.on('error', () => {});
    socket.setEncoding('utf8').on('data', (text) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      for (const message of lines.map((line) => JSON.parse(line))) {
        seen.push(message);
        const result = { hello: () => GREETING, release: () => ({}), ...script }[message.method]?.(message.params, message, socket);
        if (result?.error) send(socket, { id: message.id, error: result.error });
        else if (result !== undefined) send(socket, { id: message.id, result });
      }
    });
  });
  server.listen(path);
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { path, seen, sockets };
}

export const send = (socket, message) => socket.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);

/** For the script of a fake server: a lock that is granted, and lost at once. */
export const lostAtOnce = {
  lock: (_, { id }, socket) => {
    send(socket, { id, result: { hold: 1, key: 'k', token: 1, remaining: 30 } });
    send(socket, { method: 'lost', params: { hold: 1, key: 'k', cause: 'deleted' } });
  },
};

/** Runs JavaScript in a process of its own: what it prints, and how it ended. `connect` and `print` are at hand. */
export function script(t, code, { env = {}, args = [] } = {}) {
  const head = `import { connect, LockLost, LockBusy, Unreachable } from '${index}'; const print = (...words) => console.log(...words);\n`;
  const child = spawn(process.execPath, [...args, '--input-type=module', '--eval', head + code], { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
  t.after(() => end(child));
  const output = { child, text: '', errors: '', ended: once(child, 'close').then(([status, signal]) => signal ?? status) };
  child.stdout.setEncoding('utf8').on('data', (text) => { output.text += text; });
  child.stderr.setEncoding('utf8').on('data', (text) => { output.errors += text; });
  output.prints = (word) => until(`${word} is printed, but: ${output.text}${output.errors}`, () => output.text.includes(word));
  return output;
}
