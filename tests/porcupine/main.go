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

// maxMembers is the number of keys that a group may have.
const maxMembers = 8

// value is a key's value. A value that is absent differs from an empty one.
type value struct {
	exists bool
	text   string
}

// group holds the values of a group of keys, and how many increments without an answer took effect on each.
// Go compares it by its content.
type group struct {
	values     [maxMembers]value
	unanswered [maxMembers]int
}

// assignment is a member of the group with its new value, or with the text to append.
type assignment struct {
	member int
	text   string
}

// input is a call whose members and texts are decoded once, before the search.
type input struct {
	write     []assignment
	read      []int
	increment *int
	// rank is the increment's position among those of its member without an answer, see narrow.
	rank   int
	append assignment
}

func decode(c call) input {
	made := input{read: c.Read, increment: c.Increment}
	for _, raw := range c.Write {
		made.write = append(made.write, decodeAssignment(raw))
	}
	if c.Append[0] != nil {
		made.append = decodeAssignment(c.Append)
	}
	for _, member := range c.Read {
		checkMember(member)
	}
	if c.Increment != nil {
		checkMember(*c.Increment)
	}
	return made
}

func decodeAssignment(raw [2]json.RawMessage) (made assignment) {
	must(json.Unmarshal(raw[0], &made.member))
	must(json.Unmarshal(raw[1], &made.text))
	checkMember(made.member)
	return made
}

func checkMember(member int) {
	if member < 0 || member >= maxMembers {
		must(fmt.Errorf("a group has a member %d", member))
	}
}

// step executes a call on the group alone. An output of nil is one that nobody has seen.
func step(state, called, output any) (bool, any) {
	now, c := state.(group), called.(*input)
	values := &now.values
	seen, _ := output.(*answer)
	switch {
	case c.read != nil:
		if seen == nil {
			return true, state
		}
		if len(seen.Values) != len(c.read) {
			return false, state
		}
		for i, member := range c.read {
			held, told := values[member], seen.Values[i]
			if held.exists != (told != nil) || (held.exists && held.text != *told) {
				return false, state
			}
		}
		return true, state
	case c.write != nil:
		if seen != nil && !seen.written {
			return false, state
		}
		for _, next := range c.write {
			values[next.member] = value{true, next.text}
		}
		return true, now
	case c.increment != nil:
		number := int64(0)
		if held := values[*c.increment]; held.exists {
			parsed, err := strconv.ParseInt(held.text, 10, 64)
			if err != nil || parsed == math.MaxInt64 {
				return false, state
			}
			number = parsed
		}
		number++
		if seen == nil {
			if now.unanswered[*c.increment] != c.rank {
				return false, state
			}
			now.unanswered[*c.increment]++
		} else if seen.Number == nil || *seen.Number != number {
			return false, state
		}
		values[*c.increment] = value{true, strconv.FormatInt(number, 10)}
		return true, now
	default:
		held := &values[c.append.member]
		length := uint64(len(held.text) + len(c.append.text))
		if seen != nil && (seen.Length == nil || *seen.Length != length) {
			return false, state
		}
		*held = value{true, held.text + c.append.text}
		return true, now
	}
}

var model = porcupine.Model{Init: func() any { return group{} }, Step: step}

// operations gives an operation without an answer an end after all others: then it either was the last, which
// nobody sees, or took effect before. The search for an order is exponential in the number of such operations,
// so narrow.go shortens it.
func operations(of history) []porcupine.Operation {
	var made []porcupine.Operation
	for _, o := range of.Operations {
		called := decode(o.Call)
		next := porcupine.Operation{Input: &called, Call: o.Began, Return: math.MaxInt64, Output: (*answer)(nil)}
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
	return narrow(made)
}

// decideWithin is the time for one history. Most take milliseconds. Those of many clients that write several keys
// at once can take minutes.
const decideWithin = 10 * time.Minute

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
			verdict := porcupine.CheckOperationsTimeout(model, operations(one), decideWithin)
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
		// Some files take minutes.
		fmt.Fprintf(os.Stderr, "%s is judged: %d histories so far\n", filepath.Base(name), judged)
	}
	fmt.Printf("%d histories judged again: %d bad ones among them, %d undecided, %d judged differently\n", judged, bad, undecided, differ)
	if judged == 0 || undecided+differ > 0 {
		os.Exit(1)
	}
}
