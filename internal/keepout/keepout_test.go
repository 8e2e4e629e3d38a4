// SPDX-License-Identifier: Apache-2.0

package keepout

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	arena    = 0x100000000000
	arenaEnd = 0x10c000000000
	low      = 1 << 31
	block    = 64 << 20 // what Go's runtime reserves at a time
)

func TestHints(t *testing.T) {
	const anonymous = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	for _, c := range []struct {
		name    string
		addr    uint64
		flags   int
		granted bool
	}{
		{"first of the arena", arena, anonymous, false},
		{"in the arena", arena + 100<<30, anonymous, false},
		{"last of the arena", arenaEnd - block, anonymous, false},
		{"into the arena", arena - block/2, anonymous, false},
		{"out of the arena", arenaEnd - block/2, anonymous, false},
		{"below 2 GiB", low - 2*block, anonymous, false},
		{"last below the arena", arena - block, anonymous, true},
		{"first behind the arena", arenaEnd, anonymous, true},
		// A fixed address is no hint: who gives one knows why.
		{"fixed", arena + 200<<30, anonymous | unix.MAP_FIXED, true},
		{"fixed, if free", arena + 200<<30, anonymous | unix.MAP_FIXED_NOREPLACE, true},
	} {
		before := Hints()
		at, ok := mapAt(c.addr, block, c.flags)
		if !ok {
			t.Fatalf("%s: mmap failed", c.name)
		}
		if got := at == c.addr; got != c.granted {
			t.Errorf("%s: asked for 0x%x, got 0x%x", c.name, c.addr, at)
		}
		if counted := Hints() - before; counted == 0 != c.granted {
			t.Errorf("%s: %d hints counted", c.name, counted)
		}
		if _, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(at), block, 0); e != 0 {
			t.Fatal(e)
		}
	}
}

// seeds are starts of Go's runtime, each with another random number, always the same ones.
const seeds = 400

const childEnv = "KEEPOUT_TEST_CHILD"

// seedSource is a library that goes before the program's own and decides the random number from which Go's
// runtime takes the place of its heap.
const seedSource = `
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
__attribute__((constructor)) static void seed(void) {
    uint64_t n[2] = {strtoull(getenv("KEEPOUT_TEST_SEED"), NULL, 10), 0x9e3779b97f4a7c15ull};
    memcpy((void *)getauxval(AT_RANDOM), n, sizeof n);
}
`

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(m.Run())
}

// keep holds on to memory, so that the heap grows.
var keep [][]byte

// child lets the heap grow over several blocks and prints what lies where it should not.
func child() int {
	for range 3 {
		keep = append(keep, make([]byte, block))
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var start, end uint64
		if _, err := fmt.Sscanf(sc.Text(), "%x-%x", &start, &end); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// The test program itself may lie below 2 GiB.
		if start < arenaEnd && end > arena || end <= low && !strings.Contains(sc.Text(), "/") && end-start >= block {
			fmt.Println("mapped:", sc.Text())
		}
	}
	fmt.Println("left out:", Hints(), "of", Calls())
	return 0
}

// TestStarts: wherever Go's runtime wants its heap, it does not get it in the arena.
func TestStarts(t *testing.T) {
	library := filepath.Join(t.TempDir(), "seed.so")
	build := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", library, "-xc", "-")
	build.Stdin = strings.NewReader(seedSource)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	var wanted, calls uint64
	var mu sync.Mutex
	var group sync.WaitGroup
	next := make(chan int)
	for range 2 {
		group.Go(func() {
			for seed := range next {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), childEnv+"=1", "LD_PRELOAD="+library, "KEEPOUT_TEST_SEED="+strconv.Itoa(seed))
				out, err := cmd.CombinedOutput()
				last := strings.TrimSpace(string(out))
				last = last[strings.LastIndexByte(last, '\n')+1:]
				var hints, all uint64
				if _, e := fmt.Sscanf(last, "left out: %d of %d", &hints, &all); err != nil || e != nil {
					t.Errorf("seed %d: %v: %s", seed, err, out)
					continue
				}
				if strings.Contains(string(out), "mapped:") {
					t.Errorf("seed %d: %s", seed, out)
				}
				mu.Lock()
				if hints > 0 {
					wanted++
				}
				calls += all
				mu.Unlock()
			}
		})
	}
	for seed := range seeds {
		next <- seed
	}
	close(next)
	group.Wait()
	t.Logf("%d starts, %d asked for an address of the program's", seeds, wanted)
	if wanted == 0 || calls == 0 {
		t.Errorf("%d calls of Go's runtime, none for an address of the program's: this shows nothing", calls)
	}
}
