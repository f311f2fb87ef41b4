"""Moves every region's leadership to another store, through the admin endpoint.

    leaders.py ADMIN rotate     each region to the next store
    leaders.py ADMIN spread     waits until every store leads some regions
    leaders.py ADMIN leader     prints the store that leads the first region

Ends with an error when the leaders do not move in time.
"""

import json
import sys
import time
import urllib.error
import urllib.request

PATIENCE_S = 30


def ask(admin, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{admin}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def leaders(admin):
    return {row["id"]: row["leader"] for row in ask(admin, "/api/v1/regions") if row["id"] != 0}


def wait_until(what, true):
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"leaders.py: not within {PATIENCE_S} s: {what}")
        time.sleep(0.1)


def spread(admin):
    stores = {row["id"] for row in ask(admin, "/api/v1/stores")}
    wait_until("every store leads some regions", lambda: set(leaders(admin).values()) == stores)


def rotate(admin):
    stores = sorted(row["id"] for row in ask(admin, "/api/v1/stores"))
    wanted = {region: stores[(stores.index(leader) + 1) % len(stores)] for region, leader in leaders(admin).items()}

    def moved():
        # A region that was there counts: placement may move its leader on, to balance the stores.
        now = leaders(admin)
        for region, to in list(wanted.items()):
            if now.get(region) == to:
                del wanted[region]
                continue
            try:
                ask(admin, f"/api/v1/regions/{region}/leader", {"store": to})
            except urllib.error.HTTPError as refused:
                # A move of this region is under way already.
                if refused.code != 409:
                    raise
        return not wanted

    wait_until("every region's leader has been at the next store", moved)


def leader(admin):
    wait_until("the first region has a leader", lambda: all(store is not None for store in leaders(admin).values()))
    print(min(leaders(admin).items())[1])


if __name__ == "__main__":
    {"rotate": rotate, "spread": spread, "leader": leader}[sys.argv[2]](sys.argv[1])
