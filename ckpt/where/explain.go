// SPDX-License-Identifier: Apache-2.0

package where

import (
	"fmt"
	"slices"
	"strings"

	"github.com/libckpt/libckpt/ckpt/control"
)

// Computing is what a rank does if nothing else is known of it.
const Computing = "computing"

// Words for what else a rank is doing outside of the stages of a checkpoint.
const (
	phaseInMPI  = "in MPI"      // waits in a call
	phaseGate   = "at the gate" // of a collective call that not all members have made
	phaseOwing  = "owing"       // computes, while others wait for a collective call of this rank
	phaseSilent = "silent"      // has not answered
)

// Phases are all these words.
func Phases() []string {
	return []string{Computing, phaseInMPI, phaseGate, phaseOwing, phaseSilent}
}

// explain says what each rank is doing and for whom it waits, from the answers of all ranks.
func explain(all map[int]Rank, ranks int) []control.RankStatus {
	out := make([]control.RankStatus, ranks)
	for r := range out {
		at, ok := all[r]
		if !ok {
			out[r] = control.RankStatus{Rank: r, Phase: phaseSilent, Detail: "has not said what it is doing"}
			continue
		}
		out[r] = explainOne(r, at, all)
	}
	return out
}

func explainOne(r int, at Rank, all map[int]Rank) control.RankStatus {
	s := control.RankStatus{Rank: r, Host: at.Host, PID: at.PID, Phase: Computing}
	var details []string
	for _, c := range at.Clocks {
		if !c.Gate && !c.Inside {
			continue
		}
		late := behind(c, all)
		call := c.Call
		if call == "" {
			call = "a collective call"
		}
		text := fmt.Sprintf("in %s on communicator %s", call, c.Name)
		if c.Gate {
			text = "at the gate of " + text[len("in "):]
		}
		if len(late) > 0 {
			text += ", waits for " + rankList(late)
		} else {
			text += ", which all members have called"
		}
		if s.Phase != phaseGate {
			s.Phase = phaseInMPI
			if c.Gate {
				s.Phase = phaseGate
			}
		}
		s.WaitsFor = append(s.WaitsFor, late...)
		details = append(details, text)
	}
	for _, w := range at.Calls {
		if s.Phase == Computing {
			s.Phase = phaseInMPI
		}
		details = append(details, callText(w))
		if w.Peer >= 0 && (w.For == ForMessage || w.For == ForReceiver) {
			s.WaitsFor = append(s.WaitsFor, w.Peer)
		}
	}
	for _, c := range at.Clocks {
		if c.Owes == 0 {
			continue
		}
		if s.Phase == Computing {
			s.Phase = phaseOwing
		}
		details = append(details, fmt.Sprintf("owes %d collective %s on communicator %s%s", c.Owes, plural("call", c.Owes), c.Name, insideText(c, all)))
	}
	slices.Sort(s.WaitsFor)
	s.WaitsFor = slices.Compact(s.WaitsFor)
	s.Detail = strings.Join(details, "; ")
	return s
}

// fewTasks is how many ranks of a process are described.
const fewTasks = 2

// fold makes a line for each process of those of its ranks.
func fold(ranks []control.RankStatus, processes int, places Places) []control.RankStatus {
	out := make([]control.RankStatus, processes)
	for p := range out {
		s := control.RankStatus{Rank: p, Phase: Computing}
		var details []string
		busy := 0
		for _, r := range places.Of(p) {
			one := &ranks[r]
			s.Host, s.PID = one.Host, one.PID
			if one.Phase == Computing {
				continue
			}
			if busy++; busy == 1 {
				s.Phase = one.Phase
			}
			if busy <= fewTasks {
				details = append(details, fmt.Sprintf("rank %d: %s", r, one.Detail))
			}
			for _, other := range one.WaitsFor {
				if at := places.Process(other); at >= 0 && at != p {
					s.WaitsFor = append(s.WaitsFor, at)
				}
			}
		}
		if busy > fewTasks {
			details = append(details, fmt.Sprintf("and %d more of its %d ranks", busy-fewTasks, len(places.Of(p))))
		}
		slices.Sort(s.WaitsFor)
		s.WaitsFor = slices.Compact(s.WaitsFor)
		s.Detail = strings.Join(details, "; ")
		out[p] = s
	}
	return out
}

// behind are the ranks that have not made the call that c has made.
func behind(c Clock, all map[int]Rank) []int {
	var late []int
	for _, r := range c.Members {
		if at, ok := all[int(r)]; ok && !slices.ContainsFunc(at.Clocks, func(o Clock) bool { return o.Clock == c.Clock }) {
			late = append(late, int(r))
		}
	}
	for r, at := range all {
		for _, other := range at.Clocks {
			if other.Clock == c.Clock && other.Called < c.Called {
				late = append(late, r)
			}
		}
	}
	slices.Sort(late)
	return late
}

// insideText names who waits in a call on the communicator.
func insideText(c Clock, all map[int]Rank) string {
	var in []int
	call := ""
	for r, at := range all {
		for _, other := range at.Clocks {
			if other.Clock == c.Clock && (other.Inside || other.Gate) && other.Called > c.Called {
				in = append(in, r)
				call = other.Call
			}
		}
	}
	if len(in) == 0 {
		return ""
	}
	slices.Sort(in)
	verb := waitVerb(in)
	if call == "" {
		return fmt.Sprintf(", for which %s %s", rankList(in), verb)
	}
	return fmt.Sprintf(", for which %s %s in %s", rankList(in), verb, call)
}

func callText(w Call) string {
	text := fmt.Sprintf("in %s on communicator %s", w.Call, w.Comm)
	peer := fmt.Sprintf("rank %d", w.Peer)
	if w.Peer == PeerAny {
		peer = "any rank"
	}
	switch {
	case w.For == ForOutside:
		return "waits for processes of another job in " + w.Call
	case w.For == ForRequest:
		return text + ", waits for a request"
	case w.Peer < PeerAny:
		return text
	case w.For == ForReceiver:
		text += ", waits until " + peer + " receives"
	default:
		text += ", waits for a message from " + peer
	}
	if w.Tag >= 0 {
		text += fmt.Sprintf(" with tag %d", w.Tag)
	}
	return text
}

// Gathering says in the lines of all processes who waits in MPIX_Checkpoint, and for whom. in are those that have called
// it; phase is that of who waits.
func Gathering(lines []control.RankStatus, in []bool, phase string) {
	come, missing := whoIsIn(in)
	if len(come) == 0 {
		return
	}
	for _, r := range come {
		if r < len(lines) && lines[r].Phase == Computing {
			lines[r].Phase, lines[r].WaitsFor = phase, missing
			lines[r].Detail = "in MPIX_Checkpoint, waits for " + rankList(missing)
		}
	}
	for _, r := range missing {
		if r < len(lines) && lines[r].Phase == Computing {
			lines[r].Phase = phaseOwing
			lines[r].Detail = "has not called MPIX_Checkpoint, in which " + rankList(come) + " " + waitVerb(come)
		}
	}
}

// Missing says in a line who waits in MPIX_Checkpoint for whom; "" when nobody waits.
func Missing(in []bool) string {
	come, missing := whoIsIn(in)
	if len(come) == 0 || len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s in MPIX_Checkpoint for %s", rankList(come), waitVerb(come), rankList(missing))
}

func whoIsIn(in []bool) (come, missing []int) {
	for r, is := range in {
		if is {
			come = append(come, r)
		} else {
			missing = append(missing, r)
		}
	}
	return come, missing
}

func waitVerb(who []int) string {
	if len(who) == 1 {
		return "waits"
	}
	return "wait"
}

func plural(word string, n uint64) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// fewRanks is how many are named one by one.
const fewRanks = 8

func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var b strings.Builder
	b.WriteString("ranks ")
	for i, r := range ranks {
		if i == fewRanks {
			fmt.Fprintf(&b, " and %d more", len(ranks)-fewRanks)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, r)
	}
	return b.String()
}

// fewLines is how many ranks HeldUp describes.
const fewLines = 20

// HeldUp says who keeps the job from a safe state: a line for each rank that waits, owes, or is waited
// for.
func HeldUp(statuses []control.RankStatus) []string {
	awaited := map[int]bool{}
	for _, s := range statuses {
		for _, r := range s.WaitsFor {
			awaited[r] = true
		}
	}
	var out []string
	more := 0
	for _, s := range statuses {
		if s.Phase == Computing && !awaited[s.Rank] {
			continue
		}
		if len(out) == fewLines {
			more++
			continue
		}
		text := s.Detail
		if text == "" {
			text = s.Phase
		}
		out = append(out, fmt.Sprintf("rank %d: %s", s.Rank, text))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more ranks", more))
	}
	return out
}
