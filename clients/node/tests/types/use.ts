// Compiled by a test, and run: what users write, and what the compiler must refuse.
import { once } from 'node:events';
import * as fencelock from 'fencelock';
import { connect, type Client, type Done, type Held, type HeldAll, FencelockError, LockBusy, LockLost, type Holder } from 'fencelock';

// Exactly what is exported and declared: the compiler knows the types, and the test compares them with what is there.
export const names: Record<keyof typeof fencelock, true> = {
  Client: true, FencelockError: true, Held: true, LimitReached: true, LockBusy: true, LockLost: true, Unreachable: true, UsageError: true, connect: true,
};
type Own<T> = Exclude<keyof T, keyof import('node:events').EventEmitter | symbol>;
export const ofClient: Record<Own<Client>, true> = { lock: true, tryLock: true, run: true, elect: true, oncePer: true, status: true, list: true, close: true };
export const ofHeld: Record<Own<Held>, true> = {
  key: true, keys: true, token: true, tokens: true, slot: true, signal: true, remaining: true, release: true,
};

export async function use(where: string): Promise<string[]> {
  const steps: string[] = [];
  await using client = await connect(where);
  {
    await using held = await client.lock('k', { wait: 5, ttl: 10, label: 'types', maxHold: 60, signal: AbortSignal.timeout(10_000) });
    const token: number = held.token;
    const left: number = await held.remaining();
    steps.push(`${token > 0} ${left > 0}`);
    const none: Held | null = await client.tryLock('k');
    steps.push(`${none}`);
    try {
      await client.lock('k', { wait: 0 });
    } catch (error) {
      if (!(error instanceof LockBusy)) throw error;
      const holder: Holder | undefined = error.holder;
      steps.push(`${typeof holder?.host} ${error.code}`);
    }
  }
  const all: HeldAll = await client.lock(['a', 'b'] as const, { wait: 0 });
  steps.push(all.keys.join());
  await all.release();
  const seven: number = await client.run('k', () => 7);
  const text: string = await client.run('k', { shared: true }, async (held) => `${seven} ${held.key}`);
  steps.push(text);
  const work: { ran: true; value: number } | Done = await client.oncePer('daily', 3600, async (held) => held.token);
  steps.push(`${work.ran ? work.value > 0 : work.next}`);
  client.on('ending', (grace: number) => grace.toFixed());
  return steps;
}

export async function refused(client: Client, held: Held): Promise<void> {
  // @ts-expect-error a mistyped option
  await client.lock('k', { waitt: 5 });
  // @ts-expect-error seconds are numbers
  await client.lock('k', { wait: '5' });
  // @ts-expect-error several keys have no slots
  await client.lock(['a', 'b'], { slots: 2 });
  // @ts-expect-error several keys have several tokens
  (await client.lock(['a'])).token;
  // @ts-expect-error `tryLock` does not wait
  await client.tryLock('k', { wait: 5 });
  // @ts-expect-error may be null
  (await client.tryLock('k')).release();
  // @ts-expect-error read only
  held.token = 5;
  // @ts-expect-error by `connect`
  new fencelock.Client();
  await once(held.signal, 'abort');
  const reason: unknown = held.signal.reason;
  if (reason instanceof LockLost) reason.reason.trim();
  if (reason instanceof FencelockError) reason.code.toFixed();
}
