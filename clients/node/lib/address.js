// Where the server is: at a socket, or in a child of this process.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Unreachable, UsageError } from './errors.js';

/** The program in the package of npm. */
const PACKAGED = import.meta.url ? fileURLToPath(new URL('../bin/fencelock', import.meta.url)) : ''; // a bundle has none

/** What `connect(where)` names: the path of a socket, or the URL of the locks that a child serves. */
export function address(where) {
  const named = where ?? process.env.FENCELOCK_SOCKET;
  if (named === undefined) return { url: undefined };
  const [from, text] = [where == null ? 'FENCELOCK_SOCKET' : 'connect()', String(named)];
  const path = text.replace(/^unix:/, '');
  if (path.startsWith('/')) return { socket: path };
  if (text === '') throw new UsageError(`${from} is set, but empty: name a socket such as unix:/run/fencelock.sock, or leave it undefined to start a child`);
  if (where && path === text && /^[a-z][a-z0-9+-]*:/i.test(text)) return { url: text };
  throw new UsageError(`${from} names ${text.replace(/\/\/.*@/, '//...@')}, which is not a socket such as unix:/run/fencelock.sock. The URL of a backend belongs in connect(URL), or in FENCELOCK_URL without FENCELOCK_SOCKET`);
}

/** What carries a session: streams, the handles that keep the process alive, and `ended`, which is resolved with an error that says why, and never rejected. */
export function dial(path) {
  const stream = connect({ path });
  const starting = `start \`fencelock serve --listen unix:${path}\``;
  const advice = {
    ENOENT: `there is no such socket: ${starting}, or correct the path`,
    ECONNREFUSED: `its server has ended: ${starting}`,
    EACCES: 'this user may not use the socket: its server admits a group with `--mode 0660 --group GROUP`',
    ENOTSOCK: `this is not a socket: ${starting} at another path`,
  };
  advice.EPIPE = advice.ECONNRESET = advice[undefined] = 'the server has ended the connection: it was stopped, or has reached a limit';
  let cause;
  stream.on('error', (error) => { cause ??= error; });
  const ended = new Promise((resolve) => stream.on('close', resolve)).then(() => (
    Object.assign(new Unreachable(`fencelock at ${path}: ${advice[cause?.code] ?? cause.message}`), { cause })));
  return { name: path, input: stream, output: stream, handles: [stream], ended };
}

/** Starts `fencelock serve --stdio`. Its environment has the URL, as all users of the machine see the arguments of a process. */
export function start(url) {
  const program = process.env.FENCELOCK_PROGRAM || (existsSync(PACKAGED) ? PACKAGED : 'fencelock');
  const name = `${program} serve --stdio`;
  const env = url === undefined ? process.env : { ...process.env, FENCELOCK_URL: url };
  const child = spawn(program, ['serve', '--stdio'], { env, stdio: 'pipe' });
  // Without descriptors to spare there are no pipes, and an error follows.
  const { stdin: output = new PassThrough(), stdout: input = new PassThrough(), stderr = new PassThrough() } = child;
  const transport = { name, input, output, handles: [child, input], greeted: false };
  let said = '';
  stderr.setEncoding('utf8').on('data', (text) => {
    if (transport.greeted) process.stderr.write(text);
    said = (said + text).slice(-2000);
  });
  for (const stream of [output, input, stderr]) stream.on('error', () => {}).unref?.(); // the end of the child says more
  const problems = { ENOENT: 'there is no such program', EACCES: 'it is not a program that this user may run' };
  const advice = 'install fencelock, name it in FENCELOCK_PROGRAM, or name the socket of a server in FENCELOCK_SOCKET';
  transport.ended = new Promise((resolve) => {
    child.on('error', (cause) => {
      const problem = problems[cause.code];
      const error = problem ? new UsageError(`cannot start ${name}: ${problem}: ${advice}`) : new Unreachable(`cannot start ${name}: ${cause.message}`);
      resolve(Object.assign(error, { cause }));
    });
    child.on('close', (code, signal) => resolve(new (code === 64 ? UsageError : Unreachable)(`${name} has ended (${signal ?? `exit code ${code}`})${said && `: ${said.trim()}`}`)));
  });
  return transport;
}
