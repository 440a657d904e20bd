// The examples of the README run.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { directory, script, test } from './environment.js';

const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
const blocks = [...readme.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);

test('the first ten lines of the README are a program', async (t) => {
  assert.ok(readme.split('\n').slice(0, 10).join('\n').includes(blocks[0]));
  // A file in this package imports it by its name.
  const path = mkdtempSync(fileURLToPath(new URL('.out-', import.meta.url)));
  t.after(() => rmSync(path, { recursive: true }));
  writeFileSync(`${path}/program.mjs`, blocks[0]);
  const env = { ...process.env, FENCELOCK_URL: `file:${directory(t)}` };
  const { stdout } = await promisify(execFile)(process.execPath, [`${path}/program.mjs`], { env });
  assert.match(stdout, /^writing with token \d+\n$/);
});

for (const [number, block] of blocks.slice(1).entries()) {
  test(`example ${number + 2} of the README runs`, async (t) => {
    const run = script(t, `
      const client = await connect('file:${directory(t)}');
      const [rows, save] = [[1, 2], async (row, { token }) => print(row, token > 0)];
      { ${block} }
      await client.close();
      print('end');
    `);
    assert.equal(await run.ended, 0, run.errors);
    assert.match(run.text, /end\n$/);
  });
}
