// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// randomScenario writes a scenario with the answers that Go gives. Each kind of rail, state and answer occurs; a
// process number, a gate's limit and the size of a message are often equal.
func randomScenario(rnd *rand.Rand) string {
	const processes = 5
	var out strings.Builder
	w := newWorld()
	say := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		out.WriteString(line)
		if _, _, err := w.line(line); err != nil {
			panic(line + ": " + err.Error())
		}
		out.WriteString("\n")
	}
	some := func() (list string) { // processes
		for p := range processes {
			if rnd.IntN(3) == 0 {
				list += fmt.Sprintf(" %d", p)
			}
		}
		return list
	}
	answer := func() string {
		return []string{"ok", "ok", "again", "unreachable", "failed for a reason"}[rnd.IntN(5)]
	}
	say("scenario random")
	rails := rnd.IntN(6)
	for r := range rails {
		line := fmt.Sprintf("rail r%d %d", r, rnd.IntN(5)-2)
		for _, property := range []string{"demand", "demand", "lazy", "node", "least=2", "most=3", "most=1", "kinds=eager,512", "kinds=rma"} {
			if rnd.IntN(4) == 0 {
				line += " " + property
			}
		}
		say("%s", line)
		state := State(0)
		if rnd.IntN(2) == 0 {
			state = State(rnd.IntN(len(stateNames)))
		}
		if state != Closed && state != Due && state != Broken { // which have no endpoints
			if list := some(); list != "" {
				say("listed r%d%s", r, list)
			}
		}
		if list := some(); list != "" {
			say("never r%d%s", r, list)
		}
		say("state r%d %v%s", r, state, map[bool]string{true: " no device"}[state == Broken])
		for p := range processes {
			if rnd.IntN(2) == 0 {
				say("connect r%d %d %s", r, p, answer())
			}
		}
		if rnd.IntN(3) == 0 {
			say("reopen r%d failed at last", r)
		} else {
			say("reopen r%d ok%s", r, some())
		}
	}
	for range 12 {
		kind := []string{"eager", "rma", "512", "control"}[rnd.IntN(4)]
		m := fmt.Sprintf("elect %d %d %s", rnd.IntN(processes), rnd.IntN(5), kind)
		got, _, err := w.line(m + " ?")
		if err != nil {
			panic(m + ": " + err.Error())
		}
		fmt.Fprintf(&out, "%s %s\n", m, got)
	}
	return out.String()
}

// TestSameAsC has the C of runtimes run random scenarios, and the written ones.
func TestSameAsC(t *testing.T) {
	program := filepath.Join(t.TempDir(), "rails")
	compile := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-Iinclude", "-Icapi", "-o", program,
		"capi/embed/test/rails.c")
	compile.Dir = ".."
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	const scenarios = 3000
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	var text strings.Builder
	for range scenarios {
		text.WriteString(randomScenario(rnd))
	}
	c := exec.Command(program, "-")
	c.Stdin = strings.NewReader(text.String())
	out, err := c.CombinedOutput()
	if want := fmt.Sprintf("%d elections\n", 12*scenarios); err != nil || string(out) != want {
		t.Errorf("seed %d: Go and C disagree, or C did not run them all (%v):\n%s", seed, err, out)
		var line int
		if _, err := fmt.Sscanf(string(out), "-:%d:", &line); err == nil {
			lines := strings.Split(text.String(), "\n")[:line]
			for i := line - 1; i > 0 && !strings.HasPrefix(lines[i], "scenario"); i-- {
				line = i
			}
			t.Log(strings.Join(lines[line:], "\n"))
		}
	}
}

// TestRandomScenariosReachEverything proves that they are worth running.
func TestRandomScenariosReachEverything(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var all strings.Builder
	for range 500 {
		all.WriteString(randomScenario(rnd))
	}
	for _, s := range []string{"= r0", "= again", ".reopen, ", ".reopen] = r", ".connect 4] = r", ".connect 4, ",
		"registered no rail", "gate closed for 0 bytes", "gate closed for 1 byte;", "no endpoint", "cannot reach it",
		"not on this node", "broken: no device", "broken: at last", "connect failed: for a reason"} {
		if !strings.Contains(all.String(), s) {
			t.Errorf("no election has %q", s)
		}
	}
}
