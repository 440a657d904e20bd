/// <reference types="node" />
import type { EventEmitter } from 'node:events';

/**
 * Connects to a server of locks: to `where`, else to the socket that `FENCELOCK_SOCKET` names, else to a child
 * `fencelock serve --stdio`, which all clients of a process (of a worker thread) with the same `where` share.
 *
 * The program of the child is named by `FENCELOCK_PROGRAM`, else it is the one that npm has installed, else `fencelock` in `PATH`.
 *
 * @param where a socket (`unix:/run/fencelock.sock` or `/run/fencelock.sock`), or the URL of a backend for a child
 *   (`redis://HOST`, `file:DIR`); without, the child reads the settings of the program, such as `FENCELOCK_URL`
 * @throws {Unreachable} nobody listens, or what answers is not a server of this protocol
 * @throws {UsageError} `where` or `FENCELOCK_SOCKET` is neither, or is empty, or the program refuses it; or there is no program
 */
export function connect(where?: string): Promise<Client>;

/** Options of everything that waits for a lock. Times are **seconds** and may have fractions. */
export interface WaitOptions {
  /** How long to wait, from the receipt by the server; 0 tries once. Without: as long as it takes. */
  wait?: number;
  /** After how many seconds without renewal the lock is free. The server renews it. Default: the server's settings. */
  ttl?: number;
  /** What `fencelock status` shows, and what an election publishes. */
  label?: string;
  /** Ends the wait: the promise is rejected with the signal's reason, and a grant that comes too late is given back. */
  signal?: AbortSignal;
}

interface ModeOptions extends WaitOptions {
  /** Ends the hold after so many seconds: a loss. */
  maxHold?: number;
  /** Shared with other holders that ask for it, instead of exclusive. */
  shared?: boolean;
}

/** Options of a lock. At most one of `shared`, `limit` and `slots`. */
export interface LockOptions extends ModeOptions {
  /** A semaphore with so many permits. */
  limit?: number;
  /** How many permits of `limit` to take. Default: 1. */
  permits?: number;
  /** One of so many numbered slots, see `held.slot`. */
  slots?: number;
}

/** Options of several keys. */
export interface LockAllOptions extends ModeOptions {}

/** What `oncePer` tells if there was nothing to do. */
export interface Done {
  ran: false;
  /** Seconds until the next window begins. */
  next: number;
  /** The fencing token of the run that has done the work. */
  token: number;
  /** Who has done it. */
  by: Holder;
}

/**
 * Takes locks. Its methods may be called side by side: the same key twice excludes, as between two processes.
 *
 * If the connection ends, all locks are lost (see `Held.signal`), and the next call connects again.
 * A request keeps the process alive until it is answered. The connection and a held lock do not: a process that has nothing
 * else to do ends, and its locks are free.
 *
 * Emits `ending` with the seconds that are left to release when the server is being stopped.
 */
export class Client extends EventEmitter implements AsyncDisposable {
  private constructor();

  /**
   * Waits for a lock, which is renewed until it is released.
   *
   * @throws {LockBusy} `wait` is over: names the holder and its time left
   * @throws {Unreachable} it is unknown who holds the key, or the connection has ended; nothing is held
   * @throws {UsageError} an option cannot be used
   */
  lock(key: string, options?: LockOptions): Promise<Held>;
  /** Waits for several locks, all or none. */
  lock(keys: readonly string[], options?: LockAllOptions): Promise<HeldAll>;

  /** Takes a lock if it is free, else `null`. Never waits for a holder. Throws as `lock` does, except `LockBusy`. */
  tryLock(key: string, options?: Omit<LockOptions, 'wait'>): Promise<Held | null>;
  tryLock(keys: readonly string[], options?: Omit<LockAllOptions, 'wait'>): Promise<HeldAll | null>;

  /**
   * Runs `work` under a lock, which is released when the promise of `work` is settled, and gives its result.
   *
   * @throws {LockLost} the lock was lost, even if `work` has failed as well: then that is the `cause`. Otherwise what `work` throws, and as `lock`
   */
  run<T>(key: string, work: (held: Held) => T | Promise<T>): Promise<T>;
  run<T>(key: string, options: LockOptions, work: (held: Held) => T | Promise<T>): Promise<T>;
  run<T>(keys: readonly string[], work: (held: HeldAll) => T | Promise<T>): Promise<T>;
  run<T>(keys: readonly string[], options: LockAllOptions, work: (held: HeldAll) => T | Promise<T>): Promise<T>;

  /** Waits to lead the election `name`. The token is that of the term, `signal` is its end, `release` resigns. */
  elect(name: string, options?: WaitOptions): Promise<Held>;

  /**
   * Runs `work` unless it was done in this window of time: seconds, or a text that `fencelock run --once-per` takes.
   * If `work` throws, the window is not done. Throws as `run` does.
   */
  oncePer<T>(key: string, window: number | string, work: (held: Held) => T | Promise<T>): Promise<{ ran: true; value: T } | Done>;
  oncePer<T>(key: string, window: number | string, options: WaitOptions, work: (held: Held) => T | Promise<T>): Promise<{ ran: true; value: T } | Done>;

  /** Who holds a key and who waits: the object of `fencelock status --json`. */
  status(key: string, options?: { signal?: AbortSignal }): Promise<Record<string, unknown>>;

  /** All held locks whose keys begin with `prefix`: the objects of `fencelock list --json`. */
  list(prefix?: string, options?: { signal?: AbortSignal }): Promise<Record<string, unknown>[]>;

  /** Releases what this client holds, withdraws what it waits for, and ends the connection if no other client shares it. */
  close(): Promise<void>;

  /** `await using client = await connect()` closes it. */
  [Symbol.asyncDispose](): Promise<void>;

  on(event: 'ending', listener: (grace: number) => void): this;
  once(event: 'ending', listener: (grace: number) => void): this;
  off(event: 'ending', listener: (grace: number) => void): this;
}

/** Held locks: one, or several that were taken together. */
export interface HeldAll extends AsyncDisposable {
  /** The keys, in the order in which they were given. */
  readonly keys: readonly string[];
  /** The fencing token of each key. */
  readonly tokens: readonly number[];
  /**
   * Aborted with a `LockLost` when a lock is lost: its key was deleted or taken, the connection has ended, the server does not
   * answer, or the remaining time that it told last is over. The client asks the server by itself, each time a third of it is over.
   * Give it to everything that must not go on without the lock: `fetch(url, { signal: held.signal })`.
   *
   * While JavaScript is busy no event is handled: after a long computation, read `held.signal.aborted` anew.
   */
  readonly signal: AbortSignal;
  /**
   * Asks the server for the seconds that are left unless it renews; `Infinity` for a lock that does not expire.
   *
   * @throws {LockLost} it is not held (any more). A server that does not answer within a second counts as a loss
   * @throws {UsageError} it was released
   */
  remaining(): Promise<number>;
  /**
   * Releases, and is resolved when the server has confirmed it. A second call gives the same promise.
   *
   * @throws {LockLost} it was lost before: what was done under it may not have been alone
   * @throws {Unreachable} the release is not confirmed: the key is free when its time to live is over, at the latest
   */
  release(): Promise<void>;
  /** `await using held = await client.lock('k')` releases at the end of the block, if `release` was not called. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A held lock. */
export class Held implements HeldAll {
  private constructor();
  readonly key: string;
  /** The fencing token: it grows with every grant of the key. Let the receiver of a write reject a smaller one than it has seen. */
  readonly token: number;
  /** The number of the slot, from 0, of a lock with `slots`. */
  readonly slot: number | undefined;
  readonly keys: readonly string[];
  readonly tokens: readonly number[];
  readonly signal: AbortSignal;
  remaining(): Promise<number>;
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Who holds a lock. */
export interface Holder {
  host: string;
  pid: number | null;
  label: string | null;
  name: string | null;
}

/** Every error of this package. Its message says what to do. */
export class FencelockError extends Error {
  /** The exit code of the program, or of JSON-RPC: 64 usage, 69 unreachable, 70 a bug, 71 the server is being stopped, 75 busy, 76 lost. */
  readonly code: number;
  readonly key?: string;
  /** What to do, where the server knows. */
  readonly advice?: string;
}

/** Another client holds the lock. */
export class LockBusy extends FencelockError {
  readonly holder?: Holder;
  /** What another program has stored under the key. */
  readonly foreign?: string;
  /** Seconds until the present hold ends unless it is renewed. */
  readonly remaining?: number;
  /** Seconds. */
  readonly waited?: number;
}

/** The lock was lost: others may hold it. */
export class LockLost extends FencelockError {
  /** Why, in words. */
  readonly reason: string;
}

/** The server or its backend does not answer, so it is unknown who holds the lock. */
export class Unreachable extends FencelockError {}

/** An argument cannot be used, or what it names is closed or released. */
export class UsageError extends FencelockError {}

/** A limit of the server is reached. */
export class LimitReached extends FencelockError {
  /** Its name. */
  readonly limit?: string;
}
