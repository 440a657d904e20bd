// Locks of fencelock for Node.js. The program `fencelock serve` holds and renews; a connection to it is the session.
import { Client } from './lib/client.js';

export { Client };
export { Held } from './lib/held.js';
export { FencelockError, LimitReached, LockBusy, LockLost, Unreachable, UsageError } from './lib/errors.js';

/** Connects, and checks that what answers speaks the protocol. `index.d.ts` documents everything that is exported here. */
export const connect = (where) => Client.connect(where);
