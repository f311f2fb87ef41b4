// go-redis in cluster mode, before and after every region's leader has moved; or its answers, for
// a comparison of two servers (scenario.go).
//
//	go run . moves CLUSTER-PORT ADMIN PYTHON LEADERS.PY
//	go run . scenario plain|cluster PORT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const keys = 1000

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func expect(what string, holds bool) {
	if !holds {
		log.Fatalf("%s does not hold", what)
	}
}

func work(ctx context.Context, client *redis.ClusterClient, name string) {
	var masters atomic.Int64
	check(client.ForEachMaster(ctx, func(ctx context.Context, store *redis.Client) error {
		masters.Add(1)
		return store.Ping(ctx).Err()
	}))
	expect("three masters", masters.Load() == 3)
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := 0; n < keys; n++ {
			pipe.Set(ctx, fmt.Sprintf("%s:%d", name, n), n, 0)
		}
		return nil
	})
	check(err)
	for n := 0; n < keys; n++ {
		value, err := client.Get(ctx, fmt.Sprintf("%s:%d", name, n)).Int()
		check(err)
		expect("the value written", value == n)
	}
	check(client.HSet(ctx, name+":h", "a", "1", "b", "2").Err())
	hash, err := client.HGetAll(ctx, name+":h").Result()
	check(err)
	expect("the hash written", len(hash) == 2 && hash["b"] == "2")
	check(client.MSet(ctx, "{"+name+"}x", 1, "{"+name+"}y", 2).Err())
}

func main() {
	if os.Args[1] == "scenario" {
		runScenario(os.Args[2], os.Args[3])
		return
	}
	ctx := context.Background()
	port, admin, python, script := os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	rotate := func() {
		said, err := exec.Command(python, script, admin, "rotate").CombinedOutput()
		if err != nil {
			log.Fatalf("%s: %s", err, said)
		}
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:       []string{"127.0.0.1:" + port},
		ReadTimeout: 10 * time.Second,
	})
	defer client.Close()
	work(ctx, client, "go:before")
	rotate()
	work(ctx, client, "go:after")

	var acknowledged, unknown int
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := client.Incr(ctx, fmt.Sprintf("go:moving:%d", acknowledged%50)).Err()
			switch {
			case err == nil:
				acknowledged++
			case strings.HasPrefix(err.Error(), "UNKNOWN"):
				unknown++
			default:
				log.Fatal(err)
			}
		}
	}()
	for round := 0; round < 3; round++ {
		rotate()
	}
	close(stop)
	<-done
	total := 0
	for n := 0; n < 50; n++ {
		count, err := client.Get(ctx, fmt.Sprintf("go:moving:%d", n)).Int()
		if err != redis.Nil {
			check(err)
		}
		total += count
	}
	expect("no increment lost or repeated", acknowledged > 0 && acknowledged <= total && total <= acknowledged+unknown)

	replicas := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:" + port}, ReadOnly: true})
	defer replicas.Close()
	value, err := replicas.Get(ctx, "go:after:1").Result()
	check(err)
	expect("a weak read", value == "1")
	fmt.Printf("go-redis %s: followed every move; %d increments meanwhile\n", redis.Version(), acknowledged)
}
