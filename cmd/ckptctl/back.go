// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/internal/backs"
)

func init() { register(newBackCmd) }

func newBackCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "back",
		GroupID: groupPlan,
		Short:   "Say which MPIs libckpt runs above, and add others",
		Long: `A back is the part of libckpt that calls a real MPI. There is one for each MPI that libckpt was built with,
and one, "abi", for any MPI that has the standard's ABI (libmpi_abi.so.1). All backs serve all programs: those of MPICH's
ABI (also Intel MPI, MVAPICH, Cray MPICH), of Open MPI's, and of the standard's.

Your own backs lie in CKPT_BACKS, or else in ~/.local/share/libckpt/backs, and come before those of the
installation. Compute nodes must see that folder.`,
		Example: `  ckptctl back list
  ckptctl back add /opt/mpich/bin/mpicc --name mpich-5
  mpiexec -n 4 ckptrun --mpi mpich-5 ./app
  ckptctl back remove mpich-5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBackListCmd(), newBackAddCmd(), newBackRemoveCmd())
	return cmd
}

func newBackListCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Say which backs there are",
		Long:    `List the backs by name: for which MPI each was compiled, with which compiler, and where it lies.`,
		Example: `  ckptctl back list --json`,
		Args:    cobra.NoArgs,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		place, _, err := backPlace()
		if err != nil {
			return err
		}
		list, err := place.List()
		if *asJSON {
			return errors.Join(printJSON(cmd.OutOrStdout(), list), err)
		}
		tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		for _, b := range list {
			_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", b.Name, b, orNothing(b.Compiler), b.Path)
		}
		return errors.Join(tw.Flush(), err)
	}
	return cmd
}

func orNothing(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newBackAddCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add MPICC",
		Short: "Compile a back for another MPI",
		Long: `Compile a back for the MPI whose compiler MPICC is, from the sources that are installed with libckpt, into
your own folder (see "ckptctl back"). It takes a minute. ckptrun takes the back by the launcher: "mpich" under
mpiexec of MPICH and of others of its ABI, "openmpi" under that of Open MPI. Where there is a back of that name
already, --name gives the new one another name, for ckptrun --mpi NAME, and --replace puts it before the other one.`,
		Example: `  ckptctl back add mpicc.openmpi
  ckptctl back add /opt/intel/oneapi/mpi/latest/bin/mpicc --replace`,
		Args: cobra.ExactArgs(1),
	}
	name := cmd.Flags().String("name", "", "its name (default: mpich or openmpi, what the MPI is)")
	again := cmd.Flags().Bool("replace", false, "put it before a back of the same name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		place, lib, err := backPlace()
		if err != nil {
			return err
		}
		if place.Yours == "" {
			return errors.New("there is no folder for your backs: set HOME, or CKPT_BACKS to a folder")
		}
		m := backs.Making{Compiler: args[0], Name: *name, Sources: backs.Sources(lib), Library: lib, Libckpt: ckpt.Version, Dir: place.Yours}
		mpi, err := backs.Ask(cmd.Context(), m.Compiler, m.Sources)
		if err != nil {
			return err
		}
		if m.Name == "" {
			m.Name = mpi.Is
		}
		if err := backs.CheckName(m.Name); err != nil {
			return usageError{err}
		}
		switch was, err := place.Find(m.Name); {
		case err == nil && !*again:
			return fmt.Errorf("there is a back %s already, for %s (%s): add --name OTHER to keep both, and take this one with ckptrun --mpi OTHER, or --replace",
				m.Name, was, was.Path)
		case err != nil && !errors.Is(err, backs.ErrNone) && !*again:
			return fmt.Errorf("%w; --replace compiles it again", err)
		}
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "compiling a back for %s %s, MPI %s\n", mpi.Called, mpi.Version, mpi.Standard)
		b, err := m.Compile(cmd.Context())
		if err != nil {
			return err
		}
		use := "ckptrun takes it under that MPI's mpiexec"
		if b.Name != b.Is {
			use = "ckptrun --mpi " + b.Name + " takes it"
		}
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %s; %s\n", b.Name, b, b.Path, use)
		return nil
	}
	return cmd
}

func newBackRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a back of yours",
		Long:    `Remove a back that "ckptctl back add" made. Those of the installation stay.`,
		Example: `  ckptctl back remove mpich-5`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, _, err := backPlace()
			if err != nil {
				return err
			}
			path, err := place.Remove(args[0])
			if errors.Is(err, backs.ErrNone) {
				return fmt.Errorf("%w; `ckptctl back list` shows those that there are", err)
			}
			if err == nil {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", path)
			}
			return err
		},
	}
}

// backPlace is where this installation's and this user's backs are, and its lib folder.
func backPlace() (backs.Place, string, error) {
	lib, err := backs.Library()
	if err != nil {
		return backs.Place{}, "", err
	}
	return backs.PlaceOf(os.Getenv, lib), lib, nil
}

// ABIs are those of programs that the fronts serve, for people.
const abis = "MPICH (also Intel MPI, MVAPICH, Cray MPICH), Open MPI, the standard's"

// backText is a line for the doctor.
func backText(list []*backs.Back) string {
	all := make([]string, len(list))
	for i, b := range list {
		all[i] = b.Name + ": " + b.String()
	}
	return strings.Join(all, "; ")
}
