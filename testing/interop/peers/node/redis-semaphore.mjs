// node redis-semaphore.mjs MODULES PORT...: the mutex of redis-semaphore over ioredis, on several servers its Redlock.
import { begin, serve } from './protocol.mjs';

const { require, servers, versionOf } = begin(process.argv.slice(2));
const { Mutex, RedlockMutex } = require('redis-semaphore');

let held;

async function acquire(key, ttl, wait) {
  const options = {
    lockTimeout: ttl,
    retryInterval: 3,
    // Otherwise it renews automatically, and no lock expires.
    refreshInterval: 0,
    ...(wait === 0 ? { acquireAttemptsLimit: 1 } : { acquireTimeout: wait }),
  };
  const mutex = servers.length === 1 ? new Mutex(servers[0], key, options) : new RedlockMutex(servers, key, options);
  if (!(await mutex.tryAcquire())) return false;
  held = mutex;
  return true;
}

/** It does not report whether the lock still existed. */
async function release() {
  await held.release();
}

await serve({ acquire, release }, servers, versionOf('redis-semaphore'));
