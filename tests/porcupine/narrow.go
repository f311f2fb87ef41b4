package main

import (
	"math"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// trace is what a history shows of one member of a group.
type trace struct {
	// writers counts the writes of each value, appenders the appends of each text.
	writers, appenders map[string]int
	// begun holds for each value the begin of its last write.
	begun map[string]int64
	// isRegister is true if the member is only written and read, isJournal if it is only appended to and read,
	// by texts that end with their only semicolon.
	isRegister, isJournal bool
	// seenBy holds for each value of a register, and each text of a journal, the earliest end of a read of it.
	seenBy map[string]int64
	// lastRead is the latest begin of an answered read, lastAppend the latest end of an answered append.
	lastRead, lastAppend int64
}

func isEntry(text string) bool { return strings.Index(text, ";") == len(text)-1 }

func traces(operations []porcupine.Operation) *[maxMembers]trace {
	made := new([maxMembers]trace)
	for member := range made {
		made[member] = trace{
			writers: map[string]int{}, appenders: map[string]int{}, begun: map[string]int64{}, seenBy: map[string]int64{},
			isRegister: true, isJournal: true,
			lastRead: math.MinInt64, lastAppend: math.MinInt64,
		}
	}
	for _, o := range operations {
		called := o.Input.(*input)
		switch {
		case called.read != nil:
		case called.write != nil:
			for _, next := range called.write {
				made[next.member].writers[next.text]++
				made[next.member].begun[next.text] = o.Call
				made[next.member].isJournal = false
			}
		case called.increment != nil:
			made[*called.increment].isRegister, made[*called.increment].isJournal = false, false
		default:
			of := &made[called.append.member]
			of.appenders[called.append.text]++
			of.isRegister = false
			of.isJournal = of.isJournal && isEntry(called.append.text)
			if o.Output.(*answer) != nil {
				of.lastAppend = max(of.lastAppend, o.Return)
			}
		}
	}
	for _, o := range operations {
		called, seen := o.Input.(*input), o.Output.(*answer)
		if called.read == nil || seen == nil || len(seen.Values) != len(called.read) {
			continue
		}
		for i, member := range called.read {
			of := &made[member]
			of.lastRead = max(of.lastRead, o.Call)
			if seen.Values[i] == nil {
				continue
			}
			shown := []string{*seen.Values[i]}
			if of.isJournal {
				shown = strings.SplitAfter(*seen.Values[i], ";")
			}
			for _, text := range shown {
				if end, known := of.seenBy[text]; !known || o.Return < end {
					of.seenBy[text] = o.Return
				}
			}
		}
	}
	return made
}

// narrow changes operations so that the search is shorter, and the verdict is the same. Of all operations:
//
//   - A write took effect before the end of a read of its value, if no other write has that value.
//   - A read of a value took effect after the begin of its write, if no other write has that value.
//
// Of those without an answer:
//
//   - A write of registers of which no value was read is left out. In an order with it, no read comes between it
//     and the next write of a member, so the order without it is valid, too. An order without it can end with it.
//   - An append to a journal took effect before the end of a read that shows its text, if no other append has it.
//   - An append to a journal that no read shows comes after all reads. It is left out if every answered append
//     ended before a read began: then nothing that was answered comes after it.
//   - Increments of one member are alike, so they take effect in the order in which they began.
func narrow(operations []porcupine.Operation) []porcupine.Operation {
	traces := traces(operations)
	var made []porcupine.Operation
	var increments [maxMembers][]porcupine.Operation
	for _, o := range operations {
		called := o.Input.(*input)
		isAnswered := o.Output.(*answer) != nil
		switch {
		case called.read != nil:
			for i, member := range called.read {
				of, seen := &traces[member], o.Output.(*answer)
				if seen != nil && i < len(seen.Values) && seen.Values[i] != nil {
					if text := *seen.Values[i]; of.isRegister && of.writers[text] == 1 {
						o.Call = max(o.Call, of.begun[text])
					}
				}
			}
			if o.Call > o.Return {
				// It saw what was written later. The search finds that from the operations as they are.
				return operations
			}
		case called.write != nil:
			isSeen, isRegister := false, true
			for _, next := range called.write {
				of := &traces[next.member]
				isRegister = isRegister && of.isRegister
				end, known := of.seenBy[next.text]
				isSeen = isSeen || known
				if known && of.isRegister && of.writers[next.text] == 1 {
					o.Return = min(o.Return, end)
				}
			}
			if o.Call > o.Return {
				return operations
			}
			if isRegister && !isSeen && !isAnswered {
				continue
			}
		case isAnswered:
		case called.increment != nil:
			increments[*called.increment] = append(increments[*called.increment], o)
		default:
			of := &traces[called.append.member]
			end, isSeen := of.seenBy[called.append.text]
			if of.isJournal && isSeen && of.appenders[called.append.text] == 1 {
				o.Return = min(o.Return, end)
			}
			if of.isJournal && !isSeen && of.lastAppend < of.lastRead {
				continue
			}
		}
		made = append(made, o)
	}
	for _, of := range increments {
		sort.SliceStable(of, func(i, j int) bool { return of[i].Call < of[j].Call })
		for rank, o := range of {
			o.Input.(*input).rank = rank
		}
	}
	return made
}
