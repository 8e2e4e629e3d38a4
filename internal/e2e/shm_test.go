// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// commons is commons.c.
var commons = sync.OnceValues(func() (string, error) {
	return compileRuntime(built.Bin, "commons", filepath.Join(built.Root, "build", "include"))
})

// noSegments fails the test when files of segments are left at the end. Others on this machine may be making theirs:
// those go away.
func noSegments(t *testing.T) {
	t.Helper()
	before := segmentFiles(t)
	t.Cleanup(func() {
		var left []string
		Poll(20*time.Second, nil, func() bool {
			left = slices.DeleteFunc(segmentFiles(t), func(name string) bool { return slices.Contains(before, name) })
			return len(left) == 0
		})
		if len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	})
}

var segmentFile = regexp.MustCompile(`/libckpt-[0-9a-f]{16}-`)

func segmentFiles(t *testing.T) (files []string) {
	t.Helper()
	names, err := filepath.Glob("/dev/shm/libckpt-*")
	must(t, err)
	for _, name := range names {
		if segmentFile.MatchString(name) {
			files = append(files, name)
		}
	}
	return files
}

// TestSharedSegments kills jobs with kill -9 at random moments, in several generations. Their processes share memory,
// which each of them changes in every step; the program saves itself, and operators ask at the same time. A job that is
// killed as a whole in the moment in which its files have names leaves them (docs/limits.md), so nobody looks here.
func TestSharedSegments(t *testing.T) {
	const generations, steps, every = 5, 2000, 60
	native := newWholeOf(t, commons, "run", steps, every)
	must(t, native.Natively())
	must(t, native.MustEnd(wholeLimit))
	w := newWholeOf(t, commons, "run", steps, every)
	must(t, w.Start("shell"))
	stop := keepAsking(t, w)
	generation := 0
	for ; generation < generations; generation++ {
		before := epochOf(t, w)
		// An odd one is killed wherever it is, perhaps in the middle of its restart.
		if generation%2 == 1 || awaitEpochAfter(t, w, before) {
			time.Sleep(rand.N(300 * time.Millisecond)) // the random moment
		}
		if w.Ended() {
			break
		}
		must(t, w.Kill(wholeLimit, true))
		must(t, w.Restart("shell"))
	}
	err := w.MustEnd(wholeLimit)
	asked := stop()
	if err != nil {
		t.Fatalf("generation %d: %v", generation, err)
	}
	if err := w.Same(native); err != nil {
		t.Errorf("%v\n%s", err, w.Said())
	}
	t.Logf("%d generations, others asked %d times with success", generation, asked)
	if generation < generations-1 || asked == 0 {
		t.Errorf("%d generations, others asked %d times with success\n%s", generation, asked, w.Said())
	}
	if bad := strings.Count(w.Said(), ": error:"); bad > 0 {
		t.Errorf("%d checkpoints ended in an error:\n%s", bad, w.Said())
	}
	verifies(t, w)
}

// The leader's image has the content of a segment, the others' have none of it, and nobody's that of one of zeros. When
// the leader has unmapped it, the next one leads.
func TestSharedSegmentInImages(t *testing.T) {
	noSegments(t)
	w := newWholeOf(t, commons, "run", 10, 10) // process 2 has unmapped its "half"
	must(t, w.Start("shell"))
	must(t, w.MustEnd(wholeLimit))
	line := regexp.MustCompile(`(?m)^.* shared,anonymous(\S*) +\[shared (\w+)\]$`)
	for r, want := range []string{
		"half: none, pasture: data, scratch: no-data", "half: none, pasture: no-data, scratch: no-data",
		"half: none, pasture: no-data, scratch: no-data", "half: data, pasture: no-data, scratch: no-data",
	} {
		exit, said, err := w.Ckptctl(t.TempDir(), wholeLimit, "inspect", w.Run.Checkpoints(), "--rank", fmt.Sprint(r))
		if err != nil || exit != (Exit{}) {
			t.Fatalf("ckptctl inspect: %v %v\n%s", exit, err, said)
		}
		is := map[string]string{"half": "none", "pasture": "none", "scratch": "none"}
		for _, m := range line.FindAllStringSubmatch(said, -1) {
			is[m[2]] = map[string]string{"": "data", ",no-data": "no-data"}[m[1]]
		}
		if got := fmt.Sprintf("half: %s, pasture: %s, scratch: %s", is["half"], is["pasture"], is["scratch"]); got != want {
			t.Errorf("image of rank %d: %s, want %s\n%s", r, got, want, said)
		}
	}
}

// What is wrong with a call is told in words, by a code, and to all processes alike, under ckptrun and without it.
func TestSharedSegmentsWrong(t *testing.T) {
	noSegments(t)
	want := `no name: -1 ckpt_shm has no name, or no list of processes
empty name: -1 shared segment "": a name has 1 to 63 characters, this one 0
long name: -1 shared segment "x{64}": a name has 1 to 63 characters, this one 64
slash: -1 shared segment "a/b": a name is made of letters, digits, and the characters . _ -
no bytes: -1 shared segment "a": 0 bytes: it must have some, and at most 2\^46
too many bytes: -1 shared segment "a": 18446744073709551615 bytes: .*
no processes: -1 shared segment "a": its list of processes is empty
no list: -1 ckpt_shm has no name, or no list of processes
descending: -1 shared segment "a": its list of processes must ascend: 0 comes after 1
no such process: -1 shared segment "a": there is no process 64 among 4
negative: -1 shared segment "a": there is no process -1 among 4
without me: -1 shared segment "a": its list of processes, \d, lacks this one, \d
flags: -7 ckpt_shm has flags that this libckpt does not know: 0x6
no job: -1 this is no open job: .*
no struct: -1 ckpt_shm_map was given no ckpt_shm, or no place for the address
no place: -1 ckpt_shm_map was given no ckpt_shm, or no place for the address
no size: -7 the runtime's ckpt_shm has 8 bytes, and version 1.1 of ckpt.h has 40: .*
unmap unknown: -1 
unmap nothing: -1 
sizes: -1 shared segment "b": process 0 asks for 4096 bytes, process 2 for 4097
zero: -1 shared segment "b": CKPT_SHM_ZERO is set in process 0 or in process 1, and not in both
(?:lists: -1 shared segment "c": process 0 shares it among processes 0, 1, 3, process 3 among 0, 1, 2, 3
)?good: 0 
used: -2 shared segment "b": process 0 has a segment of this name
(?:alone, unmapped: 0 
)?used by others: -2 shared segment "b": process 1 has a segment of this name
(?:unmapped: 0 
)?again: 0 
own: 0 
`
	lines := regexp.MustCompile(`^` + strings.ReplaceAll(want, " . _ -", ` \. _ -`) + `$`)
	for _, natively := range []bool{true, false} {
		w := newWholeOf(t, commons, "wrong")
		if natively {
			must(t, w.Natively())
		} else {
			must(t, w.Start("shell"))
		}
		must(t, w.MustEnd(wholeLimit))
		for r := range w.Ranks {
			if got := string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))); !lines.MatchString(got) {
				t.Errorf("natively %v, rank %d:\n%s", natively, r, got)
			}
		}
	}
}

// ownShm is a command that runs another in a mount namespace with a /dev/shm of its own.
func ownShm(size string) []string {
	return []string{"unshare", "--mount", "/bin/sh", "-c", `mount -t tmpfs -o size="$0" tmpfs /dev/shm && exec "$@"`, size}
}

// A segment has all its memory from the beginning: where there is not enough, each process is told so, and none is
// killed later.
func TestSharedSegmentNoRoom(t *testing.T) {
	needRoot(t)
	w := newWholeOf(t, commons, "once", 2<<20)
	w.Argv = append(ownShm("1m"), w.Argv...)
	must(t, w.Natively()) // each has its own: not one node
	must(t, w.MustEnd(wholeLimit))
	apart := regexp.MustCompile(`^once: -6 shared segment "once": processes 0 and 1, both on host .*, have different file systems at /dev/shm: its processes, 0, 1, 2, 3, must run on one node\n$`)
	for r := range w.Ranks {
		if got := string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))); !apart.MatchString(got) {
			t.Errorf("rank %d on a node of its own: %q", r, got)
		}
	}

	w = newWholeOf(t, commons, "once", 2<<20)
	w.Ranks = 2
	launcher := append(ownShm("1m"), "/bin/sh", "-c",
		`CKPT_RANK=0 "$@" >"$0.0" & p=$!; CKPT_RANK=1 "$@" >"$0.1" || exit 1; wait $p`, filepath.Join(w.Run.Work(), "out"))
	w.Argv = append(launcher, append([]string{w.CkptRun, "--whole", "--dir", w.Run.Checkpoints(), "--"}, w.Argv...)...)
	w.Ranks = 1
	w.Env = append(w.Env, "CKPT_SIZE=2")
	must(t, w.launch("shell", nil, w.Argv))
	_, err := w.Wait(wholeLimit)
	must(t, err)
	full := regexp.MustCompile(`^once: -3 shared segment "once": /dev/shm has no room for its 2097152 bytes \(no space left on device\): .*\n$`)
	for r := range 2 {
		if got := string(mustRead(t, filepath.Join(w.Run.Work(), fmt.Sprint("out.", r)))); !full.MatchString(got) {
			t.Errorf("rank %d: %q\n%s", r, got, w.Said())
		}
	}
}

// Processes that shared memory are refused on two nodes, before anything of the program runs or is changed, and go on
// on one.
func TestSharedSegmentsTwoNodes(t *testing.T) {
	needRoot(t)
	noSegments(t)
	const steps, every = 600, 50
	native := newWholeOf(t, commons, "run", steps, every)
	must(t, native.Natively())
	must(t, native.MustEnd(wholeLimit))
	w := newWholeOf(t, commons, "run", steps, every)
	must(t, w.Start("shell"))
	if !awaitEpochAfter(t, w, 0) {
		t.Fatal("it has ended before it was saved")
	}
	must(t, w.Kill(wholeLimit, true))
	restart := []string{w.CkptRun, "--whole", "--restart", w.Run.Checkpoints()}
	wrapper := filepath.Join(w.Run.Work(), "node")
	must(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nif [ \"$CKPT_RANK\" = 3 ]; then exec unshare --mount /bin/sh -c 'mount -t tmpfs tmpfs /dev/shm && exec \"$@\"' sh \"$@\"; fi\nexec \"$@\"\n"), 0o755))
	must(t, w.launch("shell", append([]string{wrapper}, restart...), nil))
	exits, err := w.Wait(wholeLimit)
	must(t, err)
	for r, exit := range exits {
		said := string(mustRead(t, fmt.Sprintf("%s.err.%d", w.Files, r)))
		want := `(?m)shared segment "(half|pasture|scratch)": processes [02] and 3, both on host .*, have different file systems at /dev/shm: its processes, .*, must run on one node`
		if exit == (Exit{}) || !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("rank %d: %v\n%s", r, exit, said)
		}
	}
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(wholeLimit))
	if err := w.Same(native); err != nil {
		t.Errorf("%v\n%s", err, w.Said())
	}
}

// A process is killed while a segment is being made, mapped, or made again: the others are told so and end, and no
// file is left.
func TestSharedSegmentKilled(t *testing.T) {
	noSegments(t)
	for _, c := range []struct {
		rank  int
		fault string
	}{{0, "shm.allocate"}, {0, "shm.made"}, {0, "shm.mapped"}, {2, "shm.mapped"}} {
		t.Run(fmt.Sprint(c.rank, c.fault), func(t *testing.T) {
			w := newWholeOf(t, commons, "once")
			w.CkptRun = filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
			w.RankEnv = map[int][]string{c.rank: {"CKPT_FAULT=" + c.fault + "=kill"}}
			must(t, w.Start("shell"))
			exits, err := w.Wait(wholeLimit)
			must(t, err)
			lost := regexp.MustCompile(fmt.Sprintf(`^once: -5 shared segment "once": it is not mapped: rank %d is lost .*\n$`, c.rank))
			for r := range exits {
				got := string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r)))
				if r != c.rank && !lost.MatchString(got) || r == c.rank && got != "" {
					t.Errorf("rank %d: %v %q\n%s", r, exits[r], got, w.Said())
				}
			}
		})
	}
}

// A process ends and has not come: the others are told, under ckptrun and without it.
func TestSharedSegmentNotCome(t *testing.T) {
	noSegments(t)
	for _, natively := range []bool{true, false} {
		w := newWholeOf(t, commons, "once", 0)
		if natively {
			must(t, w.Natively())
		} else {
			must(t, w.Start("shell"))
		}
		_, err := w.Wait(wholeLimit)
		must(t, err)
		for _, r := range []int{0, 2, 3} {
			want := `once: -5 shared segment "once": it is not mapped: rank 1 is lost `
			if got := string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))); !strings.HasPrefix(got, want) {
				t.Errorf("natively %v, rank %d: %q\n%s", natively, r, got, w.Said())
			}
		}
	}
}

// A process is killed, or has no room, while segments are made again: all end, all say who it was or hear it from
// the launcher, no file is left, and the next restart goes on, and makes a segment more.
func TestSharedSegmentRestartFails(t *testing.T) {
	noSegments(t)
	const steps, every = 300, 50
	native := newWholeOf(t, commons, "run", steps, every, "late")
	must(t, native.Natively())
	must(t, native.MustEnd(wholeLimit))
	w := newWholeOf(t, commons, "run", steps, every, "late")
	w.CkptRun = filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
	must(t, w.Start("shell"))
	if !awaitEpochAfter(t, w, 0) {
		t.Fatal("it has ended before it was saved")
	}
	must(t, w.Kill(wholeLimit, true))
	for _, fault := range []string{"shm.allocate=enospc", "shm.remade=kill"} {
		w.RankEnv = map[int][]string{0: {"CKPT_FAULT=" + fault}}
		must(t, w.Restart("shell"))
		exits, err := w.Wait(wholeLimit)
		must(t, err)
		for r, exit := range exits {
			if exit == (Exit{}) {
				t.Errorf("%s: rank %d ends as if all were well\n%s", fault, r, w.Said())
			}
			said := string(mustRead(t, fmt.Sprintf("%s.err.%d", w.Files, r)))
			want := regexp.MustCompile(`shared segment "pasture": /dev/shm has no room for its \d+ bytes .* \(process 0, host .*\)`)
			if fault == "shm.allocate=enospc" && !want.MatchString(said) {
				t.Errorf("rank %d: %s", r, said)
			}
		}
	}
	w.RankEnv = nil
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(wholeLimit))
	if err := w.Same(native); err != nil {
		t.Errorf("%v\n%s", err, w.Said())
	}
}
