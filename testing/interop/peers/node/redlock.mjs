// node redlock.mjs MODULES PORT...: node-redlock over ioredis.
import { setTimeout as sleep } from 'node:timers/promises';
import { begin, serve } from './protocol.mjs';

const { require, servers, versionOf } = begin(process.argv.slice(2));
const { default: Redlock, ExecutionError } = require('redlock');

const PAUSE_MS = 3;
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

await serve({ acquire, release }, servers, versionOf('redlock'));
