"""redis-py: the plain client, or the cluster client before and after every region's leader has moved.

    redis_py.py plain PORT
    redis_py.py cluster CLUSTER-PORT FORWARD-PORT ADMIN
"""

import sys
import threading

import redis
from redis.cluster import LoadBalancingStrategy, RedisCluster

import leaders

KEYS = 1000


def plain(port, tag=""):
    """With a tag, multi-key commands stay within one slot, as a cluster's forward port wants them."""
    client = redis.Redis(port=port, decode_responses=True)
    client.flushall()
    assert client.ping()
    assert client.set("plain", "1") and client.incr("plain") == 2
    assert client.set("plain", "9", nx=True) is None
    assert client.mset({f"{tag}p:{n}": n for n in range(100)})
    assert client.mget([f"{tag}p:{n}" for n in range(100)]) == [str(n) for n in range(100)]
    assert client.hset("ph", mapping={"a": 1, "b": 2}) == 2
    assert client.hgetall("ph") == {"a": "1", "b": "2"}
    assert client.expire("ph", 100) and 0 < client.ttl("ph") <= 100
    pipe = client.pipeline(transaction=False)
    for n in range(500):
        pipe.set(f"q:{n}", n)
        pipe.get(f"q:{n}")
    assert pipe.execute() == [answer for n in range(500) for answer in (True, str(n))]
    assert sorted(client.scan_iter(f"{tag}p:*", count=10)) == sorted(f"{tag}p:{n}" for n in range(100))
    assert client.dbsize() == 602
    try:
        client.hget("plain", "f")
        raise AssertionError("a string taken for a hash")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE")
    resp3 = redis.Redis(port=port, protocol=3, decode_responses=True)
    assert resp3.hgetall("ph") == {"a": "1", "b": "2"}
    client.flushall()


def cluster(client, name):
    assert len(client.get_primaries()) == 3, client.get_nodes()
    assert client.mset_nonatomic({f"{name}:{n}": n for n in range(KEYS)})
    assert client.mget_nonatomic([f"{name}:{n}" for n in range(KEYS)]) == [str(n) for n in range(KEYS)]
    for n in range(100):
        assert client.set(f"{name}:s{n}", n) and client.get(f"{name}:s{n}") == str(n)
    pipe = client.pipeline()
    for n in range(200):
        pipe.hset(f"{name}:h{n}", "f", n)
        pipe.hget(f"{name}:h{n}", "f")
    assert pipe.execute() == [answer for n in range(200) for answer in (1, str(n))]
    assert client.mget(f"{{{name}}}a", f"{{{name}}}b") == [None, None]
    assert len(set(client.scan_iter(f"{name}:*", count=100))) == KEYS + 300


def while_moving(client, admin):
    """Counts while every leader moves: an acknowledged increment is never lost or repeated."""
    stop = threading.Event()
    done = [0, 0]
    failures = []

    def count():
        try:
            count_on()
        except Exception as error:  # It would end only the thread.
            failures.append(error)

    def count_on():
        while not stop.is_set():
            n = done[0]
            try:
                client.incr(f"moving:{n % 50}")
                done[0] += 1
            except redis.ResponseError as error:
                assert str(error).startswith("UNKNOWN"), error
                done[1] += 1

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    for _ in range(3):
        leaders.rotate(admin)
    stop.set()
    thread.join()
    assert not failures, failures
    total = sum(int(client.get(f"moving:{n}") or 0) for n in range(50))
    assert done[0] > 0 and done[0] <= total <= sum(done), (done, total)
    return done[0]


def main():
    if sys.argv[1] == "plain":
        plain(int(sys.argv[2]))
        print(f"redis-py {redis.__version__}, plain")
        return
    port, forward, admin = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    plain(forward, "{tag}")
    for protocol in (2, 3):
        client = RedisCluster(host="127.0.0.1", port=port, decode_responses=True, protocol=protocol)
        client.flushall()
        cluster(client, f"before{protocol}")
        leaders.rotate(admin)
        cluster(client, f"after{protocol}")
        counted = while_moving(client, admin)
        replicas = RedisCluster(
            host="127.0.0.1",
            port=port,
            load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN,
            decode_responses=True,
        )
        assert replicas.get(f"after{protocol}:1") == "1"
        print(f"redis-py {redis.__version__}, RESP{protocol}: followed every move; {counted} increments meanwhile")


main()
