// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"

	"github.com/libckpt/libckpt/internal/tap"
)

func tapProbes() []Probe {
	return []Probe{{
		Name: "watching by eBPF", For: "ckptctl top, and ckptctl checkpoint --witness; nothing else needs it",
		Advice: "run these two as root on the host, or give ckptctl CAP_BPF and CAP_PERFMON; a container's seccomp profile may forbid bpf(2)",
		Run: func(context.Context) (Outcome, string) {
			err := tap.Allowed()
			switch {
			case err == nil:
				return Yes, ""
			case errors.Is(err, tap.ErrPrivilege), errors.Is(err, tap.ErrKernel):
				return No, err.Error()
			}
			return Unknown, err.Error()
		},
	}}
}
