// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newUnlockCmd) }

func newUnlockCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "unlock DIR",
		GroupID: groupLive,
		Short:   "Release a directory whose job has ended on another node",
		Long: `Release a directory whose job has ended, without releasing it, on a node that cannot be asked any more.

A directory belongs to one job. When that job ends on the same node, however it ends, the next job has the
directory at once. A job on another node is watched first, for the time of its --lease. This command says that
the job has ended, so that a restart need not wait; a restart that waits already continues.

If the job is seen to live, this command does nothing. If the job lives unseen, behind a network that is down, it
is not saved in the directory any more, and says so; but it continues, and writes its own files.`,
		Example: `  ckptctl unlock ckpt`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			said, err := unlock(cmd, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		},
	}
}

func unlock(cmd *cobra.Command, dir string) (string, error) {
	s, err := store.Open(dir)
	if err != nil {
		return "", err
	}
	before, owned := ownerOf(s)
	if !owned || before.Life == lease.Dead {
		return fmt.Sprintf("%s belongs to no job that lives", dir), nil
	}
	if job, err := findJob(dir); err == nil && !before.Life.Lives() {
		if _, err := job.client.Status(cmd.Context()); err == nil {
			before.Life = lease.Alive
		}
	}
	if before.Life != lease.Unknown {
		return "", fmt.Errorf("%s; it keeps the directory until it ends", before)
	}
	l, err := lease.Take(dir, lease.Claim{Program: "ckptctl unlock", Brief: true, Now: true})
	if err != nil {
		return "", err
	}
	err = s.Guard(l.Check).Fence()
	if err := errors.Join(err, l.Release()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s was taken from %s", dir, &before.Owner), nil
}
