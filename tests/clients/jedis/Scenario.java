import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.params.XAddParams;
import redis.clients.jedis.params.XAutoClaimParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.params.XReadParams;
import redis.clients.jedis.util.JedisClusterCRC16;

/**
 * What Jedis gets from a server, a line for each answer, so that two servers can be compared.
 *
 * <pre>java Scenario plain|cluster PORT</pre>
 *
 * The lines hold nothing that may differ between two runs. Jedis's own cache wants Redis 7.4.
 */
public final class Scenario {
  private static final double PATIENCE_S = 20;
  private static final String HOST = "127.0.0.1";

  private final boolean isPlain;
  private final int port;
  private final JedisClientConfig config;
  private final UnifiedJedis client;
  private final ExecutorService threads = Executors.newCachedThreadPool();

  private Scenario(boolean isPlain, int port, RedisProtocol protocol) {
    this.isPlain = isPlain;
    this.port = port;
    this.config = DefaultJedisClientConfig.builder()
        .protocol(protocol).socketTimeoutMillis(40_000).blockingSocketTimeoutMillis(40_000).build();
    this.client = isPlain
        ? RedisClient.builder().hostAndPort(HOST, port).clientConfig(config).build()
        : RedisClusterClient.builder().nodes(Collections.singleton(new HostAndPort(HOST, port)))
            .clientConfig(config).build();
  }

  /** One slot for all keys, as a cluster wants it. */
  private static String key(String name) {
    return "{jedis}" + name;
  }

  /** A connection to the server that has the keys, for commands that name no key. */
  private Jedis server() {
    if (isPlain) {
      return new Jedis(new HostAndPort(HOST, port), config);
    }
    int slot = JedisClusterCRC16.getSlot(key(""));
    try (Jedis any = new Jedis(new HostAndPort(HOST, port), config)) {
      for (Object row : any.clusterSlots()) {
        List<?> range = (List<?>) row;
        if ((Long) range.get(0) <= slot && slot <= (Long) range.get(1)) {
          List<?> master = (List<?>) range.get(2);
          return new Jedis(new HostAndPort(HOST, ((Long) master.get(1)).intValue()), config);
        }
      }
    }
    throw new IllegalStateException("no server has the keys");
  }

  private static String stable(Object answer) {
    if (answer instanceof Exception) {
      return answer.getClass().getSimpleName() + ": " + ((Exception) answer).getMessage();
    }
    if (answer instanceof Map) {
      Map<String, String> sorted = new TreeMap<>();
      ((Map<?, ?>) answer).forEach((name, value) -> sorted.put(stable(name), stable(value)));
      return sorted.toString();
    }
    if (answer instanceof Set) {
      List<String> items = new ArrayList<>();
      ((Set<?>) answer).forEach(item -> items.add(stable(item)));
      Collections.sort(items);
      return "set" + items;
    }
    if (answer instanceof Collection) {
      List<String> items = new ArrayList<>();
      ((Collection<?>) answer).forEach(item -> items.add(stable(item)));
      return items.toString();
    }
    if (answer instanceof byte[]) {
      return Arrays.toString((byte[]) answer);
    }
    return String.valueOf(answer);
  }

  private static void show(String step, Object answer) {
    System.out.println(step + " | " + stable(answer));
  }

  private static void attempt(String step, Callable<?> call) throws Exception {
    Object answer;
    try {
      answer = call.call();
    } catch (JedisException error) {
      answer = error;
    }
    show(step, answer);
  }

  private static void until(String what, BooleanSupplier holds) throws InterruptedException {
    long deadline = System.nanoTime() + (long) (PATIENCE_S * 1e9);
    while (!holds.getAsBoolean()) {
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException("not in time: " + what);
      }
      Thread.sleep(10);
    }
  }

  private void values() throws Exception {
    client.hset(key("hash"), Map.of("a", "1", "b", "two"));
    show("hash", client.hgetAll(key("hash")));
    client.sadd(key("set"), "x", "y", "z");
    show("set", client.smembers(key("set")));
    client.zadd(key("zset"), Map.of("one", 1.0, "two", 2.5));
    show("zset", client.zrangeWithScores(key("zset"), 0, -1));
    client.rpush(key("list"), "3", "1", "2");
    show("sort", client.sort(key("list")));
    client.geoadd(key("geo"), 13.361389, 38.115556, "Palermo");
    client.geoadd(key("geo"), 15.087269, 37.502669, "Catania");
    show("geodist", client.geodist(key("geo"), "Palermo", "Catania"));
    show("bitfield", client.bitfield(key("bits"), "SET", "u8", "0", "200", "INCRBY", "u8", "0", "100"));
    attempt("wrong type", () -> client.lpush(key("hash"), "1"));
    show("pfadd", client.pfadd(key("hll"), "a", "b", "c"));
    show("pfcount", client.pfcount(key("hll")));
    show("restore", client.restore(key("copy"), 0, client.dump(key("list"))));
    show("copy", client.lrange(key("copy"), 0, -1));
    show("incrbyfloat", client.incrByFloat(key("float"), 2.5));
    show("lcs", client.set(key("text"), "ohmytext") + client.objectEncoding(key("text")));
  }

  private void pipelines() {
    List<Response<?>> answers = new ArrayList<>();
    try (AbstractPipeline pipe = client.pipelined()) {
      for (int n = 0; n < 200; n++) {
        answers.add(pipe.set(key("p" + n), String.valueOf(n)));
        answers.add(pipe.incrBy(key("p" + n), 2));
      }
      answers.add(pipe.lpush(key("p0"), "1"));
      answers.add(pipe.get(key("p199")));
      pipe.sync();
    }
    for (Response<?> answer : answers.subList(396, 402)) {
      try {
        show("pipelined", answer.get());
      } catch (JedisException error) {
        show("pipelined", error);
      }
    }
  }

  private void transactions() throws Exception {
    client.set(key("tx"), "1");
    // The cluster's client has no transactions.
    try (Jedis server = server(); AbstractTransaction tx = server.multi()) {
      tx.incr(key("tx"));
      tx.lpush(key("tx"), "1");
      tx.incr(key("tx"));
      show("transaction", tx.exec());
    }
    try (Jedis server = server()) {
      server.watch(key("tx"));
      client.set(key("tx"), "100");
      Transaction tx = server.multi();
      tx.set(key("tx"), "7");
      show("conflict", tx.exec());
      server.watch(key("tx"));
      tx = server.multi();
      tx.incr(key("tx"));
      show("no conflict", tx.exec());
      tx = server.multi();
      tx.incr(key("tx"));
      show("discard", tx.discard());
      Transaction refused = server.multi();
      refused.set(key("tx"), "5");
      refused.sendCommand(() -> "SET".getBytes(), key("tx"));
      attempt("refused in the queue", refused::exec);
    }
    show("after all", client.get(key("tx")));
  }

  private void scripts() throws Exception {
    List<String> keys = Collections.singletonList(key("s"));
    List<String> arguments = Collections.singletonList("argument");
    for (String text : new String[] {
      "return {KEYS[1], ARGV[1], 7, {'x', false}, 3.9}",
      "return redis.error_reply('MINE is this')",
      "return redis.call('lpush', KEYS[1])",
      "return (",
      "return cjson.encode({1, 2, {a = 'b'}})",
      "redis.setresp(3); redis.call('hset', KEYS[1], 'f', 'v'); return redis.call('hgetall', KEYS[1])",
      "return redis.call('incr', 'elsewhere')",
    }) {
      if (isPlain || !text.contains("elsewhere")) {
        attempt(text, () -> client.eval(text, keys, arguments));
      }
    }
    String sha = client.scriptLoad("return redis.call('incrby', KEYS[1], ARGV[1])", key("n"));
    show("evalsha", client.evalsha(sha, 1, key("n"), "5"));
    attempt("evalsha unknown", () -> client.evalsha("0".repeat(40), 1, key("n")));
    show("script exists", client.scriptExists(key("n"), sha, "0".repeat(40)));
    attempt("read only", () -> client.evalReadonly("return redis.call('set', KEYS[1], 1)", keys, arguments));
  }

  private static final String LIBRARY = "#!lua name=shop\n"
      + "redis.register_function('buy', function(keys, args)\n"
      + "  return redis.call('HINCRBY', keys[1], args[1], args[2])\n"
      + "end)\n"
      + "redis.register_function{function_name='look', callback=function(keys, args)\n"
      + "  return redis.call('HGET', keys[1], args[1])\n"
      + "end, flags={'no-writes'}}\n";

  private void functions() throws Exception {
    List<String> keys = Collections.singletonList(key("shop"));
    try (Jedis server = server()) {
      show("function load", server.functionLoadReplace(LIBRARY));
      attempt("function load again", () -> server.functionLoad(LIBRARY));
      show("fcall", client.fcall("buy", keys, Arrays.asList("pear", "3")));
      show("fcall again", client.fcall("buy", keys, Arrays.asList("pear", "4")));
      show("fcall_ro", client.fcallReadonly("look", keys, Collections.singletonList("pear")));
      attempt("fcall_ro that writes", () -> client.fcallReadonly("buy", keys, Arrays.asList("pear", "1")));
      attempt("unknown function", () -> client.fcall("nothing", keys, Collections.emptyList()));
      show("function list", server.functionList("shop").get(0).getLibraryName());
      show("function delete", server.functionDelete("shop"));
    }
  }

  private static String next(BlockingQueue<String> messages) throws InterruptedException {
    return messages.poll((long) PATIENCE_S, TimeUnit.SECONDS);
  }

  private void publications() throws Exception {
    BlockingQueue<String> events = new LinkedBlockingQueue<>();
    JedisPubSub listener = new JedisPubSub() {
      @Override public void onMessage(String channel, String text) {
        events.add("message " + channel + " " + text);
      }

      @Override public void onPMessage(String pattern, String channel, String text) {
        events.add("pmessage " + pattern + " " + channel + " " + text);
      }

      @Override public void onSubscribe(String channel, int count) {
        events.add("subscribe " + channel + " " + count);
      }

      @Override public void onPSubscribe(String pattern, int count) {
        events.add("psubscribe " + pattern + " " + count);
      }
    };
    Future<?> subscribed = threads.submit(() -> client.subscribe(listener, "news", "sport"));
    show("subscribed", Arrays.asList(next(events), next(events)));
    listener.psubscribe("n*");
    show("psubscribed", next(events));
    client.publish("news", "hello");
    List<String> both = Arrays.asList(next(events), next(events));
    Collections.sort(both);
    show("messages", both);
    listener.unsubscribe("news");
    client.publish("sport", "goal");
    show("message", next(events));
    listener.unsubscribe();
    listener.punsubscribe();
    subscribed.get();
    JedisShardedPubSub sharded = new JedisShardedPubSub() {
      @Override public void onSMessage(String channel, String text) {
        events.add("smessage " + channel + " " + text);
      }

      @Override public void onSSubscribe(String channel, int count) {
        events.add("ssubscribe " + channel + " " + count);
      }
    };
    if (!isPlain) {
      RedisClusterClient cluster = (RedisClusterClient) client;
      Future<?> shard = threads.submit(() -> cluster.ssubscribe(sharded, key("shard")));
      show("ssubscribed", next(events));
      show("spublish", cluster.spublish(key("shard"), "to the shard"));
      show("sharded message", next(events));
      sharded.sunsubscribe();
      shard.get();
    }
  }

  private static long blocked(Jedis server) {
    for (String line : server.info("clients").split("\r\n")) {
      if (line.startsWith("blocked_clients:")) {
        return Long.parseLong(line.substring("blocked_clients:".length()));
      }
    }
    return -1;
  }

  private void later(Jedis server, String step, Callable<?> call, Runnable then) throws Exception {
    Future<?> answer = threads.submit(call);
    until("a blocked client", () -> blocked(server) == 1);
    then.run();
    show(step, answer.get());
  }

  private void blocking() throws Exception {
    try (Jedis server = server()) {
      long started = System.nanoTime();
      show("blpop of nothing", client.blpop(0.3, key("empty")));
      show("it waited", System.nanoTime() - started >= 290_000_000L);
      List<Future<?>> waiting = new ArrayList<>();
      for (int n = 1; n <= 3; n++) {
        waiting.add(threads.submit(() -> client.blpop(PATIENCE_S, key("queue"), key("queue2"))));
        int count = n;
        until("a blocked client more", () -> blocked(server) == count);
      }
      for (String item : new String[] {"first", "second", "third"}) {
        client.rpush(key("queue"), item);
      }
      for (Future<?> answer : waiting) {
        show("in the order of arrival", answer.get());
      }
      later(server, "blmove",
          () -> client.blmove(key("from"), key("to"), ListDirection.LEFT, ListDirection.RIGHT, PATIENCE_S),
          () -> client.rpush(key("from"), "moved"));
      later(server, "bzpopmin", () -> client.bzpopmin(PATIENCE_S, key("zq")),
          () -> client.zadd(key("zq"), Map.of("b", 2.0, "a", 1.0)));
      later(server, "blmpop", () -> client.blmpop(PATIENCE_S, ListDirection.LEFT, 2, key("m1"), key("m2")),
          () -> client.rpush(key("m2"), "a", "b", "c"));
    }
  }

  private void streams() throws Exception {
    String stream = key("stream");
    for (int n = 1; n <= 5; n++) {
      client.xadd(stream, XAddParams.xAddParams().id(n + "-0"), Map.of("n", String.valueOf(n)));
    }
    attempt("xadd too small", () -> client.xadd(stream, XAddParams.xAddParams().id("1-0"), Map.of("n", "9")));
    show("xrange", client.xrange(stream, "2", "3"));
    show("xgroup", client.xgroupCreate(stream, "g", new StreamEntryID("0-0"), false));
    attempt("xgroup again", () -> client.xgroupCreate(stream, "g", new StreamEntryID("0-0"), false));
    Map<String, StreamEntryID> undelivered = Map.of(stream, StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
    XReadGroupParams two = XReadGroupParams.xReadGroupParams().count(2);
    show("first", client.xreadGroup("g", "alice", two, undelivered));
    show("second", client.xreadGroup("g", "bob", two, undelivered));
    show("xack", client.xack(stream, "g", new StreamEntryID("1-0"), new StreamEntryID("9-9")));
    show("xpending", client.xpending(stream, "g").getTotal());
    show("xautoclaim", client.xautoclaim(stream, "g", "carol", 0, new StreamEntryID("0-0"),
        XAutoClaimParams.xAutoClaimParams().count(2)).getValue());
    show("own pending", client.xreadGroup("g", "carol", two, Map.of(stream, new StreamEntryID("0-0"))));
    show("the rest", client.xreadGroup("g", "alice", two, undelivered));
    show("nothing more", client.xreadGroup("g", "alice", two, undelivered));
    show("xinfo groups", client.xinfoGroups(stream).get(0).getGroupInfo());
    try (Jedis server = server()) {
      later(server, "blocked reader",
          () -> client.xread(XReadParams.xReadParams().block((int) (PATIENCE_S * 1000)),
              Map.of(stream, new StreamEntryID("5-0"))),
          () -> client.xadd(stream, XAddParams.xAddParams().id("10-1"), Map.of("late", "entry")));
    }
    show("xtrim", client.xtrim(stream, 2, false));
  }

  private void run() throws Exception {
    client.flushAll();
    values();
    pipelines();
    transactions();
    scripts();
    functions();
    publications();
    blocking();
    streams();
    client.flushAll();
    client.close();
    threads.shutdown();
  }

  public static void main(String[] arguments) throws Exception {
    for (RedisProtocol protocol : new RedisProtocol[] {RedisProtocol.RESP2, RedisProtocol.RESP3}) {
      show("protocol", protocol);
      new Scenario(arguments[0].equals("plain"), Integer.parseInt(arguments[1]), protocol).run();
    }
  }
}
