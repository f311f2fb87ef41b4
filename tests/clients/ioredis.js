// ioredis in cluster mode, before and after every region's leader has moved.
//
//     node ioredis.js CLUSTER-PORT ADMIN PYTHON LEADERS.PY
'use strict';

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { promisify } = require('node:util');
const Redis = require('ioredis');

const KEYS = 1000;
const [port, admin, python, script] = process.argv.slice(2);
const rotate = () => promisify(execFile)(python, [script, admin, 'rotate']);
const range = (count) => Array.from({ length: count }, (_, n) => n);

async function work(cluster, name) {
  assert.equal(cluster.nodes('master').length, 3);
  await Promise.all(range(KEYS).map((n) => cluster.set(`${name}:${n}`, n)));
  const values = await Promise.all(range(KEYS).map((n) => cluster.get(`${name}:${n}`)));
  assert.deepEqual(values, range(KEYS).map(String));
  await cluster.hset(`${name}:h`, { a: 1, b: 2 });
  assert.deepEqual(await cluster.hgetall(`${name}:h`), { a: '1', b: '2' });
  const piped = await cluster.pipeline().set(`{${name}}x`, 1).incr(`{${name}}x`).get(`{${name}}x`).exec();
  assert.deepEqual(piped, [[null, 'OK'], [null, 2], [null, '2']]);
  await assert.rejects(cluster.mset(`${name}:1`, 1, `${name}:2`, 2), /CROSSSLOT|same slot/);
}

async function whileMoving(cluster) {
  let stop = false;
  let acknowledged = 0;
  let unknown = 0;
  const count = (async () => {
    while (!stop) {
      try {
        await cluster.incr(`ioredis:moving:${acknowledged % 50}`);
        acknowledged += 1;
      } catch (error) {
        assert.match(error.message, /^UNKNOWN/);
        unknown += 1;
      }
    }
  })();
  for (let round = 0; round < 3; round += 1) await rotate();
  stop = true;
  await count;
  const counts = await Promise.all(range(50).map((n) => cluster.get(`ioredis:moving:${n}`)));
  const total = counts.reduce((sum, text) => sum + Number(text), 0);
  assert.ok(acknowledged > 0 && acknowledged <= total && total <= acknowledged + unknown, `${acknowledged} ${total}`);
  return acknowledged;
}

async function main() {
  const cluster = new Redis.Cluster([{ host: '127.0.0.1', port: Number(port) }]);
  await new Promise((ready, failed) => cluster.once('ready', ready).once('error', failed));
  await work(cluster, 'ioredis:before');
  await rotate();
  await work(cluster, 'ioredis:after');
  const counted = await whileMoving(cluster);
  const replicas = new Redis.Cluster([{ host: '127.0.0.1', port: Number(port) }], { scaleReads: 'all' });
  assert.equal(await replicas.get('ioredis:after:1'), '1');
  replicas.disconnect();
  cluster.disconnect();
  const { version } = require('ioredis/package.json');
  console.log(`ioredis ${version}: followed every move; ${counted} increments meanwhile`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
