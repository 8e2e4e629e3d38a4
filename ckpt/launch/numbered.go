// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"strconv"
)

// Numbers are a rank and the number of ranks that somebody other than an MPI launcher gave this process.
type Numbers struct {
	Rank, Ranks int
	From        string // the variables, for messages
	Job         string // tells jobs apart, the same on all ranks; "" when nothing does
}

// NumbersOf reads CKPT_RANK and CKPT_SIZE, with CKPT_JOB if it is set, else what Slurm tells a process that srun
// started. The result is nil when there are neither.
//
// These concern a runtime that is saved with its program, whose ranks ckptrun must bring together itself. In all
// other jobs the MPI does that, and a process without an MPI launcher is a job of its own.
func NumbersOf(getenv func(string) string) (*Numbers, error) {
	if rank, size := getenv("CKPT_RANK"), getenv("CKPT_SIZE"); rank != "" || size != "" {
		return numbers("CKPT_RANK", rank, "CKPT_SIZE", size, getenv("CKPT_JOB"))
	}
	// In the script of sbatch and in the shell of salloc, SLURM_PROCID is 0 and SLURM_NTASKS is what the job may
	// start. A step is a process of srun's only if it has the number of an ordinary one.
	step := getenv("SLURM_STEP_ID")
	if n, err := strconv.ParseUint(step, 10, 32); err != nil || n >= slurmSpecial || getenv("SLURM_PROCID") == "" {
		return nil, nil
	}
	sizeName := "SLURM_STEP_NUM_TASKS" // of this step; SLURM_NTASKS may be the whole job's
	if getenv(sizeName) == "" {
		sizeName = "SLURM_NTASKS"
	}
	job := ""
	if id := getenv("SLURM_JOB_ID"); id != "" {
		job = "slurm " + id + "." + step
	}
	return numbers("SLURM_PROCID", getenv("SLURM_PROCID"), sizeName, getenv(sizeName), job)
}

// slurmSpecial is the first number of Slurm's special steps: batch scripts, shells, prologs (SLURM_MAX_NORMAL_STEP_ID).
const slurmSpecial = 0xfffffff0

// maxNumbers bounds the number of ranks, so that a slip of the keyboard is not memory for as many.
const maxNumbers = 1 << 24

func numbers(rankName, rank, sizeName, size, job string) (*Numbers, error) {
	if rank == "" || size == "" {
		return nil, fmt.Errorf("%s is %q and %s is %q: both are needed", rankName, rank, sizeName, size)
	}
	r, err := strconv.Atoi(rank)
	if err != nil || r < 0 {
		return nil, fmt.Errorf("%s is %q, want the number of a rank", rankName, rank)
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 1 || n > maxNumbers {
		return nil, fmt.Errorf("%s is %q, want the number of ranks", sizeName, size)
	}
	if r >= n {
		return nil, fmt.Errorf("%s is %d and %s is %d: ranks are 0 to %d", rankName, r, sizeName, n, n-1)
	}
	return &Numbers{r, n, rankName + " and " + sizeName, job}, nil
}

// WholeLaunched is Launched for a runtime that is saved with its program.
func WholeLaunched(getenv func(string) string) bool {
	return Launched(getenv) || getenv("PMI_PORT") != "" || WholeRank(getenv) >= 0
}

// WholeRank is LauncherRank for a runtime that is saved with its program: the ranks of NumbersOf count too. It is -1
// where NumbersOf has an error.
func WholeRank(getenv func(string) string) int {
	if r := LauncherRank(getenv); r >= 0 {
		return r
	}
	if getenv("PMI_PORT") != "" {
		if r, err := strconv.Atoi(getenv("PMI_ID")); err == nil && r >= 0 {
			return r
		}
	}
	if n, err := NumbersOf(getenv); err == nil && n != nil {
		return n.Rank
	}
	return -1
}

// WholeRanks is LauncherRanks for a runtime that is saved with its program.
func WholeRanks(getenv func(string) string) int {
	if n := LauncherRanks(getenv); n > 0 || LauncherRank(getenv) >= 0 {
		return n
	}
	if n, err := NumbersOf(getenv); err == nil && n != nil {
		return n.Ranks
	}
	return 0
}
