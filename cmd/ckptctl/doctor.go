// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/internal/backs"
	"github.com/libckpt/libckpt/internal/probe"
)

func init() { register(newDoctorCmd) }

func newDoctorCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "doctor",
		GroupID: groupPlan,
		Short:   "Say what this machine and its MPI allow",
		Long: `Try what libckpt needs from this machine. For each thing that is missing, say what it is for and what to
do about it. The answers are "yes", "no" and "unknown" (it could not be found out). Run this where the job
will run: on a compute node, inside the container, as the same user.

Exit status 1 when ckptrun cannot work without something that is missing.`,
		Example: `  ckptctl doctor
  srun -N1 ckptctl doctor --json`,
		Args: cobra.NoArgs,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		results := append(probe.Run(cmd.Context()), probeBacks())
		var err error
		if *asJSON {
			err = printJSON(cmd.OutOrStdout(), results)
		} else {
			err = printResults(cmd.OutOrStdout(), results)
		}
		if err != nil {
			return err
		}
		return judge(results)
	}
	return cmd
}

func printResults(w io.Writer, results []probe.Result) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range results {
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\n", r.Outcome, r.Name, r.Detail)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	head := "\nWhat to do:\n"
	for _, r := range results {
		if r.Outcome == probe.Yes {
			continue
		}
		weight := "helps"
		if r.Needed {
			weight = "needed"
		}
		_, _ = fmt.Fprintf(w, "%s  %s (%s: for %s)\n      %s\n", head, r.Name, weight, r.For, r.Advice)
		head = ""
	}
	return nil
}

// probeBacks says above which MPIs programs can run, and which programs.
func probeBacks() probe.Result {
	r := probe.Result{Name: "backs", Outcome: probe.Yes, For: "running MPI programs"}
	place, _, err := backPlace()
	var list []*backs.Back
	if err == nil {
		list, err = place.List()
	}
	r.Detail = backText(list)
	switch {
	case err != nil:
		r.Outcome, r.Advice = probe.Unknown, err.Error()
	case len(list) == 0:
		r.Outcome, r.Detail, r.Advice = probe.No, "none", "`ckptctl back add MPICC` compiles one for an MPI, of which MPICC is the compiler"
	default:
		r.Detail += "; each for programs of the ABIs of " + abis
	}
	return r
}

// Names of the two ways to catch system calls, of which one is enough.
const (
	probeSeccomp = "seccomp filter"
	probeSUD     = "Syscall User Dispatch"
)

// judge fails when ckptrun cannot work. What could not be found out is no reason.
func judge(results []probe.Result) error {
	var errs []error
	noTrap := 0
	for _, r := range results {
		if r.Outcome != probe.No {
			continue
		}
		if r.Needed {
			errs = append(errs, fmt.Errorf("%s is missing, which ckptrun needs", r.Name))
		}
		if r.Name == probeSeccomp || r.Name == probeSUD {
			noTrap++
		}
	}
	if noTrap == 2 {
		errs = append(errs, fmt.Errorf("neither %s nor %s works, and ckptrun needs one of them", probeSeccomp, probeSUD))
	}
	return errors.Join(errs...)
}
