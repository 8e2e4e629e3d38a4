// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/libckpt/libckpt/collclock/published"
)

// protocols are the names that scenario files use.
var protocols = map[string]struct {
	make          Maker
	groupOnParent bool
}{
	"refined":          {make: Refined(nil)},
	"refined-eager":    {make: refinedEager},
	"2pc":              {make: TwoPhase},
	"published":        {make: Published(published.Config{}), groupOnParent: true},
	"published-reset":  {make: Published(published.Config{ResetOnCreate: true}), groupOnParent: true},
	"published-drop":   {make: Published(published.Config{DropUnknown: true}), groupOnParent: true},
	"published-forget": {make: Published(published.Config{ForgetOnFree: true}), groupOnParent: true},
}

// File is a scenario file: comments, a program, and commands with what they print.
//
//	# why this scenario is here
//	program
//	ranks 2
//	0: coll W
//	1: coll W
//
//	random refined seeds=100 requests=2
//	----
//	ok: 100 runs, 200 safe states
//
// Commands: "random PROTOCOL seeds=N [requests=N] [aborts=N]" takes N random schedules;
// "explore PROTOCOL [requests=N] [aborts=N] [limit=N]" takes all schedules; "show PROTOCOL seed=N ..."
// prints one.
type File struct {
	Program *Program
	blocks  []string // as in the file; commands carry their output
}

// ParseFile reads a scenario file.
func ParseFile(text string) (*File, error) {
	f := &File{blocks: strings.Split(strings.TrimRight(text, "\n"), "\n\n")}
	for _, b := range f.blocks {
		if rest, ok := strings.CutPrefix(strip(b), "program\n"); ok {
			var err error
			if f.Program, err = ParseProgram(rest); err != nil {
				return nil, err
			}
		}
	}
	if f.Program == nil {
		return nil, fmt.Errorf("no program")
	}
	return f, nil
}

// strip leaves comment lines out.
func strip(block string) string {
	lines := strings.Split(block, "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
	return strings.Join(lines, "\n")
}

// Run does the commands and returns the file with what they print now.
func (f *File) Run() (string, error) {
	out := make([]string, len(f.blocks))
	for i, b := range f.blocks {
		out[i] = b
		text := strip(b)
		if text == "" || strings.HasPrefix(text, "program\n") {
			continue
		}
		command, _, _ := strings.Cut(text, "\n")
		printed, err := f.command(command)
		if err != nil {
			return "", fmt.Errorf("%q: %w", command, err)
		}
		comments := b[:strings.Index(b, command)]
		out[i] = comments + command + "\n----\n" + printed
	}
	return strings.Join(out, "\n\n") + "\n", nil
}

func (f *File) command(line string) (string, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return "", fmt.Errorf("not understood")
	}
	proto, ok := protocols[words[1]]
	if !ok {
		return "", fmt.Errorf("no protocol %q", words[1])
	}
	num := map[string]int{"seeds": 100, "seed": 1, "requests": 1, "aborts": 0, "limit": 300_000}
	for _, w := range words[2:] {
		k, v, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(v)
		if _, known := num[k]; !known || err != nil {
			return "", fmt.Errorf("option %q is not understood", w)
		}
		num[k] = n
	}
	opt := Options{Requests: num["requests"], Aborts: num["aborts"], GroupOnParent: proto.groupOnParent}
	// The published algorithm expects its network to keep messages in order.
	opt.InOrder = proto.groupOnParent
	switch words[0] {
	case "random":
		return random(f.Program, proto.make, opt, num["seeds"]), nil
	case "explore":
		return explore(f.Program, proto.make, opt, num["limit"]), nil
	case "show":
		r := Run(f.Program, proto.make, opt, uint64(num["seed"]), true)
		return strings.Join(append(r.Log, verdict(r.Err)), "\n"), nil
	}
	return "", fmt.Errorf("no command %q", words[0])
}

func verdict(err error) string {
	if err == nil {
		return "ok"
	}
	return "FAILS: " + err.Error()
}

func random(p *Program, m Maker, opt Options, seeds int) string {
	failed, safe := map[string]int{}, 0
	var first string
	for s := range seeds {
		r := Run(p, m, opt, uint64(s), false)
		safe += r.Safe
		if r.Err == nil {
			continue
		}
		kind, _, _ := strings.Cut(r.Err.Error(), ":")
		failed[kind]++
		if first == "" {
			first = fmt.Sprintf("\nseed %d: %v", s, r.Err)
		}
	}
	if first == "" {
		return fmt.Sprintf("ok: %d runs, %d safe states", seeds, safe)
	}
	return fmt.Sprintf("FAILS: %v of %d runs%s", strings.TrimPrefix(fmt.Sprint(failed), "map"), seeds, first)
}

func explore(p *Program, m Maker, opt Options, limit int) string {
	r := Explore(p, m, opt, limit)
	switch {
	case r.Err != nil:
		return fmt.Sprintf("FAILS: %v", r.Err)
	case !r.Complete:
		return fmt.Sprintf("UNFINISHED: no failure in %d states", r.States)
	}
	return fmt.Sprintf("ok: all of %d states", r.States)
}
