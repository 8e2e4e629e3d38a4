// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var kindNames = []string{"eager", "rendezvous", "rma", "control"}

func parseKind(word string) (Kind, error) {
	if i := slices.Index(kindNames, word); i >= 0 {
		return 1 << i, nil
	}
	n, err := strconv.Atoi(word)
	return Kind(n), err
}

// played is what a rail answers in a scenario.
type played struct {
	connect map[int]error
	reopen  error
	static  []int
}

// world is one scenario as it runs (testdata/README.md). It plays the rails.
type world struct {
	rails []*Rail // as they were registered
	plays map[*Rail]*played
	calls []string // of this election
}

func newWorld() *world { return &world{plays: map[*Rail]*played{}} }

func (w *world) Connect(r *Rail, process int) error {
	w.calls = append(w.calls, fmt.Sprintf("%s.connect %d", r.Name, process))
	return w.plays[r].connect[process]
}

func (w *world) Reopen(r *Rail) error {
	w.calls = append(w.calls, r.Name+".reopen")
	for _, p := range w.plays[r].static {
		set(&r.Endpoints, p)
	}
	return w.plays[r].reopen
}

// elect returns what is written behind the message of an election.
func (w *world) elect(m Message) string {
	order := slices.Clone(w.rails)
	Order(order)
	w.calls = nil
	r, err := Elect(order, m, w)
	calls := ""
	if len(w.calls) > 0 {
		calls = "[" + strings.Join(w.calls, ", ") + "] "
	}
	switch {
	case errors.Is(err, ErrAgain):
		return calls + "= again"
	case err != nil:
		return calls + "= " + err.Error()
	}
	return calls + "= " + r.Name
}

func parseAnswer(words []string) (rest []string, answer error) {
	switch words[0] {
	case "ok":
		return words[1:], nil
	case "again":
		return nil, ErrAgain
	case "unreachable":
		return nil, ErrUnreachable
	case "failed":
		return nil, errors.New(strings.Join(words[1:], " "))
	}
	return nil, fmt.Errorf("answer %q", words[0])
}

// line runs one line. got and want are the two ends of an election, "" of other lines.
func (w *world) line(text string) (got, want string, err error) {
	words := strings.Split(text, " ")
	if text == "" || words[0] == "#" || words[0] == "processes" {
		return "", "", nil
	}
	if words[0] == "scenario" {
		*w = *newWorld()
		return "", "", nil
	}
	if len(words) < 3 {
		return "", "", fmt.Errorf("a word is missing")
	}
	if words[0] == "elect" {
		words = strings.SplitN(text, " ", 5)
		process, err1 := strconv.Atoi(words[1])
		bytes, err2 := strconv.ParseUint(words[2], 10, 64)
		kind, err3 := parseKind(words[3])
		if err := errors.Join(err1, err2, err3); err != nil || len(words) < 5 {
			return "", "", fmt.Errorf("bad election (%w)", err)
		}
		return w.elect(Message{process, bytes, kind}), words[4], nil
	}
	if words[0] == "rail" {
		return "", "", w.register(words[1], words[2], words[3:])
	}
	at := slices.IndexFunc(w.rails, func(r *Rail) bool { return r.Name == words[1] })
	if at < 0 {
		return "", "", fmt.Errorf("no rail %s", words[1])
	}
	return "", "", w.of(w.rails[at], words[0], words[2:])
}

func (w *world) register(name, priority string, properties []string) (err error) {
	r := &Rail{Name: name}
	if r.Priority, err = strconv.Atoi(priority); err != nil {
		return err
	}
	least, most, kinds := uint64(0), uint64(math.MaxUint64), Kind(0)
	for _, p := range properties {
		key, value, _ := strings.Cut(p, "=")
		switch key {
		case "demand":
			r.Flags |= OnDemand
		case "lazy":
			r.Flags |= Lazy
		case "node":
			r.Flags |= Node
		case "checkpointable":
			r.Flags |= Checkpointable
		case "least":
			least, err = strconv.ParseUint(value, 10, 64)
		case "most":
			most, err = strconv.ParseUint(value, 10, 64)
		case "kinds":
			for k := range strings.SplitSeq(value, ",") {
				var kind Kind
				kind, err = parseKind(k)
				kinds |= kind
			}
		default:
			err = fmt.Errorf("property %q", p)
		}
		if err != nil {
			return err
		}
	}
	r.Gate = func(bytes uint64, kind Kind) bool {
		return bytes >= least && bytes <= most && (kinds == 0 || kinds&kind != 0)
	}
	w.rails = append(w.rails, r)
	w.plays[r] = &played{connect: map[int]error{}}
	return nil
}

// of runs a line about one rail.
func (w *world) of(r *Rail, verb string, words []string) error {
	if verb == "state" {
		at := slices.Index(stateNames[:], words[0])
		if at < 0 {
			return fmt.Errorf("state %q", words[0])
		}
		r.State, r.Why = State(at), strings.Join(words[1:], " ")
		return nil
	}
	if verb == "reopen" {
		rest, err := parseAnswer(words)
		w.plays[r].reopen, words = err, rest
	}
	var processes []int
	for i, word := range words {
		p, err := strconv.Atoi(word)
		if err != nil && (verb != "connect" || i == 0) {
			return err
		}
		processes = append(processes, p)
	}
	switch verb {
	case "listed":
		for _, p := range processes {
			set(&r.Endpoints, p)
		}
	case "never":
		for _, p := range processes {
			set(&r.Never, p)
		}
	case "connect":
		_, w.plays[r].connect[processes[0]] = parseAnswer(words[1:])
	case "reopen":
		w.plays[r].static = processes
	default:
		return fmt.Errorf("verb %q", verb)
	}
	return nil
}

// TestScenarios runs what is written down, as the C of runtimes does.
func TestScenarios(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scenarios (%v)", err)
	}
	elections := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld()
		for i, line := range strings.Split(string(text), "\n") {
			got, want, err := w.line(line)
			if err != nil {
				t.Fatalf("%s:%d: %v", name, i+1, err)
			}
			if got != want {
				t.Errorf("%s:%d: %s\n  want %s", name, i+1, got, want)
			}
			if want != "" {
				elections++
			}
		}
	}
	if elections < 50 {
		t.Errorf("only %d elections: the files are not read as they should be", elections)
	}
}
