// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/store"
)

// Exit statuses; part of the contract.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitNone   = 3
)

// Groups of subcommands in the help.
const (
	groupSaved = "saved" // work on a directory, no job needed
	groupLive  = "live"  // talk to a running job
	groupPlan  = "plan"
)

// constructors holds what the files of this package registered.
var constructors []func() *cobra.Command

// register adds a subcommand; each file calls it from init with its constructor.
func register(f func() *cobra.Command) { constructors = append(constructors, f) }

// usageError marks an error of the command line: exit status 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// newRoot makes the whole command.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "ckptctl",
		Short: "Look at checkpoints and steer running jobs",
		Long: `ckptctl looks at the checkpoints that ckptrun left in a directory, and steers jobs that run.

A checkpoint of a whole job is an epoch: one image a rank and a manifest, in DIR/epoch-000001 and so
on. Write DIR for the newest committed epoch and DIR@3 for epoch 3.

Exit status: 0 done; 1 failed, nothing lost; 2 wrong usage; 3 no committed checkpoint.`,
		Example: `  ckptctl ls ckpt                    which epochs are there
  ckptctl verify ckpt                is every byte of the newest one sound
  ckptctl inspect ckpt@3 --rank 2    what is in an image
  ckptctl export ckpt --out arrays --format npy --dtype f8
                                     the memory that ranks have named, as files
  ckptctl copy ckpt@3 /archive/heat  an epoch to another place, checked there
  ckptctl report ckpt --out r.html   what checkpoints cost, with plots
  ckptctl top ckpt                   count the calls of a running job
  ckptctl checkpoint ckpt --then exit
                                     save the running job now and end it
  ckptctl plan ckpt --mtbf 12h       how often to checkpoint
  ckptctl doctor                     what this machine allows`,
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddGroup(
		&cobra.Group{ID: groupLive, Title: "Running jobs:"},
		&cobra.Group{ID: groupSaved, Title: "Saved epochs:"},
		&cobra.Group{ID: groupPlan, Title: "Before the run:"},
	)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	for _, f := range constructors {
		root.AddCommand(f())
	}
	return root
}

// run is the command as a function: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	started := false // a subcommand began: from then on an error is not one of usage
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	printError(stderr, err)
	if _, ok := errors.AsType[usageError](err); ok || !started || errors.Is(err, store.ErrSpec) {
		_, _ = fmt.Fprintf(stderr, "Try `%s --help`.\n", cmd.CommandPath())
		return exitUsage
	}
	if errors.Is(err, store.ErrNone) {
		return exitNone
	}
	return exitFailed
}

// addJSON gives a subcommand the flag --json.
func addJSON(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON for programs instead of text for people")
}

// printJSON prints v, indented.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
