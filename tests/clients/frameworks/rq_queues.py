"""Job queues of RQ, a line for each outcome, so that two servers can be compared.

    rq_queues.py PORT

Queues by priority, concurrent workers, retries, delays, dependencies, callbacks.
"""

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import redis
from rq import Callback, Queue, Repeat, Retry
from rq.job import Dependency
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry

import rq_jobs

PORT = sys.argv[1]
HERE = Path(__file__).parent
PATIENCE_S = 120
client = redis.Redis(port=int(PORT))


def show(step, answer):
    print(f"{step} | {answer}", flush=True)


def worker(*queues, burst=True, scheduler=False):
    command = [sys.executable, "-m", "rq.cli", "worker", *queues, "--url", f"redis://127.0.0.1:{PORT}"]
    command += ["--burst"] * burst + ["--with-scheduler"] * scheduler
    command += ["--worker-class", "rq.SimpleWorker", "--quiet"]
    return subprocess.Popen(command, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(*workers):
    for process in workers:
        _, errors = process.communicate(timeout=PATIENCE_S)
        if process.returncode:
            sys.exit(f"a worker ended with {process.returncode}: {errors.decode()[-2000:]}")


def until(what, true):
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.02)


def names(key):
    return [each.decode() for each in client.lrange(key, 0, -1)]


def by_priority():
    for name in ("low", "default", "high"):
        queue = Queue(name, connection=client)
        for n in range(5):
            queue.enqueue(rq_jobs.done, f"{name}{n}")
    Queue("default", connection=client).enqueue(rq_jobs.done, "first", at_front=True)
    finish(worker("high", "default", "low"))
    show("order", names("rq:order"))
    client.delete("rq:order", "rq:done")


def concurrently():
    queue = Queue("many", connection=client)
    with client.pipeline() as pipe:
        for n in range(200):
            queue.enqueue(rq_jobs.done, f"many{n}", pipeline=pipe)
        pipe.execute()
    show("queued", len(queue))
    finish(*[worker("many") for _ in range(4)])
    counts = client.hgetall("rq:done")
    show("done", [len(counts), set(int(count) for count in counts.values())])
    show("finished", len(FinishedJobRegistry(queue=queue)))
    client.delete("rq:order", "rq:done")


def retried():
    queue = Queue("retried", connection=client)
    for times in range(4):
        queue.enqueue(rq_jobs.fails, f"fails{times}", times, retry=Retry(max=2), job_id=f"fails{times}")
    finish(worker("retried"))
    tries = client.hgetall("rq:tries")
    show("tries", sorted((name.decode(), int(count)) for name, count in tries.items()))
    failed = FailedJobRegistry(queue=queue)
    show("failed for good", failed.get_job_ids())
    failed.requeue("fails3")
    finish(worker("retried"))
    show("after one more try", [int(client.hget("rq:tries", "fails3")), len(failed)])


def dependent():
    queue = Queue("dependent", connection=client)
    first = queue.enqueue(rq_jobs.done, "first")
    second = queue.enqueue(rq_jobs.done, "second")
    third = queue.enqueue(
        rq_jobs.done, "third", depends_on=Dependency([first, second]), on_success=Callback(rq_jobs.noted), job_id="third"
    )
    finish(worker("dependent"))
    show("dependencies", [names("rq:order"), third.get_status(refresh=True).value, third.return_value()])
    show("callback", names("rq:noted"))
    client.delete("rq:order")


def delayed():
    queue = Queue("delayed", connection=client)
    queue.enqueue_in(timedelta(seconds=2), rq_jobs.done, "later")
    queue.enqueue_in(timedelta(hours=1), rq_jobs.done, "much later", job_id="much-later")
    queue.enqueue(rq_jobs.done, "now")
    queue.enqueue(rq_jobs.done, "repeated", repeat=Repeat(times=2, interval=1))
    process = worker("delayed", burst=False, scheduler=True)
    until("five jobs", lambda: client.llen("rq:order") >= 5)
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    counts = {name.decode(): int(count) for name, count in client.hgetall("rq:done").items()}
    show("counts", [counts["now"], counts["later"], counts["repeated"], "much later" in counts])
    show("still scheduled", ScheduledJobRegistry(queue=queue).get_job_ids())


def main():
    client.flushall()
    for step in (by_priority, concurrently, retried, dependent, delayed):
        step()
    client.flushall()


main()
