// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mpiProbes ask for the MPI libraries that can run below an application.
func mpiProbes() []Probe {
	return []Probe{
		{
			Name: "MPICH", For: "running MPI programs (ckptrun --mpi mpich)",
			Advice: "install it (Debian: apt-get install mpich) or name a library with ckptrun --mpi PATH",
			Run: func(ctx context.Context) (Outcome, string) {
				return mpi(ctx, "libmpich.so.12", regexp.MustCompile(`Version:\s+(\S+)`),
					[]string{"mpichversion"}, []string{"mpiexec.mpich", "--version"}, []string{"mpiexec.hydra", "--version"})
			},
		},
		{
			Name: "Open MPI", For: "running MPI programs (ckptrun --mpi openmpi)",
			Advice: "install it (Debian: apt-get install openmpi-bin) or name a library with ckptrun --mpi PATH",
			Run: func(ctx context.Context) (Outcome, string) {
				return mpi(ctx, "libmpi.so.40", regexp.MustCompile(`(?:Open MPI|OpenRTE|mpirun)[^0-9]*(\d+\.\S+)`),
					[]string{"mpiexec.openmpi", "--version"}, []string{"ompi_info", "--version"})
			},
		},
	}
}

// mpi looks for a library and asks the first of the commands that is there for the version.
func mpi(ctx context.Context, soname string, version *regexp.Regexp, commands ...[]string) (Outcome, string) {
	lib, err := findLibrary(ctx, soname)
	if err != nil {
		return Unknown, err.Error()
	}
	if lib == "" {
		return No, soname + " is in no library directory"
	}
	for _, c := range commands {
		path, err := exec.LookPath(c[0])
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		out, err := exec.CommandContext(ctx, path, c[1:]...).CombinedOutput()
		cancel()
		if m := version.FindSubmatch(out); m != nil {
			return Yes, string(m[1]) + ", " + lib
		} else if err != nil {
			return Yes, lib + "; " + c[0] + ": " + err.Error()
		}
	}
	return Yes, lib + ", version not found out"
}

// findLibrary looks where the dynamic loader does; "" means that it is nowhere.
func findLibrary(ctx context.Context, soname string) (string, error) {
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if path := filepath.Join(dir, soname); dir != "" && exists(path) {
			return path, nil
		}
	}
	ldconfig, err := exec.LookPath("ldconfig")
	if err != nil {
		ldconfig = "/sbin/ldconfig" // not in the path of everybody
	}
	out, err := exec.CommandContext(ctx, ldconfig, "-p").Output()
	if err == nil {
		for line := range strings.Lines(string(out)) {
			if name, path, ok := strings.Cut(strings.TrimSpace(line), " => "); ok && strings.HasPrefix(name, soname+" ") {
				return path, nil
			}
		}
		return "", nil
	}
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"} {
		if path := filepath.Join(dir, soname); exists(path) {
			return path, nil
		}
	}
	return "", errors.New("ldconfig: " + err.Error())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
