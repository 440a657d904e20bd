// The types are those of the code, and `await using` works when it is compiled.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as fencelock from '../index.js';
import { serve, redis, test } from './environment.js';

const here = fileURLToPath(new URL('.', import.meta.url));
const tools = `${here}../.test/node_modules`;
const STRICT = ['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess', '--target', 'es2022', '--lib', 'es2022,esnext.disposable', '--module', 'nodenext', '--types', 'node'];

test('TypeScript checks what users write, and runs it', { timeout: 600_000 }, async (t) => {
  // In the package, which can import itself by its name.
  const out = mkdtempSync(`${here}.out-`);
  t.after(() => rmSync(out, { recursive: true }));
  try {
    execFileSync(`${tools}/.bin/tsc`, [...STRICT, '--typeRoots', `${tools}/@types`, '--rootDir', `${here}..`, '--outDir', out, `${here}types/use.ts`], { encoding: 'utf8' });
  } catch (error) {
    assert.fail(error.stdout);
  }
  const { use, names, ofClient, ofHeld } = await import(`${out}/tests/types/use.js`);
  assert.deepEqual(Object.keys(names).sort(), Object.keys(fencelock).sort());
  const methods = (type) => Object.getOwnPropertyNames(type.prototype).filter((name) => name !== 'constructor');
  assert.deepEqual(Object.keys(ofClient).sort(), methods(fencelock.Client).sort());
  const fields = ['key', 'keys', 'token', 'tokens', 'slot'];
  assert.deepEqual(Object.keys(ofHeld).sort(), [...methods(fencelock.Held), ...fields].sort());
  const { path } = await serve(t, (await redis(t)).url);
  assert.deepEqual(await use(path), ['true true', 'null', 'string 75', 'a,b', '7 k', 'true']);
});
