// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// minFiles: descriptors from 256 on are libckpt's and MPI's, so that the application keeps its own.
const minFiles = 1024

// limitProbes ask for limits of this user's processes.
func limitProbes() []Probe {
	return []Probe{
		{
			Name: "open files", For: "moving MPI's descriptors out of the application's way", Needed: true,
			Advice: fmt.Sprintf("raise the hard limit to %d or more: ulimit -Hn, /etc/security/limits.conf, "+
				"or LimitNOFILE of the batch system's service", minFiles),
			Run: func(context.Context) (Outcome, string) { return limit(unix.RLIMIT_NOFILE, minFiles) },
		},
		{
			Name: "address space", For: "the range of addresses in which the application runs", Needed: true,
			Advice: "ulimit -v unlimited: addresses are reserved, not memory; limit memory with cgroups instead",
			Run:    func(context.Context) (Outcome, string) { return limit(unix.RLIMIT_AS, unix.RLIM_INFINITY) },
		},
		{
			Name: "size of files", For: "images, which are as large as the memory of a rank",
			Advice: "ulimit -f unlimited",
			Run:    func(context.Context) (Outcome, string) { return limit(unix.RLIMIT_FSIZE, unix.RLIM_INFINITY) },
		},
		{
			Name: "processes", For: "the process that holds the snapshot, one a rank",
			Advice: "raise ulimit -u: each rank has a few threads and, during a checkpoint, one more process",
			Run:    func(context.Context) (Outcome, string) { return limit(unix.RLIMIT_NPROC, 256) },
		},
		{
			Name: "number of mappings", For: "restoring processes with many mappings",
			Advice: "sysctl vm.max_map_count=65530 or more",
			Run: func(context.Context) (Outcome, string) {
				p, err := os.ReadFile("/proc/sys/vm/max_map_count")
				if err != nil {
					return Unknown, err.Error()
				}
				s := strings.TrimSpace(string(p))
				n, err := strconv.Atoi(s)
				if err != nil {
					return Unknown, err.Error()
				}
				if n < 65530 {
					return No, s
				}
				return Yes, s
			},
		},
	}
}

// limit compares a hard limit, up to which ckptrun may raise the soft one.
func limit(which int, want uint64) (Outcome, string) {
	var l unix.Rlimit
	if err := unix.Getrlimit(which, &l); err != nil {
		return Unknown, err.Error()
	}
	detail := limitText(l.Cur)
	if l.Cur != l.Max {
		detail += ", at most " + limitText(l.Max)
	}
	if l.Max < want {
		return No, detail
	}
	return Yes, detail
}

func limitText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
