// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/libckpt/libckpt/collclock/scenario"
)

// Headers writes a scenario's program in the terms of rcc.pml and pub.pml: program.h, who is a member
// of what, and threads.h, the processes.
func Headers(p *scenario.Program) (program, threads string, err error) {
	if program, err = definitions(p); err != nil {
		return "", "", err
	}
	calls := map[[2]int]int{}       // by rank and clock
	sends := map[[2]int]int{}       // by sender and receiver
	requests := map[string]string{} // by rank and name: clock and number
	var b strings.Builder
	for t, th := range p.Threads {
		fmt.Fprintf(&b, "proctype thread%d() {\n", t)
		r := th.Rank
		for _, op := range th.Ops {
			g := clockIndex(p, op.Comm)
			next := func(clock int) int { calls[[2]int{r, clock}]++; return calls[[2]int{r, clock}] }
			key := fmt.Sprint(r, " ", op.Request)
			switch op.Verb {
			case scenario.Coll:
				fmt.Fprintf(&b, "    COLL(%d, %d, %d);\n", r, g, next(g))
			case scenario.Bcast:
				fmt.Fprintf(&b, "    BCAST(%d, %d, %d, %d);\n", r, g, next(g), op.Peer)
			case scenario.Icoll, scenario.Start:
				k := next(g)
				requests[key] = fmt.Sprintf("%d, %d", g, k)
				fmt.Fprintf(&b, "    ICOLL(%d, %d, %d);\n", r, g, k)
			case scenario.Wait:
				fmt.Fprintf(&b, "    WAITR(%d, %s);\n", r, requests[key])
			case scenario.Make:
				x := clockIndex(p, op.New)
				fmt.Fprintf(&b, "    MAKE(%d, %d, %d, %d, %t);\n", r, g, next(g), x, slices.Contains(op.Members, int32(r)))
			case scenario.Object:
				fmt.Fprintf(&b, "    OBJECT(%d, %d, %d, %d);\n", r, g, next(g), clockIndex(p, op.New))
			case scenario.Group:
				x := clockIndex(p, op.New)
				fmt.Fprintf(&b, "    GROUP(%d, %d, %d, %d);\n", r, g, next(x), x)
			case scenario.Bridge:
				x := clockIndex(p, op.New)
				fmt.Fprintf(&b, "    BRIDGE(%d, %d, %d, %d, %d, %d);\n", r, g, next(x), x, op.Members[0], op.Members[1])
			case scenario.Free, scenario.Gone:
				fmt.Fprintf(&b, "    FREE(%d, %d, %d);\n", r, g, next(g))
			case scenario.Send:
				sends[[2]int{r, op.Peer}]++
				fmt.Fprintf(&b, "    SEND(%d, %d);\n", r, op.Peer)
			case scenario.Ssend:
				sends[[2]int{r, op.Peer}]++
				fmt.Fprintf(&b, "    SSEND(%d, %d, %d);\n", r, op.Peer, sends[[2]int{r, op.Peer}])
			case scenario.Recv:
				fmt.Fprintf(&b, "    RECV(%d, %d);\n", r, op.Peer)
			case scenario.Any:
				b.WriteString("    if\n")
				for from := range p.Ranks {
					if from != r {
						fmt.Fprintf(&b, "    ANYFROM(%d, %d)\n", r, from)
					}
				}
				b.WriteString("    fi;\n")
			default:
				return "", "", fmt.Errorf("the model has no %q", op.Verb)
			}
		}
		fmt.Fprintf(&b, "    done%d = true\n}\n\n", t)
	}
	b.WriteString(start(p))
	return program, b.String(), nil
}

// clocks are the communicators and objects that the program uses: often not the world, which would
// only make the models larger.
func clocks(p *scenario.Program) []scenario.Comm {
	for _, t := range p.Threads {
		for _, op := range t.Ops {
			if op.Comm == p.Comms[0].Name {
				return p.Comms
			}
		}
	}
	return p.Comms[1:]
}

func clockIndex(p *scenario.Program, name string) int {
	return slices.IndexFunc(clocks(p), func(c scenario.Comm) bool { return c.Name == name })
}

func definitions(p *scenario.Program) (string, error) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("#define N %d\n#define G %d", p.Ranks, len(clocks(p)))
	line("#define CAT_(a, b) a##b\n#define CAT(a, b) CAT_(a, b)")
	line("#define ALL(g, M, k) CAT(ALL_, g)(M, k)\n#define MEMBERS(g, M) CAT(MEMBERS_, g)(M)\n#define LEAST(g) CAT(LEAST_, g)")
	line("#define EACH_CLOCK_OF(r, M) CAT(CLOCKS_, r)(M)")
	line("#define GROUP_OF(g) CAT(GROUP_, g)\n#define FIRST(g) CAT(FIRST_, g)")
	eachRank, eachClock, eachPair := "", "", ""
	clocksOf := make([]string, p.Ranks)
	groups := map[string]int{}
	for r := range p.Ranks {
		eachRank += fmt.Sprintf(" M(%d)", r)
	}
	for g, c := range clocks(p) {
		eachClock += fmt.Sprintf(" M(%d)", g)
		var all, members []string
		sorted := slices.Sorted(slices.Values(c.Members))
		for _, r := range sorted {
			all = append(all, fmt.Sprintf("M(%d, %d, k)", r, g))
			members = append(members, fmt.Sprintf("M(%d, %d)", r, g))
			eachPair += fmt.Sprintf(" M(%d, %d)", r, g)
			clocksOf[r] += fmt.Sprintf(" M(%d, %d)", r, g)
		}
		line("#define ALL_%d(M, k) (%s)", g, strings.Join(all, " && "))
		line("#define MEMBERS_%d(M) %s", g, strings.Join(members, " "))
		line("#define LEAST_%d %s", g, least(sorted, g))
		key := fmt.Sprint(sorted)
		if _, ok := groups[key]; !ok {
			groups[key] = g
		}
		line("#define GROUP_%d %d", g, groups[key])
		line("#define FIRST_%d %d", g, sorted[0])
	}
	line("#define EACH_RANK(M)%s\n#define EACH_CLOCK(M)%s\n#define EACH_PAIR(M)%s", eachRank, eachClock, eachPair)
	for r := range p.Ranks {
		line("#define CLOCKS_%d(M)%s", r, clocksOf[r])
	}
	threads := make([]int, p.Ranks)
	for _, t := range p.Threads {
		threads[t.Rank]++
	}
	for r, n := range threads {
		line("#define THREADS_OF_%d %d", r, n)
	}
	line("#define THREADS_OF(r) CAT(THREADS_OF_, r)")
	done := "(true"
	for t := range p.Threads {
		line("bool done%d;", t)
		done += fmt.Sprintf(" && done%d", t)
	}
	line("#define THREADS_DONE %s)", done)
	return b.String(), nil
}

// start is the process that sets everything up: clocks that exist from the start, then the others.
func start(p *scenario.Program) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("init { d_step {")
	for g, c := range clocks(p) {
		if c.Parent != "" {
			continue
		}
		for _, r := range c.Members {
			line("    made[%d] = true;", int(r)*len(clocks(p))+g)
		}
	}
	line("    TRACE_EVENTS\n  }")
	line("  atomic { run control();")
	for t := range p.Threads {
		line("    run thread%d();", t)
	}
	line("} }")
	return b.String()
}

// least is an expression for the smallest announcement that a home has heard.
func least(members []int32, g int) string {
	first := fmt.Sprintf("heard[I(%d, %d)]", members[0], g)
	if len(members) == 1 {
		return first
	}
	rest := least(members[1:], g)
	return fmt.Sprintf("(%s < %s -> %s : %s)", first, rest, first, rest)
}
