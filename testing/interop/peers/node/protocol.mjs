// A lock library with the protocol of all peers; see testing/interop/src/lib.rs.
//
// A lock is `acquire(key, ttl, wait)`, true if it is held, and `release()`: true, false if it was lost, undefined if the library
// does not report it.
import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

/** The command line: the libraries that scripts/test-interop installed, and a connection for each port. */
export function begin([modules, ...ports]) {
  const require = createRequire(join(modules, 'peer.cjs'));
  const Redis = require('ioredis');
  const servers = ports.map((port) => new Redis(Number(port), '127.0.0.1'));
  const versionOf = (library) => `${library} ${require(join(modules, library, 'package.json')).version}`;
  return { require, servers, versionOf };
}

/** Reads a number, waits, and writes the next one: only a lock prevents lost updates. */
async function countUp(lock, key, ttl, file, times) {
  for (let done = 0; done < times; done++) {
    if (!(await lock.acquire(key, ttl, 60_000))) throw new Error(`no turn within a minute, after ${done}`);
    const seen = Number(await readFile(file, 'utf8'));
    await sleep(1);
    await writeFile(file, String(seen + 1));
    if ((await lock.release()) === false) throw new Error(`lost while counting, after ${done}`);
  }
}

async function answer(lock, servers, [word, key, ttl, ...more]) {
  switch (word) {
    case 'try':
      return (await lock.acquire(key, Number(ttl), 0)) ? 'held' : 'busy';
    case 'lock':
      return (await lock.acquire(key, Number(ttl), Number(more[0]))) ? 'held' : 'busy';
    case 'unlock': {
      const freed = await lock.release();
      return freed === undefined ? 'done' : freed ? 'freed' : 'lost';
    }
    case 'delete':
      await Promise.all(servers.map((server) => server.del(key)));
      return 'deleted';
    case 'count':
      await countUp(lock, key, Number(ttl), more[0], Number(more[1]));
      return 'counted';
    default:
      return `error no such word: ${word}`;
  }
}

export async function serve(lock, servers, version) {
  console.log(`ready Node ${process.version}, ${version}`);
  for await (const line of createInterface({ input: process.stdin })) {
    try {
      console.log(await answer(lock, servers, line.trim().split(' ')));
    } catch (error) {
      console.log(`error ${String(error.message).replaceAll('\n', ' ')}`);
    }
  }
  process.exit(0);
}
