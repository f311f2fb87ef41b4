// A limiter, a store of sessions and locks, a line for each outcome, so that two servers can be
// compared.
//
//     node node_tools.js PORT
'use strict';

const { promisify } = require('node:util');
const http = require('node:http');
const Redis = require('ioredis');
const session = require('express-session');
const { RedisStore } = require('connect-redis');
const { createClient } = require('redis');
const { RateLimiterRedis } = require('rate-limiter-flexible');
const Redlock = require('redlock');

const port = Number(process.argv[2]);
const range = (count) => Array.from({ length: count }, (_, n) => n);
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const show = (step, answer) => console.log(`${step} | ${JSON.stringify(answer)}`);

// rate-limiter-flexible, whose scripts count the points.
async function limiter() {
  const client = new Redis(port);
  const options = { storeClient: client, keyPrefix: 'limit', points: 25, duration: 60, blockDuration: 0 };
  const limiters = range(4).map(() => new RateLimiterRedis({ ...options, storeClient: new Redis(port) }));
  const outcomes = await Promise.allSettled(range(100).map((n) => limiters[n % 4].consume('visitor')));
  show('of 100 at once are allowed', outcomes.filter((outcome) => outcome.status === 'fulfilled').length);
  const refused = outcomes.filter((outcome) => outcome.status === 'rejected').map((outcome) => outcome.reason);
  show('refused with a time to wait', refused.every((reason) => reason.msBeforeNext > 0 && reason.remainingPoints === 0));
  await limiters[0].reward('visitor', 80);
  show('after a reward', (await limiters[1].consume('visitor')).consumedPoints);
  await limiters[0].penalty('other', 7);
  show('after a penalty', (await limiters[2].get('other')).consumedPoints);
  const short = new RateLimiterRedis({ ...options, points: 2, duration: 1, keyPrefix: 'short' });
  await short.consume('a', 2);
  const early = await short.consume('a').then(() => 'allowed', () => 'refused');
  await sleep(1100);
  const late = await short.consume('a').then(() => 'allowed', () => 'refused');
  show('a second later', [early, late]);
  limiters.forEach((one) => one.client.disconnect());
  client.disconnect();
}

// connect-redis with node-redis and express-session, without a framework around.
async function sessions() {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, RESP: 3 });
  await client.connect();
  const store = new RedisStore({ client, prefix: 'session:', ttl: 100 });
  const middleware = session({ store, secret: 'a test', resave: false, saveUninitialized: true });
  const server = http.createServer((request, response) => middleware(request, response, () => {
    request.session.visits = (request.session.visits ?? 0) + 1;
    if (request.url === '/out') request.session.destroy(() => response.end('out'));
    else response.end(String(request.session.visits));
  }));
  await new Promise((listening) => { server.listen(0, '127.0.0.1', listening); });
  const base = `http://127.0.0.1:${server.address().port}`;
  const cookies = await Promise.all(range(20).map(async () => (await fetch(base)).headers.get('set-cookie').split(';')[0]));
  const visits = [];
  for (const cookie of cookies) {
    for (let n = 0; n < 2; n += 1) visits.push(await (await fetch(base, { headers: { cookie } })).text());
  }
  show('visits', visits);
  show('sessions', [(await promisify(store.length.bind(store))()), (await store.all()).length, (await store.ids()).length]);
  const [id] = await store.ids();
  const ttl = await client.ttl(`session:${id}`);
  show('they expire', ttl > 0 && ttl <= 100);
  show('out', await (await fetch(`${base}/out`, { headers: { cookie: cookies[0] } })).text());
  show('a new session', await (await fetch(base, { headers: { cookie: cookies[0] } })).text());
  await store.destroy(id);
  await store.clear();
  show('after the end', (await store.ids()).length);
  server.close();
  server.closeAllConnections();
  client.destroy();
}

// redlock: a counter that is read and written in two steps.
async function locks() {
  const client = new Redis(port);
  await client.set('counter', 0);
  const count = async () => {
    const own = new Redis(port);
    const locker = new Redlock([own], { retryCount: 2000, retryDelay: 5, retryJitter: 5 });
    for (let n = 0; n < 10; n += 1) {
      const lock = await locker.lock('lock:counter', 10000);
      const value = Number(await own.get('counter'));
      await sleep(1);
      await own.set('counter', value + 1);
      await lock.unlock();
    }
    own.disconnect();
  };
  await Promise.all(range(5).map(count));
  show('counted under a lock', await client.get('counter'));
  const once = new Redlock([client], { retryCount: 0 });
  const held = await once.lock('lock:held', 5000);
  show('held', await once.lock('lock:held', 5000).then(() => 'taken', (error) => error.name));
  const extended = await held.extend(5000);
  await extended.unlock();
  show('free again', await once.lock('lock:held', 5000).then(() => 'taken', (error) => error.name));
  show('unlock of a lost lock', await held.unlock().then(() => 'unlocked', (error) => error.name));
  client.disconnect();
}

async function main() {
  await limiter();
  await sessions();
  await locks();
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
