// What go-redis gets from a server, a line for each answer, so that two servers can be compared.
// The lines hold nothing that may differ between two runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const patience = 20 * time.Second

// One slot for all keys, as a cluster wants it.
func key(name string) string { return "{go}" + name }

func stable(answer any) string {
	switch value := answer.(type) {
	case nil:
		return "nil"
	case error:
		return "error: " + value.Error()
	case string:
		return fmt.Sprintf("%q", value)
	case map[string]string:
		parts := []string{}
		for name, text := range value {
			parts = append(parts, fmt.Sprintf("%s: %q", name, text))
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case map[any]any:
		parts := []string{}
		for name, item := range value {
			parts = append(parts, fmt.Sprint(name)+": "+stable(item))
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := []string{}
		for _, item := range value {
			parts = append(parts, stable(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return fmt.Sprintf("%+v", value)
	}
}

func show(step string, answer any) { fmt.Printf("%s | %s\n", step, stable(answer)) }

func showResult[T any](step string, answer T, err error) {
	if err != nil {
		show(step, err)
	} else {
		show(step, answer)
	}
}

func until(what string, holds func() bool) {
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			log.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

type scenario struct {
	ctx      context.Context
	isPlain  bool
	protocol int
	address  string
	client   redis.UniversalClient
}

func (s *scenario) connect() redis.UniversalClient {
	if s.isPlain {
		return redis.NewClient(&redis.Options{Addr: s.address, Protocol: s.protocol, ReadTimeout: 2 * patience})
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{s.address}, Protocol: s.protocol, ReadTimeout: 2 * patience,
	})
}

// server returns a client of the server that has the keys, for commands that name no key.
func (s *scenario) server() *redis.Client {
	if s.isPlain {
		return s.client.(*redis.Client)
	}
	server, err := s.client.(*redis.ClusterClient).MasterForKey(s.ctx, key(""))
	check(err)
	return server
}

func (s *scenario) flush() {
	if s.isPlain {
		check(s.client.FlushAll(s.ctx).Err())
		return
	}
	check(s.client.(*redis.ClusterClient).ForEachMaster(s.ctx, func(ctx context.Context, server *redis.Client) error {
		return server.FlushAll(ctx).Err()
	}))
}

func (s *scenario) values() {
	ctx, client := s.ctx, s.client
	check(client.HSet(ctx, key("hash"), "a", 1, "b", "two").Err())
	showResult("hash", client.HGetAll(ctx, key("hash")).Val(), nil)
	check(client.SAdd(ctx, key("set"), "x", "y", "z").Err())
	members := client.SMembers(ctx, key("set")).Val()
	sort.Strings(members)
	show("set", members)
	check(client.ZAdd(ctx, key("zset"), redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2.5, Member: "two"}).Err())
	show("zset", client.ZRangeWithScores(ctx, key("zset"), 0, -1).Val())
	rank, err := client.ZRankWithScore(ctx, key("zset"), "two").Result()
	// Redis 7.2 has it.
	showResult("zrank with the score", rank, err)
	check(client.RPush(ctx, key("list"), 3, 1, 2).Err())
	show("sort", client.Sort(ctx, key("list"), &redis.Sort{Order: "DESC"}).Val())
	check(client.GeoAdd(ctx, key("geo"), &redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556},
		&redis.GeoLocation{Name: "Catania", Longitude: 15.087269, Latitude: 37.502669}).Err())
	show("geodist", client.GeoDist(ctx, key("geo"), "Palermo", "Catania", "km").Val())
	showResult("bitfield", client.BitField(ctx, key("bits"), "SET", "u8", 0, 200, "INCRBY", "u8", 0, 100).Val(), nil)
	show("wrong type", client.LPush(ctx, key("hash"), 1).Err())
	check(client.PFAdd(ctx, key("hll"), "a", "b", "c").Err())
	show("pfcount", client.PFCount(ctx, key("hll")).Val())
	dump := client.Dump(ctx, key("list")).Val()
	show("restore", client.RestoreReplace(ctx, key("copy"), 0, dump).Val())
	show("copy", client.LRange(ctx, key("copy"), 0, -1).Val())
	show("object", client.ObjectEncoding(ctx, key("zset")).Val())
}

func (s *scenario) pipelines() {
	commands, err := s.client.Pipelined(s.ctx, func(pipe redis.Pipeliner) error {
		for n := 0; n < 200; n++ {
			pipe.Set(s.ctx, key(fmt.Sprintf("p%d", n)), n, 0)
			pipe.IncrBy(s.ctx, key(fmt.Sprintf("p%d", n)), 2)
		}
		pipe.LPush(s.ctx, key("p0"), 1)
		pipe.Get(s.ctx, key("p199"))
		return nil
	})
	show("pipeline", err)
	for _, command := range commands[396:] {
		show("pipelined", command.String())
	}
}

func (s *scenario) transactions() {
	ctx, client := s.ctx, s.client
	check(client.Set(ctx, key("tx"), 1, 0).Err())
	answers, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, key("tx"))
		pipe.LPush(ctx, key("tx"), 1)
		pipe.Incr(ctx, key("tx"))
		return nil
	})
	show("transaction", err)
	for _, command := range answers {
		show("of the transaction", command.String())
	}
	tries := 0
	add := func(tx *redis.Tx) error {
		tries++
		value, err := tx.Get(ctx, key("tx")).Int()
		if err != nil {
			return err
		}
		if tries == 1 {
			check(client.Set(ctx, key("tx"), 100, 0).Err())
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, key("tx"), value+1, 0)
			return nil
		})
		return err
	}
	err = client.Watch(ctx, add, key("tx"))
	show("conflict", errors.Is(err, redis.TxFailedErr))
	show("no conflict", client.Watch(ctx, add, key("tx")))
	show("after all", client.Get(ctx, key("tx")).Val())
	_, err = client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, key("tx"), 5, 0)
		pipe.Do(ctx, "SET", key("tx"))
		return nil
	})
	show("refused in the queue", err)
}

func (s *scenario) scripts() {
	ctx, client := s.ctx, s.client
	eval := func(step, text string, arguments ...any) {
		answer, err := client.Eval(ctx, text, []string{key("s")}, arguments...).Result()
		showResult(step, answer, err)
	}
	eval("eval", "return {KEYS[1], ARGV[1], 7, {'x', false}, 3.9}", "argument")
	eval("error", "return redis.error_reply('MINE is this')")
	eval("compile", "return (")
	eval("call error", "return redis.call('hset', KEYS[1])")
	eval("no such command", "return redis.call('nosuch', KEYS[1])")
	eval("cjson", "return cjson.encode({1, 2, {a = 'b'}})")
	eval("map", "redis.setresp(3); redis.call('hset', KEYS[1], 'f', 'v'); return redis.call('hgetall', KEYS[1])")
	eval("double", "return {double = 2.5}")
	script := redis.NewScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	for _, by := range []int{5, 6} {
		answer, err := script.Run(ctx, client, []string{key("n")}, by).Result()
		showResult("script", answer, err)
	}
	show("evalsha unknown", client.EvalSha(ctx, strings.Repeat("0", 40), []string{key("s")}).Err())
	answer, err := client.EvalRO(ctx, "return redis.call('set', KEYS[1], 1)", []string{key("s")}).Result()
	showResult("read only", answer, err)
}

const library = `#!lua name=shop
redis.register_function('buy', function(keys, args)
  return redis.call('HINCRBY', keys[1], args[1], args[2])
end)
redis.register_function{function_name='look', callback=function(keys, args)
  return redis.call('HGET', keys[1], args[1])
end, flags={'no-writes'}}
`

func (s *scenario) functions() {
	ctx, server := s.ctx, s.server()
	loaded, err := server.FunctionLoadReplace(ctx, library).Result()
	showResult("function load", loaded, err)
	show("function load again", server.FunctionLoad(ctx, library).Err())
	for _, by := range []int{3, 4} {
		answer, err := s.client.FCall(ctx, "buy", []string{key("shop")}, "apple", by).Result()
		showResult("fcall", answer, err)
	}
	answer, err := s.client.FCallRo(ctx, "look", []string{key("shop")}, "apple").Result()
	showResult("fcall_ro", answer, err)
	show("fcall_ro that writes", s.client.FCallRo(ctx, "buy", []string{key("shop")}, "apple", 1).Err())
	libraries, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "shop"}).Result()
	check(err)
	functions := libraries[0].Functions
	sort.Slice(functions, func(a, b int) bool { return functions[a].Name < functions[b].Name })
	show("function list", functions)
	showResult("function delete", server.FunctionDelete(ctx, "shop").Val(), nil)
}

func (s *scenario) publications() {
	ctx, client := s.ctx, s.client
	counted := func(receivers int64) any {
		if s.isPlain {
			return receivers
		}
		return nil
	}
	next := func(from *redis.PubSub) string {
		message, err := from.ReceiveTimeout(ctx, patience)
		check(err)
		return fmt.Sprintf("%T %v", message, message)
	}
	subscriber := client.Subscribe(ctx, "news")
	show("subscribed", next(subscriber))
	check(subscriber.PSubscribe(ctx, "n*"))
	show("psubscribed", next(subscriber))
	show("publish", counted(client.Publish(ctx, "news", "hello").Val()))
	messages := []string{next(subscriber), next(subscriber)}
	sort.Strings(messages)
	show("messages", messages)
	check(subscriber.Unsubscribe(ctx, "news"))
	show("unsubscribed", next(subscriber))
	show("publish again", counted(client.Publish(ctx, "news", "again").Val()))
	show("message", next(subscriber))
	check(subscriber.Close())
	sharded := client.SSubscribe(ctx, key("shard"))
	show("ssubscribed", next(sharded))
	show("spublish", client.SPublish(ctx, key("shard"), "to the shard").Val())
	show("sharded message", next(sharded))
	check(sharded.SUnsubscribe(ctx, key("shard")))
	show("sunsubscribed", next(sharded))
	check(sharded.Close())
}

func (s *scenario) blocked() int {
	text := s.server().Info(s.ctx, "clients").Val()
	count := 0
	for _, line := range strings.Split(text, "\r\n") {
		_, _ = fmt.Sscanf(line, "blocked_clients:%d", &count)
	}
	return count
}

func (s *scenario) blocking() {
	ctx, client := s.ctx, s.client
	started := time.Now()
	answer, err := client.BLPop(ctx, time.Second, key("empty")).Result()
	showResult("blpop of nothing", answer, err)
	show("it waited", time.Since(started) >= 990*time.Millisecond)
	var group sync.WaitGroup
	got := make([][]string, 3)
	for n := range got {
		group.Add(1)
		go func() {
			defer group.Done()
			waiter := s.connect()
			defer waiter.Close()
			answer, err := waiter.BLPop(ctx, patience, key("queue"), key("queue2")).Result()
			check(err)
			got[n] = answer
		}()
		until("a blocked client more", func() bool { return s.blocked() == n+1 })
	}
	for _, item := range []string{"first", "second", "third"} {
		check(client.RPush(ctx, key("queue"), item).Err())
	}
	group.Wait()
	show("served in the order of their arrival", got)
	later := func(step string, call func(redis.UniversalClient) string, then func()) {
		answer := make(chan string)
		go func() {
			waiter := s.connect()
			defer waiter.Close()
			answer <- call(waiter)
		}()
		until("a blocked client", func() bool { return s.blocked() == 1 })
		then()
		show(step, <-answer)
	}
	later("blmove", func(waiter redis.UniversalClient) string {
		return waiter.BLMove(ctx, key("from"), key("to"), "LEFT", "RIGHT", patience).String()
	}, func() { check(client.RPush(ctx, key("from"), "moved").Err()) })
	later("bzpopmin", func(waiter redis.UniversalClient) string {
		return fmt.Sprintf("%+v", waiter.BZPopMin(ctx, patience, key("zq")).Val())
	}, func() {
		check(client.ZAdd(ctx, key("zq"), redis.Z{Score: 2, Member: "b"}, redis.Z{Score: 1, Member: "a"}).Err())
	})
	later("blmpop", func(waiter redis.UniversalClient) string {
		return waiter.BLMPop(ctx, patience, "left", 2, key("m1"), key("m2")).String()
	}, func() { check(client.RPush(ctx, key("m2"), "a", "b", "c").Err()) })
}

func (s *scenario) streams() {
	ctx, client := s.ctx, s.client
	for n := 1; n <= 5; n++ {
		check(client.XAdd(ctx, &redis.XAddArgs{Stream: key("stream"), ID: fmt.Sprintf("%d-0", n), Values: []any{"n", n}}).Err())
	}
	show("xadd too small", client.XAdd(ctx, &redis.XAddArgs{Stream: key("stream"), ID: "1-0", Values: []any{"n", 9}}).Err())
	show("xrange", client.XRange(ctx, key("stream"), "2", "3").Val())
	show("xgroup", client.XGroupCreate(ctx, key("stream"), "g", "0").Val())
	show("xgroup again", client.XGroupCreate(ctx, key("stream"), "g", "0").Err())
	read := func(step, consumer, from string) {
		answer, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: "g", Consumer: consumer, Streams: []string{key("stream"), from}, Count: 2, Block: -1,
		}).Result()
		showResult(step, answer, err)
	}
	read("first", "alice", ">")
	read("second", "bob", ">")
	show("xack", client.XAck(ctx, key("stream"), "g", "1-0", "9-9").Val())
	show("xpending", *client.XPending(ctx, key("stream"), "g").Val())
	messages, start, err := client.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: key("stream"), Group: "g", Consumer: "carol", Start: "0-0", Count: 2,
	}).Result()
	check(err)
	show("xautoclaim", []any{messages, start})
	read("own pending", "carol", "0")
	read("the rest", "alice", ">")
	read("nothing more", "alice", ">")
	show("xinfo groups", client.XInfoGroups(ctx, key("stream")).Val())
	show("xinfo stream", client.XInfoStream(ctx, key("stream")).Val().LastGeneratedID)
	answer := make(chan string)
	go func() {
		waiter := s.connect()
		defer waiter.Close()
		answer <- fmt.Sprint(waiter.XRead(ctx, &redis.XReadArgs{Streams: []string{key("stream"), "$"}, Block: patience}).Val())
	}()
	until("a blocked reader", func() bool { return s.blocked() == 1 })
	check(client.XAdd(ctx, &redis.XAddArgs{Stream: key("stream"), ID: "10-1", Values: []any{"late", "entry"}}).Err())
	show("blocked reader", <-answer)
	show("xtrim", client.XTrimMaxLen(ctx, key("stream"), 2).Val())
}

// caching reads with the client's own cache, which the server must invalidate.
func (s *scenario) caching() {
	ctx := s.ctx
	cached := redis.NewClient(&redis.Options{
		Addr: s.server().Options().Addr, Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{},
	})
	defer cached.Close()
	check(s.client.Set(ctx, key("cached"), "old", 0).Err())
	show("first read", cached.Get(ctx, key("cached")).Val())
	before := s.reads()
	for n := 0; n < 10; n++ {
		check(cached.Get(ctx, key("cached")).Err())
	}
	show("ten reads from the cache", s.reads()-before)
	check(s.client.Set(ctx, key("cached"), "new", 0).Err())
	until("the new value", func() bool { return cached.Get(ctx, key("cached")).Val() == "new" })
	show("after another client's write", cached.Get(ctx, key("cached")).Val())
	check(s.client.Del(ctx, key("cached")).Err())
	until("the deletion", func() bool { return cached.Get(ctx, key("cached")).Err() == redis.Nil })
	show("after the deletion", cached.Get(ctx, key("cached")).Err())
}

// reads returns how often the server has executed GET.
func (s *scenario) reads() int {
	count := 0
	for _, line := range strings.Split(s.server().Info(s.ctx, "commandstats").Val(), "\r\n") {
		_, _ = fmt.Sscanf(line, "cmdstat_get:calls=%d,", &count)
	}
	return count
}

func runScenario(mode, port string) {
	for _, protocol := range []int{2, 3} {
		s := scenario{ctx: context.Background(), isPlain: mode == "plain", protocol: protocol, address: "127.0.0.1:" + port}
		s.client = s.connect()
		s.flush()
		show("protocol", protocol)
		s.values()
		s.pipelines()
		s.transactions()
		s.scripts()
		s.functions()
		s.publications()
		s.blocking()
		s.streams()
		if protocol == 3 {
			s.caching()
		}
		s.flush()
		check(s.client.Close())
	}
}
