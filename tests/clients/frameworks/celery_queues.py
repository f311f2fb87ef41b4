"""Tasks of Celery, a line for each outcome, so that two servers can be compared.

    PORT=n celery_queues.py

Results, concurrent workers, retries, countdowns, priorities, groups and chords.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from celery import chain, chord, group
from celery.exceptions import TimeoutError
from celery_jobs import add, app, counts, done, double, fails

PATIENCE_S = 120


def show(step, answer):
    print(f"{step} | {answer}", flush=True)


def workers(concurrency):
    command = [sys.executable, "-m", "celery", "-A", "celery_jobs", "worker", "--pool", "prefork"]
    command += ["--concurrency", str(concurrency), "--loglevel", "ERROR", "--without-mingle", "--without-gossip"]
    return subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def stop(process):
    process.terminate()
    process.wait(timeout=PATIENCE_S)


def main():
    counts.flushall()
    order = [done.apply_async((f"p{priority}",), priority=priority) for priority in (9, 0, 6, 3, 0, 9)]
    process = workers(1)
    for result in order:
        result.get(timeout=PATIENCE_S)
    show("by priority", [name.decode() for name in counts.lrange("order", 0, -1)])
    stop(process)
    process = workers(4)
    results = group(done.s(f"many{n}") for n in range(150))()
    show("results", sorted(results.get(timeout=PATIENCE_S)) == sorted(f"many{n}" for n in range(150)))
    times = counts.hgetall("done")
    show("done", sorted({int(count) for name, count in times.items() if name.startswith(b"many")}))
    outcomes = []
    for times in range(4):
        result = fails.delay(f"fails{times}", times)
        outcomes.append(repr(result.get(timeout=PATIENCE_S, propagate=False)))
    show("outcomes", outcomes)
    show("tries", sorted((name.decode(), int(count)) for name, count in counts.hgetall("tries").items()))
    before = time.monotonic()
    done.apply_async(("later",), countdown=1.5).get(timeout=PATIENCE_S)
    show("the countdown was kept", time.monotonic() - before >= 1.4)
    show("chord", chord((double.s(n) for n in range(20)), add.s())().get(timeout=PATIENCE_S))
    show("chain", chain(double.s(3), double.s(), double.s())().get(timeout=PATIENCE_S))
    never = done.apply_async(("never",), countdown=3600)
    try:
        never.get(timeout=0.5)
        show("never", "done")
    except TimeoutError:
        show("never", never.status)
    never.forget()
    show("ping", [list(answer.values()) for answer in app.control.ping(timeout=5)])
    stop(process)
    counts.flushall()


main()
