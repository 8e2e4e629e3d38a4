// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strings"
	"testing"
)

func TestNumbersOf(t *testing.T) {
	type env = map[string]string
	srun := func(more env) env {
		e := env{"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}
		for k, v := range more {
			e[k] = v
		}
		return e
	}
	for name, c := range map[string]struct {
		env  env
		want *Numbers
		err  string
	}{
		"nothing":   {nil, nil, ""},
		"by hand":   {env{"CKPT_RANK": "1", "CKPT_SIZE": "3"}, &Numbers{1, 3, "CKPT_RANK and CKPT_SIZE", ""}, ""},
		"with name": {env{"CKPT_RANK": "0", "CKPT_SIZE": "1", "CKPT_JOB": "a"}, &Numbers{0, 1, "CKPT_RANK and CKPT_SIZE", "a"}, ""},
		"srun":      {srun(nil), &Numbers{2, 4, "SLURM_PROCID and SLURM_NTASKS", "slurm 77.0"}, ""},
		"srun of half a job": {srun(env{"SLURM_STEP_NUM_TASKS": "3"}),
			&Numbers{2, 3, "SLURM_PROCID and SLURM_STEP_NUM_TASKS", "slurm 77.0"}, ""},
		"by hand under srun": {srun(env{"CKPT_RANK": "5", "CKPT_SIZE": "6"}), &Numbers{5, 6, "CKPT_RANK and CKPT_SIZE", ""}, ""},
		// A script of sbatch is one process, with and without a number of its step.
		"sbatch":             {env{"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, nil, ""},
		"sbatch with a step": {srun(env{"SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "0"}), nil, ""},
		"older sbatch":       {srun(env{"SLURM_STEP_ID": "4294967294", "SLURM_PROCID": "0"}), nil, ""},
		"shell of salloc":    {srun(env{"SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"}), nil, ""},
		"batch":              {srun(env{"SLURM_STEP_ID": "batch"}), nil, ""},
		"no rank":            {env{"CKPT_SIZE": "3"}, nil, `CKPT_RANK is "" and CKPT_SIZE is "3": both`},
		"no size":            {env{"CKPT_RANK": "3"}, nil, `CKPT_SIZE is "": both`},
		"no number":          {env{"CKPT_RANK": "x", "CKPT_SIZE": "3"}, nil, `CKPT_RANK is "x"`},
		"negative":           {env{"CKPT_RANK": "-1", "CKPT_SIZE": "3"}, nil, `CKPT_RANK is "-1"`},
		"none":               {env{"CKPT_RANK": "0", "CKPT_SIZE": "0"}, nil, `CKPT_SIZE is "0"`},
		"very many":          {env{"CKPT_RANK": "0", "CKPT_SIZE": "99999999999"}, nil, `CKPT_SIZE is "99999999999"`},
		"too large":          {env{"CKPT_RANK": "3", "CKPT_SIZE": "3"}, nil, "ranks are 0 to 2"},
		"srun without tasks": {srun(env{"SLURM_NTASKS": ""}), nil, `SLURM_NTASKS is ""`},
	} {
		get := environment(c.env)
		got, err := NumbersOf(get)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || got != nil {
				t.Errorf("%s: %v, %v, want an error with %q", name, got, err, c.err)
			}
			continue
		}
		if err != nil || (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
		rank, ranks := -1, 0
		if c.want != nil {
			rank, ranks = c.want.Rank, c.want.Ranks
		}
		if WholeRank(get) != rank || WholeRanks(get) != ranks || WholeLaunched(get) != (c.want != nil) {
			t.Errorf("%s: rank %d of %d, launched %v", name, WholeRank(get), WholeRanks(get), WholeLaunched(get))
		}
		// Without a runtime that is saved with its program these are one process, as they always were.
		if Launched(get) || LauncherRank(get) != -1 || LauncherRanks(get) != 0 {
			t.Errorf("%s: an MPI launcher was seen", name)
		}
	}
}

// An MPI launcher's word counts more.
func TestWholeUnderLaunchers(t *testing.T) {
	type env = map[string]string
	slurm := func(e env) env {
		e["SLURM_JOB_ID"], e["SLURM_STEP_ID"], e["SLURM_PROCID"], e["SLURM_NTASKS"] = "7", "0", "1", "2"
		return e
	}
	for _, c := range []struct {
		env         env
		rank, ranks int
	}{
		{slurm(env{"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "9"}), 3, 4},
		{slurm(env{"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}), 5, 6},
		{env{"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_PORT": "h:1", "PMI_ID": "3"}, 3, 4},
		{env{"PMI_PORT": "h:1", "PMI_ID": "2"}, 2, 0},
		{env{"PMI_FD": "9"}, -1, 0},
	} {
		get := environment(c.env)
		if !WholeLaunched(get) || WholeRank(get) != c.rank || WholeRanks(get) != c.ranks {
			t.Errorf("%v: launched %v, rank %d of %d, want %d of %d", c.env, WholeLaunched(get), WholeRank(get), WholeRanks(get), c.rank, c.ranks)
		}
	}
}
