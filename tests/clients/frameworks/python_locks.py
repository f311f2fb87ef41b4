"""Locks of redis-py and python-redis-lock, a line for each outcome, so that two servers can be compared.

    python_locks.py PORT
"""

import sys
import threading
import time

import redis
import redis_lock
from redis.lock import Lock

PORT = int(sys.argv[1])
client = redis.Redis(port=PORT)


def show(step, answer):
    print(f"{step} | {answer}", flush=True)


def count_under(make_lock, step):
    client.set("counter", 0)

    def count():
        own = redis.Redis(port=PORT)
        for _ in range(10):
            with make_lock(own):
                value = int(own.get("counter"))
                time.sleep(0.001)
                own.set("counter", value + 1)

    threads = [threading.Thread(target=count) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    show(step, int(client.get("counter")))


def main():
    client.flushall()
    count_under(lambda own: Lock(own, "lock", timeout=10, sleep=0.005), "redis-py")
    count_under(lambda own: redis_lock.Lock(own, "lock", expire=10), "python-redis-lock")
    count_under(lambda own: redis_lock.Lock(own, "lock", expire=2, auto_renewal=True), "with renewal")
    held = redis_lock.Lock(client, "held", expire=1, auto_renewal=True)
    held.acquire()
    time.sleep(1.5)
    other = redis_lock.Lock(client, "held", expire=5)
    show("held longer than its time", other.acquire(blocking=False))
    show("within a second", other.acquire(timeout=1))
    held.release()
    show("released", other.acquire(blocking=False))
    redis_lock.reset_all(client)
    show("reset", redis_lock.Lock(client, "held").acquire(blocking=False))
    lock = Lock(client, "short", timeout=0.2)
    lock.acquire()
    time.sleep(0.4)
    try:
        lock.release()
        show("release of an expired lock", "released")
    except redis.exceptions.LockError as error:
        show("release of an expired lock", type(error).__name__)
    client.flushall()


main()
