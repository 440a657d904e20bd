// What takes locks.
import { EventEmitter } from 'node:events';
import { address } from './address.js';
import { LockBusy, LockLost, UsageError } from './errors.js';
import { Held } from './held.js';
import { now, open } from './session.js';

/** Milliseconds for an answer of the backend after the end of the wait. */
const ANSWER = 10_000;
/** After so many milliseconds the age of a grant counts, which only a question tells. */
const LATE = 1000;

export class Client extends EventEmitter {
  #where;
  #session;
  #closed = false;

  constructor(where) {
    super();
    this.#where = address(where);
  }

  static async connect(where) {
    const client = new Client(where);
    await client.#live();
    return client;
  }

  lock(keys, options) {
    return this.#grant('lock', Array.isArray(keys) ? { keys } : { key: keys }, options);
  }

  async tryLock(keys, options) {
    return this.lock(keys, { ...object(options), wait: 0 }).catch((error) => {
      if (error instanceof LockBusy) return null;
      throw error;
    });
  }

  async run(keys, options, work = options) {
    const held = await this.lock(keys, work === options ? {} : options);
    return during(held, work, () => held.release());
  }

  elect(name, options) {
    return this.#grant('elect', { key: name }, options);
  }

  async oncePer(key, window, options, work = options) {
    const held = await this.#grant('once', { key, window }, work === options ? {} : options);
    if (!(held instanceof Held)) return { ran: false, next: held.next, token: held.token, by: held.by };
    return { ran: true, value: await during(held, work, (done) => held.release({ done })) };
  }

  async status(key, { signal } = {}) {
    return (await this.#live()).request('status', { key }, { owner: this, signal });
  }

  async list(prefix, { signal } = {}) {
    return (await (await this.#live()).request('list', { prefix }, { owner: this, signal })).locks;
  }

  async close() {
    this.#closed = true;
    await this.#session?.leave(this);
  }

  async [Symbol.asyncDispose ?? Symbol('Symbol.asyncDispose')]() {
    await this.close();
  }

  /** The session, or a new one if it has ended. */
  async #live() {
    if (!this.#closed && (!this.#session || this.#session.ended)) this.#session = open(this, this.#where);
    const session = this.#session;
    await session?.ready;
    if (this.#closed) throw new UsageError('the client was closed: connect again');
    return session;
  }

  /** Waits for a hold; `oncePer` may answer that there is nothing to do. */
  async #grant(method, what, given) {
    const { shared, maxHold, signal, ...options } = object(given);
    const params = { ...options, ...what, ...(shared && { mode: 'shared' }), max_hold: maxHold };
    if (params.owner !== undefined) throw new UsageError('owner is for clients that cannot keep a lock: keep what `lock` gives');
    for (const [name, value] of Object.entries(params)) {
      // JSON makes them `null`, which is what an infinite wait means.
      if (typeof value === 'number' && !Number.isFinite(value) && !(name === 'wait' && value > 0)) throw new UsageError(`${name} is ${value}: give a number of seconds`);
    }
    signal?.throwIfAborted();
    const session = await this.#live();
    const sent = now();
    const late = () => now() - sent > LATE;
    const accept = (granted) => (granted.hold ? new Held(this, session, granted, late() ? now() : sent) : granted);
    const limit = Number.isFinite(params.wait) ? params.wait * 1000 + ANSWER : undefined;
    const held = await session.request(method, params, { owner: this, signal, limit, accept });
    if (!(held instanceof Held)) return held;
    if (late()) await held.remaining();
    if (signal?.aborted) {
      await held.release();
      throw signal.reason;
    }
    return held;
  }
}

/** Options, of which a number or a function has none. */
function object(options = {}) {
  if (typeof options === 'object' && options) return options;
  throw new UsageError(`options are an object such as { wait: 5 }, and not ${String(options)}`);
}

/** Releases when the work has ended, in whatever way. A loss is thrown even if the work has failed, which is then its cause. */
async function during(held, work, release) {
  let value;
  try {
    value = await work(held);
  } catch (error) {
    await release(false).catch((lost) => {
      if (!(lost instanceof LockLost) || lost === error || error?.cause === lost) return;
      lost.cause ??= error;
      throw lost;
    });
    throw error;
  }
  await release(true);
  return value;
}
