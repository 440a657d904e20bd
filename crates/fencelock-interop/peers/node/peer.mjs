// node peer.mjs MODULES PORT...
//
// node-redlock over ioredis, behind the lines that every peer understands; crates/fencelock-interop/src/lib.rs lists them.
import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const [modules, ...ports] = process.argv.slice(2);
const require = createRequire(join(modules, 'peer.cjs'));
const Redis = require('ioredis');
const { default: Redlock, ExecutionError } = require('redlock');
const { version } = require(join(modules, 'redlock', 'package.json'));

const PAUSE_MS = 3;
const servers = ports.map((port) => new Redis(Number(port), '127.0.0.1'));
const redlock = new Redlock(servers, { retryCount: 0, retryDelay: PAUSE_MS, retryJitter: PAUSE_MS - 1 });
// Each refused vote is an event too, and one that nobody hears ends the process.
redlock.on('error', () => {});

let held;

/** What the library says by an error of its own is an answer; anything else is not. */
async function told(attempt) {
  try {
    return await attempt();
  } catch (error) {
    if (error instanceof ExecutionError) return undefined;
    throw error;
  }
}

async function attempt(key, ttl, retryCount) {
  held = await told(() => redlock.acquire([key], ttl, { retryCount }));
  return held !== undefined;
}

async function acquire(key, ttl, wait) {
  // The retries of one acquire() leave the minority that it won in place, where it refuses everybody, itself included,
  // until all retries are over. On one server there is no minority; on several each attempt has to be an acquire() of its own.
  if (servers.length === 1) return attempt(key, ttl, Math.ceil(wait / PAUSE_MS));
  const end = performance.now() + wait;
  while (!(await attempt(key, ttl, 0))) {
    if (performance.now() >= end) return false;
    await sleep(1 + Math.random() * 4);
  }
  return true;
}

async function release() {
  return (await told(() => held.release())) !== undefined;
}

/** Reads a number, takes its time, writes the next one: only a lock keeps others from doing so meanwhile. */
async function countUp(key, ttl, file, times) {
  for (let done = 0; done < times; done++) {
    if (!(await acquire(key, ttl, 60_000))) throw new Error(`no turn within a minute, after ${done}`);
    const seen = Number(await readFile(file, 'utf8'));
    await sleep(1);
    await writeFile(file, String(seen + 1));
    if (!(await release())) throw new Error(`lost while counting, after ${done}`);
  }
}

async function answer([word, key, ttl, ...more]) {
  switch (word) {
    case 'try':
      return (await acquire(key, Number(ttl), 0)) ? 'held' : 'busy';
    case 'lock':
      return (await acquire(key, Number(ttl), Number(more[0]))) ? 'held' : 'busy';
    case 'unlock':
      return (await release()) ? 'freed' : 'lost';
    case 'delete':
      await Promise.all(servers.map((server) => server.del(key)));
      return 'deleted';
    case 'count':
      await countUp(key, Number(ttl), more[0], Number(more[1]));
      return 'counted';
    default:
      return `error no such word: ${word}`;
  }
}

console.log(`ready Node ${process.version}, node-redlock ${version}`);
for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(await answer(line.trim().split(' ')));
  } catch (error) {
    console.log(`error ${String(error.message).replaceAll('\n', ' ')}`);
  }
}
process.exit(0);
