// node worker.mjs MODULES fencelock|redlock|redis-semaphore [version]
//
// Node's lock libraries over ioredis, one promise for each task; ../README.md describes a worker.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const [modules, kind, question] = process.argv.slice(2);
const require = createRequire(join(modules, 'worker.cjs'));
const installed = (module) => require(join(modules, module, 'package.json')).version.replace(/^v/, '');

/** acquire() returns a function that releases the lock, or undefined if the library gave up. */
const libraries = {
  // The client of this tree, and the server that FENCELOCK_SOCKET names.
  fencelock: async () => {
    const { connect } = await import('../../../../clients/node/index.js');
    const client = await connect();
    return async (key) => {
      const held = await client.lock(key);
      return () => held.release();
    };
  },
  redlock: (server, job) => {
    const { default: Redlock } = require('redlock');
    // Its 10 tries are too few for the span. The pause is the default: 200 ms, plus or minus up to 100 ms.
    const redlock = new Redlock([server], { retryCount: -1 });
    // Each refused vote is an event, and an event without a listener ends the process.
    redlock.on('error', () => {});
    return async (key) => {
      const lock = await redlock.acquire([key], job.ttl_ms);
      return () => lock.release();
    };
  },
  'redis-semaphore': (server, job) => {
    const { Mutex } = require('redis-semaphore');
    // Its limit of 10 s is longer than the span. The pause is the default: 10 ms.
    const options = { lockTimeout: job.ttl_ms, acquireTimeout: job.warm_up_ms + job.span_ms + 10_000 };
    return async (key) => {
      const mutex = new Mutex(server, key, options);
      return (await mutex.tryAcquire()) ? () => mutex.release() : undefined;
    };
  },
};

class Task {
  grants = 0;
  refused = 0;
  errors = 0;
  first_error = null;
  soldOut = false;

  constructor(job, number, server, acquire, waits) {
    Object.assign(this, { job, number, server, acquire, waits });
  }

  async run(counted, end) {
    while (performance.now() < end && !this.soldOut) {
      try {
        await this.turn(counted, end);
      } catch (error) {
        this.errors += 1;
        this.first_error ??= String(error.message ?? error);
        await sleep(10);
      }
    }
  }

  key() {
    const { workload, key, keys, process } = this.job;
    if (workload === 'uncontended') return `${key}:${process}:${this.number}`;
    return workload === 'many-keys' ? `${key}:${Math.floor(Math.random() * keys)}` : key;
  }

  async turn(counted, end) {
    const key = this.key();
    const asked = performance.now();
    let release;
    while ((release = await this.acquire(key)) === undefined) {
      if (performance.now() >= end) return;
      this.refused += 1;
    }
    const granted = performance.now();
    if (this.job.workload === 'flash-sale' && granted <= end) {
      this.soldOut = !(await sell(this.server, key));
    }
    if (asked >= counted && granted <= end) {
      const wait = rounded(Math.floor((granted - asked) * 1000));
      this.waits.set(wait, (this.waits.get(wait) ?? 0) + 1);
      this.grants += 1;
    }
    await release();
  }
}

/** Returns whether an item was left. Only the lock prevents other sales between reading and writing. */
async function sell(server, key) {
  const stock = Number(await server.get(`${key}:stock`));
  if (stock > 0) {
    await server.set(`${key}:stock`, stock - 1);
    await server.rpush(`${key}:sold`, stock);
  }
  return stock > 0;
}

/** Rounds to three digits. */
function rounded(micros) {
  const unit = 10 ** Math.max(String(micros).length - 3, 0);
  return Math.floor((micros + Math.floor(unit / 2)) / unit) * unit;
}

async function main() {
  if (question === 'version') {
    const label = kind === 'redlock' ? 'node-redlock' : kind;
    console.log(`${label} ${installed(kind)}, ioredis ${installed('ioredis')}, Node ${process.version.slice(1)}`);
    return;
  }
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const job = JSON.parse((await lines.next()).value);
  const Redis = require('ioredis');
  const server = new Redis(job.url);
  await server.ping();
  const acquire = await libraries[kind](server, job);
  console.log('ready');
  await lines.next();
  const counted = performance.now() + job.warm_up_ms;
  const end = counted + job.span_ms;
  const waits = new Map();
  const tasks = Array.from({ length: job.tasks }, (_, number) => new Task(job, number, server, acquire, waits));
  const running = tasks.map((task) => task.run(counted, end));
  // A started sale must be completed; it may also end early. Other workloads do not wait for their tasks.
  const sale = job.workload === 'flash-sale';
  await Promise.race([sleep(end - performance.now() + (sale ? 5000 : 0)), ...(sale ? [Promise.all(running)] : [])]);
  const log = {
    tasks: tasks.map(({ grants, refused }) => ({ grants, refused })),
    waits: [...waits].sort(([a], [b]) => a - b),
    errors: tasks.reduce((sum, task) => sum + task.errors, 0),
    first_error: tasks.find((task) => task.first_error !== null)?.first_error ?? null,
  };
  process.stdout.write(`${JSON.stringify(log)}\n`, () => process.exit(0));
}

await main();
