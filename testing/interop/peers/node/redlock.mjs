// node redlock.mjs MODULES PORT...: node-redlock over ioredis.
import { setTimeout as sleep } from 'node:timers/promises';
import { begin, serve } from './protocol.mjs';

const { require, servers, versionOf } = begin(process.argv.slice(2));
const { default: Redlock, ExecutionError } = require('redlock');

const PAUSE_MS = 3;
const redlock = new Redlock(servers, { retryCount: 0, retryDelay: PAUSE_MS, retryJitter: PAUSE_MS - 1 });
// Each refused vote is also an event, and an event without a listener ends the process.
redlock.on('error', () => {});

let held;

/** An error class of the library is a reply; any other error is a failure. */
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
  // The retries of one acquire() keep the minority that it acquired, which blocks all clients, including itself,
  // until all retries are over. One server has no minority; on several servers each attempt must be a separate acquire().
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
