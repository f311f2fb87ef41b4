// A queue of BullMQ while the store that leads its region is killed.
//
//     node bullmq_killed.js PORT PID
//
// PORT is that of a store that follows, PID is the process of the one that leads. What must hold, as
// for a failover of Redis without loss:
// - a job whose addition was acknowledged is completed, and so is one whose addition failed and was
//   repeated with its own id;
// - a job is in the list of completed ones once;
// - a job may be executed again: the answer to its worker's last command was UNKNOWN, which BullMQ
//   takes for a failed attempt, or the worker's lock of the job ran out while no store led. So jobs
//   need more than one attempt.
'use strict';

const assert = require('node:assert/strict');
const Redis = require('ioredis');
const { Queue, Worker } = require('bullmq');

const [port, pid] = process.argv.slice(2).map(Number);
const prefix = '{killed}';
const JOBS = 600;
const KILL_AFTER = 150;
const PATIENCE_MS = 90000;
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const connection = () => new Redis({ host: '127.0.0.1', port, maxRetriesPerRequest: null });

async function main() {
  const queue = new Queue('jobs', { connection: connection(), prefix });
  const executions = new Map();
  const errors = { additions: 0, workers: 0 };
  queue.on('error', () => {});
  const work = async (job) => {
    executions.set(job.id, (executions.get(job.id) ?? 0) + 1);
    await sleep(2);
    return job.data.n;
  };
  const workers = Array.from({ length: 3 }, () => new Worker('jobs', work, {
    connection: connection(), prefix, concurrency: 3, lockDuration: 3000, stalledInterval: 1000, maxStalledCount: 100,
  }));
  workers.forEach((worker) => worker.on('error', () => { errors.workers += 1; }));
  const adding = (async () => {
    for (let n = 0; n < JOBS; n += 1) {
      for (;;) {
        try {
          await queue.add('job', { n }, { jobId: `job-${n}`, attempts: 10 });
          break;
        } catch (error) {
          errors.additions += 1;
          await sleep(50);
        }
      }
    }
  })();
  const deadline = Date.now() + PATIENCE_MS;
  const until = async (what, holds) => {
    for (;;) {
      // The answer to a question may also be an error while no store leads.
      if (await holds().catch(() => false)) return;
      assert.ok(Date.now() < deadline, `not within ${PATIENCE_MS} ms: ${what}`);
      await sleep(20);
    }
  };
  await until('the first jobs', async () => (await queue.getCompletedCount()) >= KILL_AFTER);
  process.kill(pid, 'SIGKILL');
  const killed = Date.now();
  const before = await queue.getCompletedCount().catch(() => KILL_AFTER);
  await until('progress after the kill', async () => (await queue.getCompletedCount()) > before + 10);
  const pause = Date.now() - killed;
  await adding;
  await until('all jobs', async () => (await queue.getCompletedCount()) === JOBS);
  const jobs = await queue.getCompleted(0, 2 * JOBS);
  assert.equal(new Set(jobs.map((job) => job.id)).size, JOBS);
  assert.ok(jobs.every((job) => Number(job.returnvalue) === job.data.n));
  assert.deepEqual(await queue.getJobCounts('wait', 'active', 'failed', 'delayed'), { wait: 0, active: 0, failed: 0, delayed: 0 });
  assert.equal(executions.size, JOBS);
  const again = [...executions.values()].filter((times) => times > 1).length;
  // Nine jobs are at work at a time.
  assert.ok(again <= 18, `${again} jobs were executed again`);
  console.log(`BullMQ while the leader is killed: ${JOBS} of ${JOBS} jobs completed, ${again} executed again, `
    + `${errors.additions} additions repeated, ${errors.workers} errors of workers, progress after ${pause} ms`);
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
