// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRanksAndRank(t *testing.T) {
	for _, args := range [][]string{
		{"--rank", "0"}, {"--ranks", "2", "--rank", "2"}, {"--ranks", "2", "--rank", "-1"}, {"--ranks", "2", "--whole"},
		{"--rank", "one", "--ranks", "2"},
	} {
		_, _, _, err := Parse(append(args, "app"), environment(nil))
		wantStatus(t, err, ExitUsage, "rank")
	}
	o, _, _, err := Parse([]string{"--restart", "d", "--rank", "1"}, environment(nil))
	if err != nil || o.Rank != 1 || o.Several() {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestTogether(t *testing.T) {
	hydra := map[string]string{"PMI_RANK": "1", "PMI_SIZE": "3"}
	srun := map[string]string{"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"}
	for _, c := range []struct {
		name        string
		ranks, rank int
		env         map[string]string
		epoch       int
		want        Numbers
		wrong       string
	}{
		{"by hand", 3, 2, nil, 0, Numbers{2, 3, "--rank", ""}, ""},
		{"in order", 3, -1, nil, 0, Numbers{-1, 3, "order of arrival", ""}, ""},
		{"in order, named", 3, -1, map[string]string{"CKPT_JOB": "j"}, 0, Numbers{-1, 3, "order of arrival", "j"}, ""},
		{"Hydra", 3, -1, hydra, 0, Numbers{1, 3, "the launcher's variables", ""}, ""},
		{"Hydra, auto", AutoRanks, -1, hydra, 0, Numbers{1, 3, "the launcher's variables", ""}, ""},
		{"Open MPI", 3, -1, map[string]string{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}, 0, Numbers{0, 3, "the launcher's variables", ""}, ""},
		{"srun", 3, -1, srun, 0, Numbers{2, 3, "SLURM_PROCID and SLURM_STEP_NUM_TASKS", "slurm 7.0"}, ""},
		{"another rank than the launcher's", 3, 0, hydra, 0, Numbers{0, 3, "--rank", ""}, ""},
		{"PMIx", 3, -1, map[string]string{"PMIX_RANK": "2"}, 0, Numbers{2, 3, "the launcher's variables", ""}, ""},
		{"PMIx, auto", AutoRanks, -1, map[string]string{"PMIX_RANK": "2"}, 0, Numbers{}, "give the number"},
		{"PMIx, too many", 2, -1, map[string]string{"PMIX_RANK": "2"}, 0, Numbers{}, "rank 2 of 2"},
		{"other number", 2, -1, hydra, 0, Numbers{}, "has 2 processes, and the launcher started 3"},
		{"other number, srun", 2, -1, srun, 0, Numbers{}, "launcher started 3"},
		{"auto alone", AutoRanks, -1, nil, 0, Numbers{}, "--ranks auto"},
		{"restart", 0, -1, nil, 3, Numbers{-1, 3, "order of arrival", ""}, ""},
		{"restart, Hydra", 0, -1, hydra, 3, Numbers{1, 3, "the launcher's variables", ""}, ""},
		{"restart, auto", AutoRanks, -1, hydra, 3, Numbers{1, 3, "the launcher's variables", ""}, ""},
		{"restart, by hand", 0, 2, nil, 3, Numbers{2, 3, "--rank", ""}, ""},
		{"restart, no such rank", 0, 3, nil, 3, Numbers{}, "ranks 0 to 2"},
		{"restart, other number", 0, -1, hydra, 2, Numbers{}, "has 2 processes, and the launcher started 3"},
		{"restart, wrong option", 2, -1, nil, 3, Numbers{}, "the epoch has 3 processes, and --ranks says 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Ranks: c.ranks, Rank: c.rank}
			n, err := o.Together(environment(c.env), nil, c.epoch)
			if c.wrong != "" {
				wantStatus(t, err, ExitUsage, c.wrong)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, *n); d != "" {
				t.Error(d)
			}
		})
	}
}

// A program that the program starts by exec is one of the same ranks.
func TestAgainRanks(t *testing.T) {
	for _, c := range []struct {
		own  []string
		want string
	}{
		{[]string{"--ranks", "2", "--rank", "1", "--"}, "--ranks 2 --rank 1 --dir /d"},
		{[]string{"--ranks=2"}, "--ranks=2 --dir /d"},
		{[]string{"--restart", "/d", "--rank", "1"}, "--rank 1 --ranks 2 --dir /d"},
	} {
		if got := strings.Join(Again(c.own, Options{Dir: "/d", Ranks: 2}), " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.own, got, c.want)
		}
	}
	if out := Again(nil, Options{Dir: "/d"}); slices.Contains(out, "--ranks") {
		t.Error(out)
	}
}
