"""The tasks of celery_queues.py. The port is in the variable PORT."""

import os

import redis
from celery import Celery

URL = f"redis://127.0.0.1:{os.environ['PORT']}/1"
app = Celery("jobs", broker=URL, backend=URL)
app.conf.update(
    broker_transport_options={"priority_steps": [0, 3, 6, 9], "queue_order_strategy": "priority", "visibility_timeout": 30},
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_default_priority=9,
    broker_connection_retry_on_startup=True,
)
counts = redis.Redis(port=int(os.environ["PORT"]), db=2)


@app.task
def done(name):
    counts.hincrby("done", name, 1)
    counts.rpush("order", name)
    return name


@app.task(bind=True, max_retries=2)
def fails(self, name, times):
    tries = counts.hincrby("tries", name, 1)
    if tries <= times:
        raise self.retry(exc=ValueError(f"try {tries}"), countdown=0.1)
    return tries


@app.task
def add(numbers):
    return sum(numbers)


@app.task
def double(number):
    return 2 * number
