// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// perftests are programs of perftest: two processes that keep a TCP connection. They are linked with libmlx5 and libefa.
var perftests = []string{"ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw", "ib_send_lat"}

// perftestArgv is the command of the server, and of the client.
func perftestArgv(name string, options ...string) [2][]string {
	server := append([]string{name, "-p", strconv.Itoa(20000 + int(nextPort.Add(1))), "-F"}, append(rxeOptions("-d", "rxe0", "-x", "1"), options...)...)
	return [2][]string{server, append(slices.Clone(server), "127.0.0.1")}
}

func needPerftest(t *testing.T) {
	t.Helper()
	need(t)
	if _, err := exec.LookPath(perftests[0]); err != nil {
		needmpi.Skip(t, "no perftest", fmt.Sprintf("%v: make setup with `test` installs it", err))
	}
}

var (
	perftestAddress = regexp.MustCompile(`(?m)^ *(local|remote) address: .*$`)
	perftestResult  = regexp.MustCompile(`(?m)^ *(\d+) +(\d+) +\d+\.\d+[ \t\d.-]*$`) // bytes, iterations, times
)

// A perftest prints under ckptrun what it prints natively, but for addresses and times.
func TestPerftestUnderCkptrun(t *testing.T) {
	needPerftest(t)
	for _, name := range perftests {
		t.Run(name, func(t *testing.T) {
			needmpi.Time(t)
			argv := perftestArgv(name, "-n", "300")
			native, w := newPair(t, argv), newPair(t, argv)
			must(t, native.Natively())
			must(t, native.MustEnd(jobLimit))
			must(t, w.Start("shell"))
			must(t, w.MustEnd(jobLimit))
			for r := range w.Ranks {
				want := mustRead(t, fmt.Sprintf("%s.out.%d", native.Files, r))
				got := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))
				plain := func(s string) string {
					return perftestResult.ReplaceAllString(perftestAddress.ReplaceAllString(s, "$1"), "$1 $2")
				}
				if plain(got) != plain(want) {
					t.Errorf("rank %d prints %q, natively %q", r, got, want)
				}
				if m := perftestResult.FindStringSubmatch(got); name != "ib_send_lat" && r == 1 && (m == nil || m[2] != "300") {
					t.Errorf("rank %d does not say that it did 300 iterations: %q", r, got)
				}
			}
		})
	}
}

// A perftest that runs for a time is saved at a moment of its own, killed and continued, with the connection that it keeps.
func TestPerftestSaved(t *testing.T) {
	needPerftest(t)
	s := seed(t)
	for i, name := range perftests {
		t.Run(name, func(t *testing.T) {
			needmpi.Time(t)
			w := newPair(t, perftestArgv(name, "-D", strconv.Itoa(few(8, 30))))
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(i))), within: within(2 * time.Second), lives: few(2, 1)}
			l.run()
			got := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, 1))
			m := perftestResult.FindStringSubmatch(got)
			if m == nil || m[2] == "0" {
				t.Errorf("the client does not say what it has measured: %s%s", got, w.Said())
			}
		})
	}
}

// functions are those that a library has for programs, each with its version.
func functions(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	must(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	must(t, err)
	var all []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			all = append(all, fmt.Sprintf("%s@%s %t", s.Name, s.Version, s.VersionIndex.IsHidden()))
		}
	}
	slices.Sort(all)
	return all
}

// What stands in for the libraries of some adapters has their functions, in their versions; it may have those of newer releases, too.
func TestDirectFunctions(t *testing.T) {
	for _, name := range []string{"libmlx5.so.1", "libmlx4.so.1", "libefa.so.1", "libmana.so.1", "libhns.so.1", "librdmacm.so.1"} {
		t.Run(name, func(t *testing.T) {
			needmpi.Time(t)
			theirs := filepath.Join("/usr/lib/x86_64-linux-gnu", name)
			to, err := os.Readlink(theirs)
			if err != nil {
				needmpi.Skip(t, "no "+name, err.Error())
			}
			// libmlx5.so.1.25.56.1 is of rdma-core 56.
			release, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(strings.TrimSuffix(to, filepath.Ext(to))), "."))
			must(t, err)
			if known := map[bool]int{true: 56, false: 65}[name == "librdmacm.so.1"]; release > known {
				needmpi.Skip(t, "newer rdma-core", fmt.Sprintf("%s is of rdma-core %d", theirs, release))
			}
			want, got := functions(t, theirs), functions(t, filepath.Join(built.Root, "build/lib/ckpt/front", name))
			lack := slices.DeleteFunc(slices.Clone(want), func(f string) bool { return slices.Contains(got, f) })
			if len(want) == 0 || len(lack) > 0 {
				t.Errorf("of %d functions it lacks %q", len(want), lack)
			}
		})
	}
}
