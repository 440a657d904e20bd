import { connect } from '../node/index.js';

const client = await connect();
const times = [];
while (times.length < 4000) {
  const begun = performance.now();
  const held = await client.lock('kept');
  await held.release();
  times.push((performance.now() - begun) * 1000);
}
console.log(JSON.stringify(times));
await client.close();
