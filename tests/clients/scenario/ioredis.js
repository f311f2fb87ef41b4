// What ioredis gets from a server, a line for each answer, so that two servers can be compared.
//
//     node ioredis.js plain PORT
//     node ioredis.js cluster PORT
//
// The lines hold nothing that may differ between two runs.
'use strict';

const Redis = require('ioredis');

const [mode, portText] = process.argv.slice(2);
const port = Number(portText);
const PATIENCE_MS = 20000;
// One slot for all keys, as a cluster wants it.
const key = (name) => `{js}${name}`;
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const range = (count) => Array.from({ length: count }, (_, n) => n);
const clients = [];

function connect(protocol, options = {}) {
  const client = mode === 'plain'
    ? new Redis({ host: '127.0.0.1', port, protocol, ...options })
    : new Redis.Cluster([{ host: '127.0.0.1', port }], { redisOptions: { protocol }, ...options });
  client.on('error', (error) => { throw error; });
  clients.push(client);
  return client;
}

// A connection to the server that has the keys, for commands that name no key.
async function connectToKeys(protocol) {
  if (mode === 'plain') return connect(protocol);
  const one = new Redis({ host: '127.0.0.1', port, protocol });
  const slot = Number(await one.call('CLUSTER', 'KEYSLOT', key('')));
  const rows = await one.call('CLUSTER', 'SLOTS');
  one.disconnect();
  const [, , [host, keysPort]] = rows.find(([first, last]) => first <= slot && slot <= last);
  const client = new Redis({ host, port: keysPort, protocol });
  clients.push(client);
  return client;
}

function stable(answer) {
  if (answer instanceof Error) return `${answer.name}: ${answer.message}`;
  if (Buffer.isBuffer(answer)) return `buffer ${answer.toString('hex')}`;
  if (answer instanceof Map) return stable(Object.fromEntries(answer));
  if (answer instanceof Set) return `set${stable([...answer].sort())}`;
  if (Array.isArray(answer)) return `[${answer.map(stable).join(', ')}]`;
  if (answer && typeof answer === 'object') {
    return `{${Object.keys(answer).sort().map((name) => `${name}: ${stable(answer[name])}`).join(', ')}}`;
  }
  return JSON.stringify(answer) ?? 'undefined';
}

const show = (step, answer) => console.log(`${step} | ${stable(answer)}`);

async function attempt(step, promise) {
  let answer;
  try {
    answer = await promise;
  } catch (error) {
    answer = error;
  }
  show(step, answer);
}

async function until(what, holds) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`not within ${PATIENCE_MS} ms: ${what}`);
    await sleep(10);
  }
}

async function values(client) {
  await client.hset(key('hash'), { a: 1, b: 'two' });
  show('hash', await client.hgetall(key('hash')));
  await client.sadd(key('set'), 'x', 'y', 'z');
  show('set', (await client.smembers(key('set'))).sort());
  show('smismember', await client.smismember(key('set'), 'x', 'q'));
  await client.zadd(key('zset'), 1, 'one', 2.5, 'two', '+inf', 'last');
  show('zset', await client.zrange(key('zset'), 0, -1, 'WITHSCORES'));
  show('zscore', await client.zscore(key('zset'), 'two'));
  show('zpopmax', await client.zpopmax(key('zset')));
  await client.rpush(key('list'), 3, 1, 2);
  show('sort', await client.sort(key('list'), 'DESC'));
  await client.geoadd(key('geo'), 13.361389, 38.115556, 'Palermo', 15.087269, 37.502669, 'Catania');
  show('geodist', await client.geodist(key('geo'), 'Palermo', 'Catania', 'km'));
  show('bitfield', await client.bitfield(key('bits'), 'SET', 'u8', 0, 200, 'INCRBY', 'u8', 0, 100));
  show('buffer', await client.getBuffer(key('bits')));
  await attempt('wrong type', client.lpush(key('hash'), 1));
  await client.pfadd(key('hll'), ...range(100));
  show('pfcount', await client.pfcount(key('hll')));
  show('dump and restore', await client.restore(key('copy'), 0, await client.dumpBuffer(key('list'))));
  show('copy', await client.lrange(key('copy'), 0, -1));
}

async function pipelines(client) {
  const pipe = client.pipeline();
  range(200).forEach((n) => pipe.set(key(`p${n}`), n).incrby(key(`p${n}`), 2));
  pipe.lpush(key('p0'), 1).get(key('p199'));
  const answers = await pipe.exec();
  show('pipeline', answers.slice(-6));
  const automatic = mode === 'plain' ? connect(3, { enableAutoPipelining: true }) : client;
  show('automatic pipelines', await Promise.all(range(20).map((n) => automatic.get(key(`p${n}`)))));
}

async function transactions(client, protocol) {
  await client.set(key('tx'), 1);
  show('transaction', await client.multi().incr(key('tx')).incr(key('tx')).get(key('tx')).exec());
  show('with an error', await client.multi().incr(key('tx')).lpush(key('tx'), 1).incr(key('tx')).exec());
  await attempt('refused in the queue', client.multi().set(key('tx'), 5).call('SET', key('tx')).exec());
  const watching = await connectToKeys(protocol);
  show('watch', await watching.watch(key('tx')));
  await client.set(key('tx'), 100);
  show('conflict', await watching.multi().set(key('tx'), 7).exec());
  await watching.watch(key('tx'));
  show('no conflict', await watching.multi().incr(key('tx')).exec());
  await watching.watch(key('tx'));
  await client.incr(key('tx'));
  await watching.unwatch();
  show('unwatched', await watching.multi().incr(key('tx')).exec());
  watching.disconnect();
}

async function scripts(client) {
  show('eval', await client.eval("return {KEYS[1], ARGV[1], 7, {'x', false}, 3.9}", 1, key('s'), 'argument'));
  await attempt('evalsha unknown', client.evalsha('0'.repeat(40), 1, key('s')));
  client.defineCommand('addTo', {
    numberOfKeys: 1,
    lua: "return redis.call('incrby', KEYS[1], ARGV[1])",
  });
  show('defined command', [await client.addTo(key('n'), 5), await client.addTo(key('n'), 6)]);
  show('defined command in a pipeline', await client.pipeline().addTo(key('n'), 1).get(key('n')).exec());
  await attempt('script error', client.eval("return redis.error_reply('MINE is this')", 1, key('s')));
  await attempt('script that raises', client.eval("error('words')", 1, key('s')));
  await attempt('call error', client.eval("return redis.call('lpush', KEYS[1], 1)", 1, key('n')));
  await attempt('pcall error', client.eval("return redis.pcall('lpush', KEYS[1], 1)", 1, key('n')));
  await attempt('eval_ro', client.call('EVAL_RO', "return redis.call('get', KEYS[1])", 1, key('n')));
  show('resp3 in a script', await client.eval("redis.setresp(3); return redis.call('hgetall', KEYS[1])", 1, key('hash')));
}

const LIBRARY = `#!lua name=shop
redis.register_function('buy', function(keys, args)
  return redis.call('HINCRBY', keys[1], args[1], args[2])
end)
redis.register_function{function_name='look', callback=function(keys, args)
  return redis.call('HGET', keys[1], args[1])
end, flags={'no-writes'}}
`;

async function functions(client, protocol) {
  const server = await connectToKeys(protocol);
  show('function load', await server.function('LOAD', 'REPLACE', LIBRARY));
  await attempt('function load again', server.function('LOAD', LIBRARY));
  show('fcall', [await client.fcall('buy', 1, key('shop'), 'pear', 3), await client.fcall('buy', 1, key('shop'), 'pear', 4)]);
  show('fcall_ro', await client.fcall_ro('look', 1, key('shop'), 'pear'));
  await attempt('fcall_ro that writes', client.fcall_ro('buy', 1, key('shop'), 'pear', 1));
  await attempt('unknown function', client.fcall('nothing', 1, key('shop')));
  show('function delete', await server.function('DELETE', 'shop'));
  server.disconnect();
}

async function publications(client, protocol) {
  const subscriber = connect(protocol, mode === 'plain' ? {} : { shardedSubscribers: true });
  const messages = [];
  subscriber.on('message', (channel, text) => messages.push(['message', channel, text]));
  subscriber.on('pmessage', (pattern, channel, text) => messages.push(['pmessage', pattern, channel, text]));
  subscriber.on('smessage', (channel, text) => messages.push(['smessage', channel, text]));
  show('subscribe', await subscriber.subscribe('news', 'sport'));
  show('psubscribe', await subscriber.psubscribe('n*'));
  const counted = (receivers) => (mode === 'plain' ? receivers : null);
  show('publish', [counted(await client.publish('news', 'hello')), counted(await client.publish('sport', 'goal'))]);
  await until('three messages', () => messages.length >= 3);
  show('messages', messages.map(stable).sort());
  show('unsubscribe', await subscriber.unsubscribe('sport'));
  show('punsubscribe', await subscriber.punsubscribe('n*'));
  messages.length = 0;
  await client.publish('sport', 'missed');
  await client.publish('news', 'last');
  await until('a message', () => messages.length >= 1);
  show('only the last', messages);
  messages.length = 0;
  show('ssubscribe', await subscriber.ssubscribe(key('shard')));
  show('spublish', await client.spublish(key('shard'), 'sharded'));
  await until('a sharded message', () => messages.length >= 1);
  show('sharded message', messages);
  show('sunsubscribe', await subscriber.sunsubscribe(key('shard')));
  subscriber.disconnect();
}

async function blocking(client, protocol) {
  const server = await connectToKeys(protocol);
  const blocked = async () => Number((await server.info('clients')).match(/blocked_clients:(\d+)/)[1]);
  const started = Date.now();
  show('blpop of nothing', await client.blpop(key('empty'), 0.3));
  show('it waited', Date.now() - started >= 290);
  const waiting = [];
  for (const n of range(3)) {
    const waiter = await connectToKeys(protocol);
    waiting.push(waiter.blpop(key('queue'), key('queue2'), 20));
    await until('a blocked client more', async () => (await blocked()) === n + 1);
  }
  await client.rpush(key('queue'), 'first');
  await client.rpush(key('queue'), 'second', 'third');
  show('served in the order of their arrival', await Promise.all(waiting));
  const later = async (step, call, then) => {
    const waiter = await connectToKeys(protocol);
    const answer = call(waiter);
    await until('a blocked client', async () => (await blocked()) === 1);
    await then();
    show(step, await answer);
  };
  await later('blmove', (waiter) => waiter.blmove(key('from'), key('to'), 'LEFT', 'RIGHT', 20), () => client.rpush(key('from'), 'moved'));
  await later('bzpopmin', (waiter) => waiter.bzpopmin(key('zq'), 20), () => client.zadd(key('zq'), 2, 'b', 1, 'a'));
  await later('blmpop', (waiter) => waiter.blmpop(20, 2, key('m1'), key('m2'), 'LEFT', 'COUNT', 2), () => client.rpush(key('m2'), 'a', 'b', 'c'));
  server.disconnect();
}

async function streams(client, protocol) {
  for (const n of range(5)) await client.xadd(key('stream'), `${n + 1}-0`, 'n', n + 1);
  await attempt('xadd too small', client.xadd(key('stream'), '1-0', 'n', 9));
  show('xrange', await client.xrange(key('stream'), '2', '3'));
  show('xgroup', await client.xgroup('CREATE', key('stream'), 'g', '0'));
  await attempt('xgroup again', client.xgroup('CREATE', key('stream'), 'g', '0'));
  show('first', await client.xreadgroup('GROUP', 'g', 'alice', 'COUNT', 2, 'STREAMS', key('stream'), '>'));
  show('second', await client.xreadgroup('GROUP', 'g', 'bob', 'COUNT', 2, 'STREAMS', key('stream'), '>'));
  show('xack', await client.xack(key('stream'), 'g', '1-0', '9-9'));
  show('xpending', await client.xpending(key('stream'), 'g'));
  show('xautoclaim', await client.xautoclaim(key('stream'), 'g', 'carol', 0, '0-0', 'COUNT', 2));
  show('own pending', await client.xreadgroup('GROUP', 'g', 'carol', 'STREAMS', key('stream'), '0'));
  show('xinfo groups', await client.xinfo('GROUPS', key('stream')));
  const waiter = await connectToKeys(protocol);
  const server = await connectToKeys(protocol);
  const answer = waiter.xread('BLOCK', PATIENCE_MS, 'STREAMS', key('stream'), '$');
  await until('a blocked reader', async () => /blocked_clients:1\r/.test(await server.info('clients')));
  await client.xadd(key('stream'), '10-1', 'late', 'entry');
  show('blocked reader', await answer);
  show('xtrim', [await client.xtrim(key('stream'), 'MAXLEN', 2), await client.xlen(key('stream'))]);
  server.disconnect();
}

// The invalidations of client-side caching, by the redirection of RESP2.
async function invalidations(client) {
  const subscriber = await connectToKeys(2);
  const reader = await connectToKeys(2);
  const told = [];
  subscriber.on('message', (channel, keys) => told.push([channel, keys]));
  const id = await subscriber.call('CLIENT', 'ID');
  await subscriber.subscribe('__redis__:invalidate');
  await client.set(key('cached'), 'old');
  show('tracking', await reader.call('CLIENT', 'TRACKING', 'ON', 'REDIRECT', id));
  show('read', await reader.get(key('cached')));
  await client.set(key('cached'), 'new');
  await until('an invalidation', () => told.length >= 1);
  show('invalidated', told);
  show('read again', await reader.get(key('cached')));
}

async function main() {
  for (const protocol of [2, 3]) {
    const client = connect(protocol);
    await new Promise((ready) => { client.once('ready', ready); });
    const servers = mode === 'plain' ? [client] : client.nodes('master');
    await Promise.all(servers.map((server) => server.flushall()));
    show('protocol', protocol);
    await values(client);
    await pipelines(client);
    await transactions(client, protocol);
    await scripts(client);
    await functions(client, protocol);
    await publications(client, protocol);
    await blocking(client, protocol);
    await streams(client, protocol);
    await invalidations(client);
    await Promise.all(servers.map((server) => server.flushall()));
  }
  clients.forEach((client) => client.disconnect());
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
