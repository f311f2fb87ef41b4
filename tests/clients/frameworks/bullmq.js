// Job queues of BullMQ, a line for each outcome, so that two servers can be compared.
//
//     node bullmq.js plain PORT
//     node bullmq.js cluster PORT
//
// Retries, delays, priorities, concurrent workers, children of jobs, jobs by a schedule.
'use strict';

const Redis = require('ioredis');
const { FlowProducer, Queue, QueueEvents, Worker } = require('bullmq');

const [mode, portText] = process.argv.slice(2);
const port = Number(portText);
const prefix = '{bull}';
const PATIENCE_MS = 60000;
const range = (count) => Array.from({ length: count }, (_, n) => n);
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const show = (step, answer) => console.log(`${step} | ${JSON.stringify(answer)}`);
const opened = [];

function connection() {
  const options = { maxRetriesPerRequest: null };
  const client = mode === 'plain'
    ? new Redis({ host: '127.0.0.1', port, ...options })
    : new Redis.Cluster([{ host: '127.0.0.1', port }], { redisOptions: options });
  opened.push(client);
  return client;
}

const queueOf = (name) => new Queue(name, { connection: connection(), prefix });

async function until(what, holds) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`not within ${PATIENCE_MS} ms: ${what}`);
    await sleep(20);
  }
}

// Every job is done once, by four workers with four jobs at a time each.
async function concurrent() {
  const queue = queueOf('concurrent');
  const done = new Map();
  const work = async (job) => {
    done.set(job.data.n, (done.get(job.data.n) ?? 0) + 1);
    await sleep(1);
    return job.data.n * 2;
  };
  const workers = range(4).map(() => new Worker('concurrent', work, { connection: connection(), prefix, concurrency: 4 }));
  await queue.addBulk(range(300).map((n) => ({ name: 'job', data: { n } })));
  await until('300 jobs', async () => (await queue.getCompletedCount()) === 300);
  const jobs = await queue.getCompleted(0, 400);
  show('jobs', jobs.length);
  show('done exactly once', [...done.values()].every((times) => times === 1) && done.size === 300);
  show('results', jobs.every((job) => job.returnvalue === job.data.n * 2));
  show('counts', await queue.getJobCounts('wait', 'active', 'completed', 'failed', 'delayed'));
  await Promise.all(workers.map((worker) => worker.close()));
  await queue.close();
}

async function retries() {
  const queue = queueOf('retries');
  const tries = {};
  const work = async (job) => {
    tries[job.name] = (tries[job.name] ?? 0) + 1;
    if (tries[job.name] <= job.data.failures) throw new Error(`failure ${tries[job.name]}`);
    return 'done';
  };
  const worker = new Worker('retries', work, { connection: connection(), prefix });
  for (const failures of range(4)) {
    await queue.add(`fails${failures}`, { failures }, { attempts: 3, backoff: { type: 'exponential', delay: 20 } });
  }
  await until('the outcomes', async () => (await queue.getCompletedCount()) === 3 && (await queue.getFailedCount()) === 1);
  show('tries', tries);
  const [failed] = await queue.getFailed();
  show('failed for good', [failed.name, failed.failedReason, failed.attemptsMade]);
  await failed.retry();
  await until('the retry', async () => (await queue.getCompletedCount()) === 4);
  show('after one more try', tries);
  await worker.close();
  await queue.close();
}

async function ordered() {
  const queue = queueOf('ordered');
  await queue.pause();
  for (const n of range(4)) await queue.add(`fifo${n}`, {});
  for (const priority of [3, 1, 2]) await queue.add(`priority${priority}`, {}, { priority });
  await queue.add('lifo', {}, { lifo: true });
  const delayed = await queue.add('delayed', {}, { delay: 500 });
  await queue.add('same', {}, { jobId: 'one-of-a-kind' });
  await queue.add('same', {}, { jobId: 'one-of-a-kind' });
  const order = [];
  let early = false;
  const work = async (job) => {
    order.push(job.name);
    if (job.name === 'delayed' && Date.now() < delayed.timestamp + 500) early = true;
  };
  const worker = new Worker('ordered', work, { connection: connection(), prefix });
  await queue.resume();
  await until('10 jobs', async () => (await queue.getCompletedCount()) === 10);
  show('order', order);
  show('too early', early);
  await worker.close();
  await queue.obliterate({ force: true });
  show('after the deletion', await queue.getJobCounts());
  await queue.close();
}

async function limited() {
  const queue = queueOf('limited');
  const times = [];
  const worker = new Worker('limited', async () => { times.push(Date.now()); }, {
    connection: connection(), prefix, concurrency: 10, limiter: { max: 5, duration: 300 },
  });
  await queue.addBulk(range(15).map((n) => ({ name: `limited${n}`, data: {} })));
  await until('15 jobs', async () => (await queue.getCompletedCount()) === 15);
  show('15 jobs at 5 per 300 ms took long enough', times.at(-1) - times[0] >= 500);
  await worker.close();
  await queue.close();
}

async function families() {
  const flow = new FlowProducer({ connection: connection(), prefix });
  const events = new QueueEvents('parents', { connection: connection(), prefix });
  await events.waitUntilReady();
  const children = new Worker('children', async (job) => job.data.n, { connection: connection(), prefix, concurrency: 3 });
  const parents = new Worker('parents', async (job) => {
    const values = Object.values(await job.getChildrenValues());
    return values.reduce((sum, value) => sum + value, 0);
  }, { connection: connection(), prefix });
  const tree = await flow.add({
    name: 'sum', queueName: 'parents', children: range(10).map((n) => ({ name: `child${n}`, data: { n }, queueName: 'children' })),
  });
  show('sum of the children', await tree.job.waitUntilFinished(events, PATIENCE_MS));
  await Promise.all([children.close(), parents.close(), events.close(), flow.close()]);
}

async function scheduled() {
  const queue = queueOf('scheduled');
  let runs = 0;
  const worker = new Worker('scheduled', async () => { runs += 1; }, { connection: connection(), prefix });
  await queue.upsertJobScheduler('often', { every: 100, limit: 3 }, { name: 'tick' });
  await until('three runs', async () => runs >= 3);
  await sleep(300);
  show('runs', runs);
  await worker.close();
  await queue.close();
}

async function main() {
  for (const step of [concurrent, retries, ordered, limited, families, scheduled]) await step();
  opened.forEach((client) => client.disconnect());
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
