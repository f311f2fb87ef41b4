// Judges again, with Porcupine, the histories that the fault tests wrote and have judged already.
//
//	go run . DIR
//
// DIR holds files of one history a line, as crates/faults writes them. The two checkers must agree on each,
// the bad ones that were made on purpose included.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// call is one of write, read, increment and append, as serde writes an enum.
type call struct {
	Write     [][2]json.RawMessage `json:"write"`
	Read      []int                `json:"read"`
	Increment *int                 `json:"increment"`
	Append    [2]json.RawMessage   `json:"append"`
}

type answer struct {
	written bool
	Values  []*string `json:"values"`
	Number  *int64    `json:"number"`
	Length  *uint64   `json:"length"`
}

func (a *answer) UnmarshalJSON(text []byte) error {
	if string(text) == `"written"` {
		a.written = true
		return nil
	}
	type plain answer
	return json.Unmarshal(text, (*plain)(a))
}

type operation struct {
	Client int64 `json:"client"`
	Call   call  `json:"call"`
	Began  int64 `json:"began"`
	// Nothing, or when it ended and with what.
	Ended []json.RawMessage `json:"ended"`
}

type history struct {
	Object       string      `json:"object"`
	Linearizable bool        `json:"linearizable"`
	Operations   []operation `json:"operations"`
}

func (c call) isRead() bool { return c.Read != nil }

// A value that is absent differs from an empty one.
func parse(state string) []*string {
	var values []*string
	must(json.Unmarshal([]byte(state), &values))
	return values
}

func render(values []*string) string {
	text, err := json.Marshal(values)
	must(err)
	return string(text)
}

func with(values []*string, member int, value string) []*string {
	next := append([]*string{}, values...)
	for len(next) <= member {
		next = append(next, nil)
	}
	next[member] = &value
	return next
}

func at(values []*string, member int) *string {
	if member < len(values) {
		return values[member]
	}
	return nil
}

func pair(raw [2]json.RawMessage) (member int, value string) {
	must(json.Unmarshal(raw[0], &member))
	must(json.Unmarshal(raw[1], &value))
	return member, value
}

// step is the group of keys by itself. An output of nil is one that nobody has seen.
func step(state, input, output any) (bool, any) {
	values, c := parse(state.(string)), input.(call)
	seen, _ := output.(*answer)
	switch {
	case c.isRead():
		if seen == nil {
			return true, state
		}
		if len(seen.Values) != len(c.Read) {
			return false, state
		}
		for i, member := range c.Read {
			held, told := at(values, member), seen.Values[i]
			if (held == nil) != (told == nil) || (held != nil && *held != *told) {
				return false, state
			}
		}
		return true, state
	case c.Write != nil:
		for _, raw := range c.Write {
			member, value := pair(raw)
			values = with(values, member, value)
		}
		return seen == nil || seen.written, render(values)
	case c.Increment != nil:
		number := int64(0)
		if held := at(values, *c.Increment); held != nil {
			parsed, err := strconv.ParseInt(*held, 10, 64)
			if err != nil {
				return false, state
			}
			number = parsed
		}
		if number == math.MaxInt64 {
			return false, state
		}
		number++
		right := seen == nil || (seen.Number != nil && *seen.Number == number)
		return right, render(with(values, *c.Increment, strconv.FormatInt(number, 10)))
	default:
		member, text := pair(c.Append)
		whole := text
		if held := at(values, member); held != nil {
			whole = *held + text
		}
		right := seen == nil || (seen.Length != nil && *seen.Length == uint64(len(whole)))
		return right, render(with(values, member, whole))
	}
}

var model = porcupine.Model{Init: func() any { return "[]" }, Step: step}

// operations gives an operation that never ended an end after all others: then it either was the last, which
// nobody sees, or took effect before.
func operations(of history) []porcupine.Operation {
	var made []porcupine.Operation
	for _, o := range of.Operations {
		next := porcupine.Operation{Input: o.Call, Call: o.Began, Return: math.MaxInt64, Output: (*answer)(nil)}
		if len(o.Ended) == 2 {
			seen := new(answer)
			must(json.Unmarshal(o.Ended[0], &next.Return))
			must(json.Unmarshal(o.Ended[1], seen))
			next.Output = seen
		} else if o.Call.isRead() {
			continue
		}
		made = append(made, next)
	}
	return made
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "porcupine:", err)
		os.Exit(2)
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: porcupine DIR")
		os.Exit(2)
	}
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.jsonl"))
	must(err)
	judged, bad, undecided, differ := 0, 0, 0, 0
	for _, name := range files {
		file, err := os.Open(name)
		must(err)
		lines := bufio.NewReaderSize(file, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			if strings.TrimSpace(line) == "" {
				break
			}
			var one history
			must(json.Unmarshal([]byte(line), &one))
			verdict := porcupine.CheckOperationsTimeout(model, operations(one), time.Minute)
			judged++
			if !one.Linearizable {
				bad++
			}
			switch {
			case verdict == porcupine.Unknown:
				undecided++
				fmt.Printf("%s: %s: undecided\n", filepath.Base(name), one.Object)
			case (verdict == porcupine.Ok) != one.Linearizable:
				differ++
				fmt.Printf("%s: %s: judged %v, Porcupine says %v\n", filepath.Base(name), one.Object, one.Linearizable, verdict)
			}
			if err != nil {
				break
			}
		}
		must(file.Close())
	}
	fmt.Printf("%d histories judged again: %d bad ones among them, %d undecided, %d judged differently\n", judged, bad, undecided, differ)
	if judged == 0 || undecided+differ > 0 {
		os.Exit(1)
	}
}
