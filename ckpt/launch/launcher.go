// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strconv"
	"strings"
)

// LauncherMPI tells from the environment under which MPI's launcher this process runs, "" for none.
func LauncherMPI(getenv func(string) string) string {
	switch {
	case getenv("OMPI_COMM_WORLD_RANK") != "":
		return "openmpi"
	case getenv("PMI_RANK") != "" || getenv("PMI_FD") != "":
		return "mpich"
	}
	return ""
}

// Launched tells whether an MPI launcher started this process.
func Launched(getenv func(string) string) bool { return LauncherMPI(getenv) != "" }

// LauncherRanks is how many ranks the launcher started, 0 when it does not say.
func LauncherRanks(getenv func(string) string) int {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"} {
		if n, err := strconv.Atoi(getenv(name)); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// LauncherRank is the rank that the launcher gave this process, -1 when it does not say.
func LauncherRank(getenv func(string) string) int {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"} {
		if n, err := strconv.Atoi(getenv(name)); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// LauncherJob is what the launcher calls the job: the same on all its ranks, and of no other job; "" when
// it does not say. commands are the command lines of this process's parent, its parent, and so on.
func LauncherJob(getenv func(string) string, commands [][]string) string {
	if name := getenv("PMIX_NAMESPACE"); name != "" {
		return "pmix " + name + " " + getenv("OMPI_MCA_orte_hnp_uri")
	}
	// Hydra tells in the environment which rank this is, and to its own helper on each node where its
	// mpiexec listens.
	for _, argv := range commands {
		if port := valueOf(argv, "--control-port"); port != "" {
			return "hydra " + port + " " + valueOf(argv, "--pgid")
		}
	}
	if job := getenv("SLURM_JOB_ID"); job != "" && getenv("SLURM_STEP_ID") != "" {
		return "slurm " + job + "." + getenv("SLURM_STEP_ID")
	}
	return ""
}

// valueOf finds what follows an option of a command line.
func valueOf(argv []string, option string) string {
	for i, a := range argv {
		if a == option && i+1 < len(argv) {
			return argv[i+1]
		}
		if v, ok := strings.CutPrefix(a, option+"="); ok {
			return v
		}
	}
	return ""
}
