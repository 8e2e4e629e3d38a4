// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/internal/tap"
)

func init() { register(newTopCmd) }

// topOptions are the flags of `top`.
type topOptions struct {
	period  time.Duration
	count   int
	calls   int
	asJSON  bool
	mpiOnly bool
}

func newTopCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "top DIR",
		GroupID: groupLive,
		Short:   "Count and time the MPI and system calls of a running job",
		Long: `Count and time the MPI calls and the system calls of the ranks of the job that runs in a directory, and show them
once a period: for each rank calls a second and the share of the time that it was in them, and the calls that took the most time.

The kernel counts, by eBPF: the ranks are not stopped, nothing of theirs is changed, and when this command ends nothing
stays behind. Each call costs the rank about a microsecond meanwhile, so a program that makes a million calls a second
is slower as long as this runs; --mpi-only leaves system calls alone. A call is counted when it returns. Ranks with several
threads can be in calls for more than 100 %.

Checkpoints may be taken meanwhile. MPI calls are counted where libckpt takes them up, outside of the memory that an image
has. Where libckpt's library is stripped, what is counted are its calls of the MPI below, and the output says so. Of
jobs of --whole and of regions mode only system calls are counted. Threads of libckpt's own, which mostly wait, are left out;
with --trap sud, and in regions mode, they cannot be told from the program's. Only ranks on this host are seen. This takes root, or
CAP_BPF and CAP_PERFMON.`,
		Example: `  ckptctl top ckpt
  ckptctl top ckpt --period 10s --count 1 --json`,
		Args: cobra.ExactArgs(1),
	}
	var o topOptions
	f := cmd.Flags()
	f.BoolVar(&o.asJSON, "json", false, "print JSON for programs instead of text for people, an object a line")
	f.DurationVar(&o.period, "period", 2*time.Second, "how long to count for each output")
	f.IntVar(&o.count, "count", 0, "end after so many outputs (default: when the job ends, or at an interrupt)")
	f.IntVar(&o.calls, "calls", 12, "how many calls to list")
	f.BoolVar(&o.mpiOnly, "mpi-only", false, "do not watch system calls")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.period < 10*time.Millisecond:
			return usagef("--period %v: at least 10ms", o.period)
		case o.count < 0 || o.calls < 0:
			return usagef("--count and --calls are not negative")
		}
		return top(cmd.Context(), args[0], o, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// watchedRank is a rank whose process is watched.
type watchedRank struct {
	rank, pid int
	library   string
	below     bool // the library is that of the MPI below
}

// localRanks are the processes of a job on this host, and the ranks that are elsewhere.
func localRanks(ctx context.Context, dir string) (here []watchedRank, elsewhere []int, err error) {
	job, err := findJob(dir)
	if err != nil {
		return nil, nil, err
	}
	status, err := job.client.Status(ctx)
	if err != nil {
		return nil, nil, job.explain(err)
	}
	return sortRanks(status)
}

func sortRanks(status control.Status) (here []watchedRank, elsewhere []int, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	seen := map[int]bool{}
	for _, r := range status.Ranks {
		switch {
		case r.PID == 0 || r.Host != "" && r.Host != host:
			elsewhere = append(elsewhere, r.Rank)
		case !seen[r.PID]:
			seen[r.PID] = true
			here = append(here, watchedRank{rank: r.Rank, pid: r.PID})
		}
	}
	if len(here) == 0 {
		return nil, elsewhere, fmt.Errorf("no rank of the job runs on this host (%s); run this command where they run", host)
	}
	return here, elsewhere, nil
}

// target says what is counted in the process of a rank. Code that an image has is left alone, with the stacks on which it
// runs: what a probe leaves there would be in the image.
func (r *watchedRank) target() (tap.Target, error) {
	t := tap.Target{PID: r.pid}
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", r.pid)); err != nil || filepath.Base(strings.TrimSuffix(exe, " (deleted)")) != "ckptrun" {
		return t, nil // regions mode: its stacks may be saved
	}
	for _, c := range []struct {
		prefix string
		below  bool
		name   func(string) string
	}{
		{"libckptback-", false, backName},
		{"libmpi", true, mpiName},
	} {
		path, functions, err := tap.FindLibrary(r.pid, upperEnd, c.prefix, c.name)
		if errors.Is(err, tap.ErrNoLibrary) {
			continue
		}
		t.Library, t.Functions = path, functions
		r.library, r.below = path, c.below
		return t, err
	}
	return t, nil // a program without MPI, or a runtime of --whole
}

// backName is which MPI function a function of libckpt takes up: back_Send is MPI_Send.
func backName(symbol string) string {
	name, ok := strings.CutPrefix(symbol, "back_")
	if !ok || name == "" || name[0] < 'A' || name[0] > 'Z' || strings.Contains(name, ".") {
		return ""
	}
	return "MPI_" + name
}

func mpiName(symbol string) string {
	if strings.HasPrefix(symbol, "MPI_") && !strings.Contains(symbol, "@") {
		return symbol
	}
	return ""
}

// upperEnd is where the program's half of the address space ends (docs/architecture.md).
const upperEnd = 0x10c000000000

func top(ctx context.Context, dir string, o topOptions, stdout, stderr io.Writer) error {
	if err := tap.Allowed(); err != nil {
		return err
	}
	ranks, elsewhere, err := localRanks(ctx, dir)
	if err != nil {
		return err
	}
	var targets []tap.Target
	for i := range ranks {
		t, err := ranks[i].target()
		if err != nil {
			return err
		}
		targets = append(targets, t)
	}
	own := ownThreads("/proc", ranks)
	calls, err := tap.WatchCalls(targets, !o.mpiOnly)
	if err != nil {
		return err
	}
	defer func() { _ = calls.Close() }()
	if len(elsewhere) > 0 {
		_, _ = fmt.Fprintf(stderr, "ckptctl: ranks %s run on other hosts, and are not seen from here\n", ranksText(elsewhere))
	}
	return topLoop(ctx, calls, ranks, own, o, stdout)
}

// ownThreads lists the threads of ranks that are libckpt's own. Those of the program, and what they start, have a seccomp
// filter more, by which ckptrun sees their system calls; the first thread of a process is the program's.
func ownThreads(proc string, ranks []watchedRank) (list []int) {
	for _, r := range ranks {
		task := filepath.Join(proc, strconv.Itoa(r.pid), "task")
		most, known := seccompFilters(filepath.Join(task, strconv.Itoa(r.pid)))
		threads, err := os.ReadDir(task)
		if !known || err != nil {
			continue
		}
		for _, t := range threads {
			n, known := seccompFilters(filepath.Join(task, t.Name()))
			if id, err := strconv.Atoi(t.Name()); err == nil && known && n < most {
				list = append(list, id)
			}
		}
	}
	return list
}

// seccompFilters is how many filters a thread has; false: it is gone, or the kernel does not say.
func seccompFilters(task string) (int, bool) {
	b, err := os.ReadFile(filepath.Join(task, "status"))
	if err != nil {
		return 0, false
	}
	_, after, is := strings.Cut(string(b), "\nSeccomp_filters:")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	return n, is && err == nil
}

// topReport is an output of `top`.
type topReport struct {
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"` // that were counted
	Ranks   []topRank `json:"ranks"`
}

type topRank struct {
	Rank          int       `json:"rank"`
	PID           int       `json:"pid"`
	Library       string    `json:"library,omitempty"` // whose MPI calls are counted
	Below         bool      `json:"below,omitempty"`   // it is that of the MPI below
	MPICalls      uint64    `json:"mpiCalls"`
	MPISeconds    float64   `json:"mpiSeconds"`
	SystemCalls   uint64    `json:"systemCalls"`
	SystemSeconds float64   `json:"systemSeconds"`
	Calls         []topCall `json:"calls"` // the longest first
}

type topCall struct {
	Name    string  `json:"name"`
	System  bool    `json:"system,omitempty"`
	Calls   uint64  `json:"calls"`
	Seconds float64 `json:"seconds"`
}

// topLoop prints what is counted. own are the threads of libckpt's own before that.
func topLoop(ctx context.Context, calls *tap.Calls, ranks []watchedRank, own []int, o topOptions, stdout io.Writer) error {
	since := time.Now()
	_, screen := terminal(stdout)
	for n := 0; o.count == 0 || n < o.count; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.period):
		}
		sums, err := calls.Read()
		if err != nil {
			return err
		}
		now := time.Now()
		before := own
		own = ownThreads("/proc", ranks) // some may be new, and some gone
		sums = slices.DeleteFunc(sums, func(s tap.Sum) bool {
			return s.System && (slices.Contains(before, s.Thread) || slices.Contains(own, s.Thread))
		})
		r := topOf(sums, ranks, now.Sub(since))
		r.Time, since = now, now
		if o.asJSON {
			err = json.NewEncoder(stdout).Encode(r)
		} else {
			if screen {
				_, _ = io.WriteString(stdout, "\x1b[H\x1b[2J")
			}
			err = r.print(stdout, o.calls)
		}
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(ranks, func(w watchedRank) bool { return alive(w.pid) }) {
			if !o.asJSON {
				_, _ = fmt.Fprintln(stdout, "the job has ended")
			}
			return nil
		}
	}
	return nil
}

func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}

// topOf says of each rank what its threads did.
func topOf(sums []tap.Sum, ranks []watchedRank, length time.Duration) *topReport {
	r := &topReport{Seconds: length.Seconds(), Ranks: []topRank{}}
	at := map[int]int{}
	for i, w := range ranks {
		at[w.pid] = i
		r.Ranks = append(r.Ranks, topRank{Rank: w.rank, PID: w.pid, Library: w.library, Below: w.below, Calls: []topCall{}})
	}
	for _, s := range sums {
		i, ok := at[s.PID]
		if !ok {
			continue
		}
		t, seconds := &r.Ranks[i], float64(s.Nanoseconds)/1e9
		same := slices.IndexFunc(t.Calls, func(c topCall) bool { return c.Name == s.Name && c.System == s.System })
		if same < 0 {
			same = len(t.Calls)
			t.Calls = append(t.Calls, topCall{Name: s.Name, System: s.System})
		}
		c := &t.Calls[same]
		c.Calls, c.Seconds = c.Calls+s.Calls, c.Seconds+seconds
		if s.System {
			t.SystemCalls, t.SystemSeconds = t.SystemCalls+s.Calls, t.SystemSeconds+seconds
		} else {
			t.MPICalls, t.MPISeconds = t.MPICalls+s.Calls, t.MPISeconds+seconds
		}
	}
	for i := range r.Ranks {
		sortCalls(r.Ranks[i].Calls)
	}
	return r
}

func sortCalls(list []topCall) {
	slices.SortFunc(list, func(a, b topCall) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name))
	})
}

func (r *topReport) print(w io.Writer, longest int) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	share := func(seconds float64) string { return fmt.Sprintf("%.1f%%", 100*seconds/r.Seconds) }
	rate := func(n uint64) string { return fmt.Sprintf("%.0f", float64(n)/r.Seconds) }
	_, _ = fmt.Fprintf(tw, "%s, %s\nRANK\tPID\tMPI/s\tIN MPI\tSYSTEM/s\tIN SYSTEM\tLONGEST MPI\n", r.Time.Format(time.TimeOnly), durationText(secondsOf(r.Seconds)))
	all := map[topCall]*topCall{}
	below := false
	for _, t := range r.Ranks {
		most := "-"
		for _, c := range t.Calls {
			if !c.System && most == "-" {
				most = c.Name + " " + share(c.Seconds)
			}
			sum := all[topCall{Name: c.Name, System: c.System}]
			if sum == nil {
				sum = &topCall{Name: c.Name, System: c.System}
				all[*sum] = sum
			}
			sum.Calls, sum.Seconds = sum.Calls+c.Calls, sum.Seconds+c.Seconds
		}
		below = below || t.Below
		_, _ = fmt.Fprintf(tw, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", t.Rank, t.PID, rate(t.MPICalls), share(t.MPISeconds), rate(t.SystemCalls), share(t.SystemSeconds), most)
	}
	var list []topCall
	for _, c := range all {
		list = append(list, *c)
	}
	sortCalls(list)
	if len(list) > 0 && longest > 0 {
		_, _ = fmt.Fprintf(tw, "\nCALL\tKIND\tCALLS/s\tTIME\tEACH\t\t\n")
	}
	for _, c := range list[:min(longest, len(list))] {
		kind := "MPI"
		if c.System {
			kind = "system"
		}
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t\t\n", c.Name, kind, rate(c.Calls), share(c.Seconds/float64(len(r.Ranks))),
			briefText(secondsOf(c.Seconds/float64(c.Calls))))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if below {
		_, _ = fmt.Fprintln(w, "MPI calls are those of libckpt to the MPI below: its library does not tell which functions it has")
	}
	_, err := fmt.Fprintln(w)
	return err
}
