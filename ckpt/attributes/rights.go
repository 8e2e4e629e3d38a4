// SPDX-License-Identifier: Apache-2.0

package attributes

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// rights are lines of /proc/PID/status, and what people call them.
var rights = [][2]string{{"Uid", "user ids"}, {"Gid", "group ids"}, {"Groups", "groups"}, {"CapInh", "capabilities"}, {"CapPrm", "capabilities"},
	{"CapEff", "capabilities"}, {"CapBnd", "capabilities"}, {"CapAmb", "capabilities"}}

// GivenUp says in which rights a thread of the program differs from the calling thread, which is libckpt's and has those with which the
// process began; "" where none does.
func GivenUp(threads []ThreadID, asked Asked) (string, error) {
	if asked&Filter != 0 {
		return "the program has a filter for its system calls (seccomp), without which a restart would run it", nil
	}
	if asked&Rights == 0 {
		return "", nil
	}
	own, err := rightsOf(unix.Gettid())
	if err != nil {
		return "", err
	}
	for _, t := range threads {
		its, err := rightsOf(t.Real)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return "", err
		}
		for _, right := range rights {
			name, what := right[0], right[1]
			if its[name] != own[name] {
				return fmt.Sprintf("the program has changed its %s (%s: %q, before %q), with which a restart would not run it", what, name, its[name], own[name]), nil
			}
		}
	}
	return "", nil
}

// Rings tells how many contexts of asynchronous I/O (io_setup) this process has: the kernel maps a ring for each.
func Rings(asked Asked) (n int, err error) {
	if asked&AIO == 0 {
		return 0, nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	return strings.Count(string(maps), " /[aio]"), err
}

func rightsOf(tid int) (map[string]string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/status", tid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]string{}
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		name, value, _ := strings.Cut(sc.Text(), ":")
		all[name] = strings.Join(strings.Fields(value), " ")
	}
	return all, sc.Err()
}
