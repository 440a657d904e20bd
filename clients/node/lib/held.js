// A held lock.
import { LockLost, Unreachable, UsageError } from './errors.js';
import { LONGEST, now } from './session.js';

/** Milliseconds after which a server that does not answer `remaining` is taken for frozen. */
const FROZEN = 1000;
/** Milliseconds for the release of a lock that does not expire. */
const RELEASE = 10_000;

export class Held {
  #session;
  #hold;
  /** When the remaining time that was told last is over. */
  #until = Infinity;
  #timer;
  #loss = new AbortController();
  /** The release or the loss, once there is one. */
  #end;
  #asked = false;

  /** The remaining time of `granted` is counted from `since`. */
  constructor(owner, session, granted, since) {
    const { hold, key, keys = [key], token, tokens = [token], slot, remaining } = granted;
    this.#session = session;
    this.#hold = hold;
    Object.assign(this, { key, token, keys, tokens, slot });
    session.holds.set(hold, { owner, lose: (...why) => this.#lose(...why) });
    this.#told(remaining, since);
  }

  get signal() {
    if (now() >= this.#until) this.#lose('its time is over: its maxHold, or the server did not say that it was renewed');
    return this.#loss.signal;
  }

  /** What is doubtful is not held. */
  async remaining(quiet = false) {
    this.#check();
    const sent = now();
    const limit = Math.min(FROZEN, this.#until - sent);
    try {
      const { remaining } = await this.#session.request('remaining', { hold: this.#hold }, { quiet, limit });
      this.#told(remaining, sent);
    } catch (error) {
      if (error instanceof LockLost) this.#lose(error.reason ?? error.message, error.key, true);
      else if (error instanceof Unreachable || error instanceof UsageError) this.#lose(error.message);
      else this.#schedule();
      this.#check();
      throw error;
    }
    this.#check();
    return (this.#until - now()) / 1000;
  }

  release(outcome) {
    this.#asked = true;
    // An end of the remaining time comes first. Of a lost lock, the server keeps the other keys until now.
    if (this.signal.aborted) void this.#session.giveBack(this.#hold);
    this.#end ??= this.#release(outcome);
    return this.#end;
  }

  async [Symbol.asyncDispose ?? Symbol('Symbol.asyncDispose')]() {
    if (!this.#asked) await this.release();
  }

  async #release(outcome) {
    clearTimeout(this.#timer);
    const limit = Math.min(Math.max(this.#until - now(), FROZEN), RELEASE);
    try {
      await this.#session.request('release', { hold: this.#hold, ...outcome }, { limit });
    } catch (error) {
      if (error instanceof LockLost) this.#loss.abort(error);
      throw error;
    } finally {
      this.#session.holds.delete(this.#hold);
    }
  }

  #check() {
    this.signal.throwIfAborted();
    if (this.#end) throw new UsageError(`the lock ${this.keys.join(', ')} was released: lock it again`);
  }

  #told(remaining, since) {
    if (typeof remaining === 'number') this.#until = since + remaining * 1000;
    this.#schedule();
  }

  /** Asks again after a third of the remaining time, so that a frozen server is noticed before the lease ends. */
  #schedule() {
    clearTimeout(this.#timer);
    if (this.#end || this.#until === Infinity) return;
    const delay = Math.min((this.#until - now()) / 3, LONGEST);
    this.#timer = setTimeout(() => this.remaining(true).catch(() => {}), delay).unref();
  }

  /** Aborts the signal. Unless the hold is `gone` at the server, it is released there: a server that was frozen goes on. */
  #lose(reason, key = this.keys.join(', '), gone = false) {
    if (this.#end) return this.#end.catch(() => {});
    const error = new LockLost(`the lock ${key} was lost: ${reason}`, 76, { key, cause: reason });
    this.#end = Promise.reject(error);
    this.#end.catch(() => {});
    clearTimeout(this.#timer);
    this.#session.holds.delete(this.#hold);
    this.#loss.abort(error);
    return gone ? undefined : this.#session.giveBack(this.#hold);
  }
}
