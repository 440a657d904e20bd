// One connection to the server: requests by number, and the holds of which it notifies.
import { dial, start } from './address.js';
import { FencelockError, ofReply, Unreachable, UsageError } from './errors.js';

const PROTOCOL = 1;
const VERSION = '0.1.0';
/** Milliseconds for `hello`: a child may have to be read from a cold disk. */
const GREETING = 10_000;
/** Milliseconds that somebody waits for what the server does in any case: the release of what nobody holds, the end. */
const PATIENCE = 2000;
/** The longest delay of a timer of Node.js. A longer one fires at once. */
export const LONGEST = 2 ** 31 - 1;

/** Milliseconds of a clock that is never set. */
export const now = () => performance.now();

const frame = (message) => `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`;

/** The sessions with a child, by URL: one for all clients of this process (of this worker thread). */
const children = new Map();

/** A session for `owner`, which `leave`s it. */
export function open(owner, { socket, url }) {
  let session = socket === undefined ? children.get(url) : undefined;
  if (!session || session.ended) session = new Session(socket === undefined ? start(url) : dial(socket));
  if (socket === undefined) children.set(url, session);
  session.users.add(owner);
  return session;
}

class Session {
  /** Why it has ended. */
  ended = undefined;
  users = new Set();
  /** By number: the owner of a hold, and what to call when it is lost. */
  holds = new Map();
  #transport;
  #requests = new Map();
  #last = 0;
  /** The number of requests for whose reply the process lives on. */
  #active = 0;
  #longest = 65_536;
  #parts = [];

  constructor(transport) {
    this.#transport = transport;
    transport.input.setEncoding('utf8').on('data', (text) => this.#read(text));
    transport.ended.then((why) => this.#end(why));
    this.ready = this.#greet();
    this.ready.catch((why) => this.#end(why));
  }

  async #greet() {
    const hello = { protocol: PROTOCOL, client: `node/${VERSION}` };
    const { protocol, limits } = await this.request('hello', hello, { limit: GREETING });
    if (protocol !== PROTOCOL) {
      throw new Unreachable(`${this.#transport.name} speaks protocol ${protocol}, and this client ${PROTOCOL}: install a program and a client that go together`);
    }
    this.#longest = limits?.line ?? this.#longest;
    this.#transport.greeted = true;
  }

  /**
   * The result of a request. `accept` makes a grant of it, in the moment in which the reply is read: a `lost` may follow at once.
   * An aborted `signal` or the `limit` (milliseconds) withdraws the request; what is granted all the same is given back.
   * The process lives on for the reply unless the request is `quiet`.
   */
  async request(method, params, { owner, signal, limit, quiet, accept } = {}) {
    const answer = new Promise((resolve, reject) => {
      if (signal?.aborted) throw signal.reason;
      if (this.ended) throw this.ended;
      const id = ++this.#last;
      const line = frame({ id, method, params });
      const bytes = Buffer.byteLength(line);
      if (bytes > this.#longest) throw new UsageError(`a request may have ${this.#longest} bytes, and this one has ${bytes}: use shorter keys, or fewer`);
      let timer;
      let waiting = true;
      const settle = () => {
        waiting = false;
        clearTimeout(timer);
        signal?.removeEventListener('abort', aborted);
        if (!quiet) this.#count(-1);
      };
      const withdraw = (reason) => {
        if (!waiting) return;
        settle();
        if (accept) this.#transport.output.write(frame({ method: 'cancel', params: { id } }));
        reject(reason);
      };
      const aborted = () => withdraw(signal.reason);
      const reply = (error, result) => {
        this.#requests.delete(id);
        if (!waiting) return accept && result?.hold && this.giveBack(result.hold);
        settle();
        return error ? reject(error) : resolve(accept ? accept(result) : result);
      };
      this.#requests.set(id, { owner, withdraw, reply });
      if (!quiet) this.#count(1);
      signal?.addEventListener('abort', aborted);
      if (limit !== undefined) {
        const late = () => withdraw(new Unreachable(`${this.#transport.name} has not answered \`${method}\` within ${Math.round(limit) / 1000} s: is it stopped, or another program?`));
        // A reply that came while JavaScript was busy is read between the timers and the next immediate.
        timer = setTimeout(() => setImmediate(late), Math.min(limit, LONGEST)).unref();
      }
      this.#transport.output.write(line);
    });
    try {
      return await answer;
    } catch (error) {
      if (error instanceof FencelockError) Error.captureStackTrace(error); // of the caller instead of the socket
      throw error;
    }
  }

  /** Releases a hold of which nobody knows any more. */
  giveBack(hold) {
    return this.request('release', { hold }, { limit: PATIENCE }).catch(() => {});
  }

  /** Withdraws the requests of `owner` and releases its holds. The last one ends the connection. */
  async leave(owner) {
    const why = new UsageError('the client was closed');
    for (const request of [...this.#requests.values()]) if (request.owner === owner) request.withdraw(why);
    const own = [...this.holds.values()].filter((hold) => hold.owner === owner);
    await Promise.all(own.map((hold) => hold.lose(why.message)));
    this.users.delete(owner);
    if (this.users.size > 0) return;
    this.#end(why);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, PATIENCE);
      this.#transport.ended.then(() => resolve(clearTimeout(timer)));
    });
  }

  #count(by) {
    this.#active += by;
    if (this.#active === (by > 0 ? 1 : 0)) for (const handle of this.#transport.handles) handle[by > 0 ? 'ref' : 'unref']?.();
  }

  #read(text) {
    this.#parts.push(text);
    if (!text.includes('\n')) return;
    const lines = this.#parts.join('').split('\n');
    this.#parts = [lines.pop()];
    for (const line of lines) this.#take(line);
  }

  #take(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      this.#end(new Unreachable(`${this.#transport.name} is not \`fencelock serve\`: it sent ${JSON.stringify(line.slice(0, 80))}`));
    }
    const { id, method, params, result, error } = message ?? {};
    if (method === 'lost') this.holds.get(params?.hold)?.lose(params.cause, params.key, true);
    else if (method === 'ending') for (const user of this.users) user.emit('ending', params?.grace);
    else if (id === null && error) this.#end(ofReply(error)); // of the whole connection
    else if (!method) this.#requests.get(id)?.reply(error && ofReply(error), result);
  }

  #end(why) {
    if (this.ended) return;
    this.ended = why;
    this.#transport.output.end();
    setTimeout(() => this.#transport.input.destroy(), PATIENCE).unref();
    for (const hold of [...this.holds.values()]) hold.lose(why.message, undefined, true);
    for (const request of [...this.#requests.values()]) request.reply(why);
  }
}
