package main

import (
	"fmt"
	"math"
	"math/rand"
	"strconv"
	"testing"

	"github.com/anishathalye/porcupine"
)

// isLinearizable tries all orders of a short history. An operation without an answer may be left out.
func isLinearizable(operations []porcupine.Operation, state group, done uint) bool {
	// No operation may come before one that ended before it began.
	first := int64(math.MaxInt64)
	isOver := true
	for i, o := range operations {
		if done&(1<<i) == 0 {
			first = min(first, o.Return)
			isOver = isOver && o.Output.(*answer) == nil
		}
	}
	if isOver {
		return true
	}
	for i, o := range operations {
		if done&(1<<i) != 0 || o.Call > first {
			continue
		}
		called := *o.Input.(*input)
		if called.increment != nil {
			// The rank is a device of narrow: here any of the increments may be next.
			called.rank = state.unanswered[*called.increment]
		}
		if fits, next := step(state, &called, o.Output); fits && isLinearizable(operations, next.(group), done|1<<i) {
			return true
		}
	}
	return false
}

// member is a key of a made history: written and read, incremented, or appended to.
type member int

const (
	register member = iota
	counter
	journal
)

// made returns a history of a few clients, and often changes one of its answers.
func made(random *rand.Rand) []porcupine.Operation {
	members := []member{member(random.Intn(3)), member(random.Intn(3))}
	state := group{}
	var operations []porcupine.Operation
	at := func(moment int) int64 { return int64(moment)*10 + int64(random.Intn(3)) }
	for moment := 0; moment < 4+random.Intn(5); moment++ {
		of := random.Intn(len(members))
		called := &input{}
		switch kind := members[of]; {
		case random.Intn(5) < 2:
			called.read = []int{of}
			if random.Intn(3) == 0 {
				called.read = []int{0, 1}
			}
		case kind == register || random.Intn(6) == 0 && kind == counter:
			called.write = []assignment{{of, strconv.Itoa(random.Intn(4))}}
			if members[1-of] == register && random.Intn(3) == 0 {
				called.write = append(called.write, assignment{1 - of, strconv.Itoa(random.Intn(4))})
			}
		case kind == counter:
			called.increment = &of
		default:
			called.append = assignment{of, fmt.Sprintf("%d;", random.Intn(6))}
		}
		o := porcupine.Operation{
			ClientId: moment, Input: called, Output: (*answer)(nil),
			Call: at(moment) - int64(random.Intn(25)), Return: at(moment) + 3 + int64(random.Intn(25)),
		}
		isAnswered := called.read != nil || random.Intn(3) > 0
		if isAnswered || random.Intn(2) == 0 {
			called.rank = 0
			if called.increment != nil {
				called.rank = state.unanswered[of]
			}
			_, next := step(state, called, (*answer)(nil))
			told := answerOf(called, next.(group))
			next = withoutRanks(next.(group))
			state = next.(group)
			if isAnswered {
				o.Output = told
			}
		}
		if o.Output.(*answer) == nil {
			o.Return = math.MaxInt64
		}
		called.rank = 0
		operations = append(operations, o)
	}
	if random.Intn(2) == 0 {
		change(random, operations[random.Intn(len(operations))].Output.(*answer))
	}
	return operations
}

func withoutRanks(state group) group {
	state.unanswered = [maxMembers]int{}
	return state
}

func answerOf(called *input, state group) *answer {
	switch {
	case called.read != nil:
		told := &answer{Values: []*string{}}
		for _, of := range called.read {
			if held := state.values[of]; held.exists {
				told.Values = append(told.Values, &held.text)
			} else {
				told.Values = append(told.Values, nil)
			}
		}
		return told
	case called.write != nil:
		return &answer{written: true}
	case called.increment != nil:
		number, err := strconv.ParseInt(state.values[*called.increment].text, 10, 64)
		must(err)
		return &answer{Number: &number}
	default:
		length := uint64(len(state.values[called.append.member].text))
		return &answer{Length: &length}
	}
}

func change(random *rand.Rand, told *answer) {
	switch {
	case told == nil:
	case told.Values != nil:
		text := []string{"0", "1", "2;", "1;2;", "3"}[random.Intn(5)]
		told.Values[random.Intn(len(told.Values))] = []*string{nil, &text}[random.Intn(2)]
	case told.Number != nil:
		*told.Number += int64(random.Intn(3)) - 1
	case told.Length != nil:
		*told.Length += 2
	}
}

func TestNarrowingChangesNoVerdict(t *testing.T) {
	counts, narrowed := map[bool]int{}, 0
	for seed := int64(0); seed < 20_000; seed++ {
		operations := made(rand.New(rand.NewSource(seed)))
		expected := isLinearizable(operations, group{}, 0)
		fewer := narrow(operations)
		if len(fewer) < len(operations) {
			narrowed++
		}
		if found := porcupine.CheckOperations(model, fewer); found != expected {
			t.Fatalf("seed %d: all orders say %v, the narrowed history %v", seed, expected, found)
		}
		counts[expected]++
	}
	if counts[true] < 2_000 || counts[false] < 2_000 || narrowed < 1_000 {
		t.Fatalf("the histories prove little: %v, %d with fewer operations", counts, narrowed)
	}
}
