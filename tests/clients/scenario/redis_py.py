"""What redis-py gets from a server, a line for each answer, so that two servers can be compared.

    redis_py.py plain PORT
    redis_py.py cluster PORT

The lines hold nothing that may differ between two runs: no times, no order that Redis leaves open.
"""

import sys
import threading
import time

import redis
from redis.cluster import RedisCluster

MODE, PORT = sys.argv[1], int(sys.argv[2])
# One slot for all keys of a step, as a cluster wants it.
TAG = "{py}"
PATIENCE_S = 20


def connect(**options):
    options = {"socket_timeout": 2 * PATIENCE_S, **options}
    if MODE == "plain":
        return redis.Redis(port=PORT, decode_responses=True, **options)
    return RedisCluster(host="127.0.0.1", port=PORT, decode_responses=True, **options)


def stable(answer):
    """An answer as text: exceptions by their words, maps and sets in order."""
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    if isinstance(answer, dict):
        return "{" + ", ".join(f"{key}: {stable(answer[key])}" for key in sorted(answer, key=str)) + "}"
    if isinstance(answer, (set, frozenset)):
        return "set" + stable(sorted(answer))
    if isinstance(answer, (list, tuple)):
        return "[" + ", ".join(stable(item) for item in answer) + "]"
    return repr(answer)


def show(step, answer):
    print(f"{step} | {stable(answer)}", flush=True)


def attempt(step, call, *arguments, **options):
    try:
        show(step, call(*arguments, **options))
    except redis.RedisError as error:
        show(step, error)


def until(what, true):
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.01)


def key(name):
    return TAG + name


def values(client, step):
    client.hset(key("hash"), mapping={"a": 1, "b": "two"})
    show(f"{step} hash", client.hgetall(key("hash")))
    client.sadd(key("set"), "x", "y", "z")
    show(f"{step} set", client.smembers(key("set")))
    client.zadd(key("zset"), {"one": 1, "two": 2.5, "inf": float("inf")})
    show(f"{step} zset", client.zrange(key("zset"), 0, -1, withscores=True))
    show(f"{step} zscore", client.zscore(key("zset"), "two"))
    client.rpush(key("list"), 3, 1, 2)
    show(f"{step} sort", client.sort(key("list"), desc=True))
    show(f"{step} lpos", client.lpos(key("list"), 1))
    client.geoadd(key("geo"), [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"])
    show(f"{step} geo", client.geosearch(key("geo"), longitude=15, latitude=37, radius=200, unit="km", sort="ASC"))
    client.pfadd(key("hll"), *range(100))
    show(f"{step} pfcount", client.pfcount(key("hll")))
    show(f"{step} bitfield", client.bitfield(key("bits")).set("u8", 0, 200).incrby("u8", 0, 100).get("u4", 4).execute())
    attempt(f"{step} wrong type", client.lpush, key("hash"), 1)
    show(f"{step} expire", [client.expire(key("hash"), 100), 0 < client.ttl(key("hash")) <= 100])
    show(f"{step} copy", client.copy(key("list"), key("list2")))
    show(f"{step} object", client.object("encoding", key("zset")))
    show(f"{step} scan", sorted(client.scan_iter(key("*"), count=3)))


def pipelines(client):
    pipe = client.pipeline(transaction=False)
    for n in range(200):
        pipe.set(key(f"p{n}"), n)
        pipe.incrby(key(f"p{n}"), 2)
    pipe.lpush(key("p0"), 1)
    pipe.get(key("p199"))
    show("pipeline", pipe.execute(raise_on_error=False)[-6:])
    attempt("pipeline that raises", lambda: client.pipeline(transaction=False).lpush(key("p0"), 1).execute())


def transactions(client, other):
    client.set(key("tx"), 1)
    pipe = client.pipeline(transaction=True)
    pipe.incr(key("tx")).incr(key("tx")).get(key("tx"))
    show("transaction", pipe.execute())
    pipe = client.pipeline(transaction=True)
    pipe.incr(key("tx")).lpush(key("tx"), 1).incr(key("tx"))
    show("transaction with an error", pipe.execute(raise_on_error=False))
    pipe = client.pipeline(transaction=True)
    pipe.watch(key("tx"))
    before = int(pipe.get(key("tx")))
    other.set(key("tx"), 100)
    pipe.multi()
    pipe.set(key("tx"), before + 1)
    attempt("conflict", pipe.execute)
    pipe.reset()
    show("after the conflict", client.get(key("tx")))

    def double(pipe):
        value = int(pipe.get(key("tx")))
        pipe.multi()
        pipe.set(key("tx"), 2 * value)

    if MODE == "plain":
        show("transaction()", client.transaction(double, key("tx")))
    pipe = client.pipeline(transaction=True)
    pipe.set(key("tx"), 5).execute_command("SET", key("tx"))
    attempt("refused in the queue", pipe.execute)
    show("after all", client.get(key("tx")))


def scripts(client):
    show("eval", client.eval("return {KEYS[1], ARGV[1], 7, {'x', false}, 3.9}", 1, key("s"), "argument"))
    show("eval writes", client.eval("redis.call('set', KEYS[1], ARGV[1]); return redis.call('get', KEYS[1])", 1, key("s"), "v"))
    attempt("evalsha unknown", client.evalsha, "0" * 40, 1, key("s"))
    script = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    show("script", [script(keys=[key("n")], args=[5], client=client), script(keys=[key("n")], args=[6], client=client)])
    show("script exists", client.script_exists(script.sha, "0" * 40))
    attempt("script error", client.eval, "return redis.error_reply('MINE is this')", 1, key("s"))
    attempt("script call error", client.eval, "return redis.call('incr', KEYS[1])", 1, key("s"))
    attempt("script does not compile", client.eval, "return (", 1, key("s"))
    attempt("script that raises", client.eval, "error({err = 'OWN words'})", 1, key("s"))
    attempt("read only", client.eval_ro, "return redis.call('set', KEYS[1], 1)", 1, key("s"))
    show("cjson", client.eval("return cjson.encode({1, 2, {a = 'b'}})", 1, key("s")))
    show("cmsgpack", client.eval("return cmsgpack.unpack(cmsgpack.pack({5, 'six'}))", 1, key("s")))
    show("many keys", client.eval("local n = 0 for _, k in ipairs(KEYS) do n = n + #k end return n", 3, key("a"), key("b"), key("c")))


LIBRARY = """#!lua name=shop
redis.register_function('buy', function(keys, args)
  return redis.call('HINCRBY', keys[1], args[1], args[2])
end)
redis.register_function{function_name='look', callback=function(keys, args)
  return redis.call('HGET', keys[1], args[1])
end, flags={'no-writes'}}
"""


def functions(client):
    # The cluster client asks every server, and Steelyard's libraries belong to the whole cluster.
    server = client if MODE == "plain" else client.get_redis_connection(client.get_node_from_key(key("")))
    show("function load", server.function_load(LIBRARY, replace=True))
    attempt("function load again", server.function_load, LIBRARY)
    attempt("function load broken", server.function_load, "#!lua name=broken\nreturn (")
    show("fcall", client.fcall("buy", 1, key("shop"), "apple", 3))
    show("fcall again", client.fcall("buy", 1, key("shop"), "apple", 4))
    show("fcall_ro", client.fcall_ro("look", 1, key("shop"), "apple"))
    attempt("fcall_ro that writes", client.fcall_ro, "buy", 1, key("shop"), "apple", 1)
    attempt("fcall unknown", client.fcall, "nothing", 1, key("shop"))
    attempt("function delete", server.function_delete, "shop")


def received(pubsub, count):
    messages = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count and time.monotonic() < deadline:
        message = pubsub.get_message(timeout=0.1)
        if message:
            messages.append(message)
    return [[m["type"], m["pattern"], m["channel"], m["data"]] for m in messages]


def sharded(pubsub, count):
    messages = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count and time.monotonic() < deadline:
        get = pubsub.get_sharded_message if MODE == "cluster" else pubsub.get_message
        message = get(timeout=0.1)
        if message:
            messages.append(message)
    return [[m["type"], m["pattern"], m["channel"], m["data"]] for m in messages]


def publish(client, receivers_counted, channel, message):
    receivers = client.publish(channel, message)
    # A cluster counts the receivers at one of its servers.
    return receivers if receivers_counted else None


def publications(client):
    counted = MODE == "plain"
    pubsub = client.pubsub()
    pubsub.subscribe("news", "sport")
    show("subscribe", sorted(received(pubsub, 2)))
    pubsub.psubscribe("n*")
    show("psubscribe", received(pubsub, 1))
    show("publish", [publish(client, counted, "news", "hello"), publish(client, counted, "none", "nobody"), publish(client, counted, "sport", "goal")])
    show("messages", sorted(received(pubsub, 4), key=str))
    pubsub.unsubscribe("sport")
    show("unsubscribe", received(pubsub, 1))
    show("publish again", publish(client, counted, "sport", "missed"))
    pubsub.close()
    pubsub = client.pubsub()
    pubsub.ssubscribe(key("shard"))
    show("ssubscribe", sharded(pubsub, 1))
    show("spublish", client.spublish(key("shard"), "to the shard"))
    show("sharded message", sharded(pubsub, 1))
    pubsub.sunsubscribe(key("shard"))
    show("sunsubscribe", sharded(pubsub, 1))
    show("spublish to nobody", client.spublish(key("shard"), "again"))
    pubsub.close()


def blocked_sum(client):
    if MODE == "plain":
        return client.info("clients")["blocked_clients"]
    return sum(each["blocked_clients"] for each in client.info("clients", target_nodes=RedisCluster.PRIMARIES).values())


def blocking(client):
    started = time.monotonic()
    show("blpop of nothing", client.blpop([key("empty")], timeout=0.3))
    show("it waited", 0.29 <= time.monotonic() - started < 10)
    results, threads = {}, []
    info = connect()

    def wait(name):
        results[name] = connect().blpop([key("queue"), key("queue2")], timeout=PATIENCE_S)

    for n in range(3):
        threads.append(threading.Thread(target=wait, args=(n,)))
        threads[-1].start()
        until("blocked clients", lambda: blocked_sum(info) == n + 1)
    for n in range(3):
        client.rpush(key("queue"), f"item{n}")
    for thread in threads:
        thread.join()
    show("served in the order of their arrival", results)

    def later(call, *arguments):
        result = []
        thread = threading.Thread(target=lambda: result.append(call(*arguments)))
        thread.start()
        until("a blocked client", lambda: blocked_sum(info) == 1)
        return thread, result

    thread, result = later(lambda: connect().blmove(key("from"), key("to"), PATIENCE_S, "LEFT", "RIGHT"))
    client.rpush(key("from"), "moved")
    thread.join()
    show("blmove", [result, client.lrange(key("to"), 0, -1)])
    thread, result = later(lambda: connect().bzpopmin([key("zq")], PATIENCE_S))
    client.zadd(key("zq"), {"second": 2, "first": 1})
    thread.join()
    show("bzpopmin", [result, client.zcard(key("zq"))])
    thread, result = later(lambda: connect().blmpop(PATIENCE_S, 2, key("m1"), key("m2"), direction="LEFT", count=2))
    client.rpush(key("m2"), "a", "b", "c")
    thread.join()
    show("blmpop", [result, client.llen(key("m2"))])


def streams(client):
    for n in range(1, 6):
        client.xadd(key("stream"), {"n": n, "text": f"t{n}"}, id=f"{n}-0")
    attempt("xadd too small", client.xadd, key("stream"), {"n": 9}, id="1-0")
    show("xrange", client.xrange(key("stream"), "2", "3"))
    show("xgroup", client.xgroup_create(key("stream"), "g", id="0"))
    attempt("xgroup again", client.xgroup_create, key("stream"), "g")
    show("first", client.xreadgroup("g", "alice", {key("stream"): ">"}, count=2))
    show("second", client.xreadgroup("g", "bob", {key("stream"): ">"}, count=2))
    show("xack", client.xack(key("stream"), "g", "1-0", "9-9"))
    show("xpending", client.xpending(key("stream"), "g"))
    rows = client.xpending_range(key("stream"), "g", "-", "+", 10)
    show("pending of each", [[row["message_id"], row["consumer"], row["times_delivered"]] for row in rows])
    show("xautoclaim", client.xautoclaim(key("stream"), "g", "carol", 0, start_id="0-0", count=2))
    show("xclaim", client.xclaim(key("stream"), "g", "dave", 0, ["4-0"]))
    show("own pending", client.xreadgroup("g", "carol", {key("stream"): "0"}))
    show("the rest", client.xreadgroup("g", "alice", {key("stream"): ">"}))
    show("nothing more", client.xreadgroup("g", "alice", {key("stream"): ">"}, block=100))
    info = client.xinfo_groups(key("stream"))
    show("xinfo groups", info)
    consumers = client.xinfo_consumers(key("stream"), "g")
    show("xinfo consumers", sorted([row["name"], row["pending"]] for row in consumers))
    got = []
    thread = threading.Thread(target=lambda: got.append(connect().xread({key("stream"): "$"}, block=PATIENCE_S * 1000)))
    thread.start()
    watcher = connect()
    until("a blocked reader", lambda: blocked_sum(watcher) == 1)
    client.xadd(key("stream"), {"late": "entry"}, id="10-1")
    thread.join()
    show("blocked reader", got)
    show("xtrim", [client.xtrim(key("stream"), maxlen=2, approximate=False), client.xlen(key("stream"))])
    show("xgroup destroy", client.xgroup_destroy(key("stream"), "g"))


def invalidations():
    """Pushes of RESP3 that name changed keys. The client's own cache wants Redis 7.4."""
    client = redis.Redis(port=PORT, decode_responses=True, protocol=3, single_connection_client=True)
    other = connect()
    pushed = []
    client.connection._parser.set_invalidation_push_handler(lambda message: pushed.append(message))

    def next_push():
        pushed.clear()

        def arrived():
            client.ping()
            return pushed

        until("an invalidation", arrived)
        return pushed[0]

    other.set(key("cached"), "old")
    show("tracking", client.client_tracking_on())
    show("read", client.get(key("cached")))
    other.set(key("cached"), "new")
    show("invalidated", next_push())
    show("read again", client.get(key("cached")))
    other.delete(key("cached"))
    show("invalidated by a deletion", next_push())
    show("tracking off", client.client_tracking_off())
    show("tracking of a prefix", client.client_tracking_on(prefix=[key("ca")], bcast=True))
    other.mset({key("other"): 1, key("cat"): 2})
    show("invalidated by its prefix", next_push())
    client.close()


def main():
    for protocol in (2, 3):
        client = connect(protocol=protocol)
        client.flushall()
        show("protocol", protocol)
        values(client, "values")
        pipelines(client)
        transactions(client, connect())
        scripts(client)
        functions(client)
        publications(client)
        blocking(client)
        streams(client)
        client.flushall()
        client.close()
    if MODE == "plain":
        invalidations()
    connect().flushall()


main()
