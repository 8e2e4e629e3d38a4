// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"strconv"
)

// AutoRanks is Options.Ranks when the launcher says how many there are.
const AutoRanks = -1

// maxRanks bounds --ranks: each process has a connection to rank 0 while they meet.
const maxRanks = 1 << 16

func parseRanks(v string) (int, error) {
	if v == "auto" {
		return AutoRanks, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxRanks {
		return 0, fmt.Errorf("%q is neither auto nor a number from 1 to %d", v, maxRanks)
	}
	return n, nil
}

func ranksText(n int) string {
	if n == AutoRanks {
		return "auto"
	}
	return strconv.Itoa(n)
}

// takeRanks checks what --ranks and --rank say together.
func (o *Options) takeRanks(given bool) error {
	switch {
	case given && o.Rank < 0:
		return usage("--rank %d: ranks are 0 to N-1", o.Rank)
	case given && o.Ranks == 0 && o.Restart == "":
		return usage("--rank needs --ranks N, the number of processes of the job")
	case o.Ranks > 0 && o.Rank >= o.Ranks:
		return usage("--rank %d and --ranks %d: ranks are 0 to %d", o.Rank, o.Ranks, o.Ranks-1)
	case o.Ranks != 0 && o.Whole:
		return usage("--ranks is for processes without MPI or another runtime, and --whole for processes with one: leave one of them out")
	}
	return nil
}

// Several tells whether this process was asked to be one of several without MPI. A restart finds out from the epoch.
func (o *Options) Several() bool { return o.Ranks != 0 }

// Together says which process this is of a job of several without MPI: by --rank, else by a launcher's variables, else
// by the order in which they come to the meeting, when Rank is -1. ranks is how many an epoch has that is continued, 0
// at a start.
func (o *Options) Together(getenv func(string) string, above []Ancestor, ranks int) (*Numbers, error) {
	want := o.Ranks
	n, err := launcherNumbers(getenv, above, max(want, ranks))
	if err != nil {
		return nil, usage("%w", err)
	}
	if want == AutoRanks && n == nil && ranks == 0 {
		return nil, usage("--ranks auto: no launcher has started this process, as far as its environment says: give the number, --ranks N")
	}
	if want == AutoRanks || want == 0 {
		want = ranks
	}
	switch {
	case ranks > 0 && want != ranks:
		return nil, usage("the epoch has %d processes, and --ranks says %d: leave --ranks out, and start %d", ranks, want, ranks)
	case o.Rank >= 0 && want > 0 && o.Rank >= want:
		return nil, usage("--rank %d: the epoch has ranks 0 to %d", o.Rank, want-1)
	case o.Rank >= 0 && want > 0:
		return &Numbers{o.Rank, want, "--rank", getenv("CKPT_JOB")}, nil
	case n == nil:
		return &Numbers{-1, want, "order of arrival", getenv("CKPT_JOB")}, nil
	case want == 0:
		want = n.Ranks
	}
	if n.Ranks != want {
		return nil, usage("the job has %d processes, and the launcher started %d (%s): start as many as it has", want, n.Ranks, n.From)
	}
	if o.Rank >= 0 {
		n.Rank = o.Rank
	}
	return n, nil
}

// launcherNumbers is what an MPI launcher's variables, or those of NumbersOf, say; nil when there are none. known is how
// many ranks there are where the launcher does not say, 0 when nobody does.
func launcherNumbers(getenv func(string) string, above []Ancestor, known int) (*Numbers, error) {
	rank, ranks := LauncherRank(getenv), LauncherRanks(getenv)
	if rank < 0 {
		return NumbersOf(getenv)
	}
	if ranks == 0 { // PMIx alone, whose server would have to be asked
		ranks = known
	}
	if ranks <= 0 {
		return nil, fmt.Errorf("the launcher says that this is rank %d, and not of how many: give the number, --ranks N", rank)
	}
	if rank >= ranks {
		return nil, fmt.Errorf("the launcher says that this is rank %d of %d", rank, ranks)
	}
	job, _ := LauncherJob(getenv, above)
	return &Numbers{rank, ranks, "the launcher's variables", job}, nil
}
