// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// LauncherMPI tells from the environment under which MPI's launcher this process runs, "" for none.
func LauncherMPI(getenv func(string) string) string {
	switch {
	case getenv("OMPI_COMM_WORLD_RANK") != "":
		return "openmpi"
	case getenv("PMI_RANK") != "" || getenv("PMI_FD") != "":
		return "mpich"
	case getenv("PMIX_RANK") != "": // srun --mpi=pmix, PRRTE
		return "openmpi"
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
	// Slurm's PMIx tells the number of ranks to the MPI alone. A step of this namespace is the job itself, and not one
	// that started another launcher on each node.
	if strings.HasPrefix(getenv("PMIX_NAMESPACE"), "slurm.pmix.") && getenv("PMIX_RANK") == getenv("SLURM_PROCID") {
		if n, err := strconv.Atoi(getenv("SLURM_STEP_NUM_TASKS")); err == nil && n > 0 {
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

// Ancestor is this process's parent, its parent, and so on.
type Ancestor struct {
	PID     int
	Command []string
	Age     time.Duration // since it was started
}

// LauncherJob is the launcher's name of the job, the same on all ranks; "" when the launcher has none. If an
// earlier job may have had the same name, age is how long the launcher has run, at most; else 0.
func LauncherJob(getenv func(string) string, above []Ancestor) (name string, age time.Duration) {
	if name := getenv("PMIX_NAMESPACE"); name != "" {
		if strings.HasPrefix(name, "slurm.pmix.") {
			name += requeued(getenv)
		}
		return "pmix " + name + " " + getenv("OMPI_MCA_orte_hnp_uri"), 0
	}
	// Hydra tells in the environment which rank this is, and to its own helper on each node where its
	// mpiexec listens. A port is used again: two of a hundred jobs had the same.
	for i, a := range above {
		port := valueOf(a.Command, "--control-port")
		if port == "" {
			continue
		}
		age := a.Age + hydraStarts
		if i+1 < len(above) && isMpiexec(above[i+1].Command) {
			age = above[i+1].Age + hydraPrecision
		}
		return "hydra " + port + " " + valueOf(a.Command, "--pgid"), age
	}
	if job := getenv("SLURM_JOB_ID"); job != "" && getenv("SLURM_STEP_ID") != "" {
		return "slurm " + job + "." + getenv("SLURM_STEP_ID") + requeued(getenv), 0
	}
	return "", 0
}

// requeued tells the runs of a Slurm job apart: when it is put into the queue again it keeps its number, and its
// steps count from 0 again.
func requeued(getenv func(string) string) string {
	if n := getenv("SLURM_RESTART_COUNT"); n != "" && n != "0" {
		return " run " + n
	}
	return ""
}

const (
	// hydraStarts is how long Hydra's mpiexec may take to start its helper on another node.
	hydraStarts = time.Minute
	// hydraPrecision is that of file times and of the kernel's ticks.
	hydraPrecision = 100 * time.Millisecond
)

func isMpiexec(command []string) bool {
	return len(command) > 0 && strings.HasPrefix(filepath.Base(command[0]), "mpi") // mpiexec, mpirun, with a suffix
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
