// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newCopyCmd) }

func newCopyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "copy DIR[@EPOCH] DEST",
		GroupID: groupSaved,
		Short:   "Copy an epoch to another directory and check it there",
		Long: `Copy a committed epoch into another checkpoint directory, which is made if it is not there. The epoch keeps its
number. DEST is a directory like any other: ` + "`ckptrun --restart DEST`" + ` continues the job from it. Epochs that the
epoch was built upon are copied with it.

Each image is read back from DEST and every byte compared with its digests. The manifest is copied last: until
then there is no epoch in DEST. If the copy fails, as on a full disk, nothing of that epoch stays. If the command is
interrupted or killed, what it copied stays and counts for nothing; the same command goes on with it, and
` + "`ckptctl gc`" + ` removes it. An epoch that is there already, the same, is left alone.

No job may run in DEST: the command owns it meanwhile. A job may run in DIR; --keep of the job may remove an epoch
while it is being copied, and then the copy fails.

Images in local directories (ckptrun --local) are copied from those that can be seen from here: with CKPT_LOCAL, those of this
node, or of all nodes where they are in one directory. If some are on other nodes, they are named, and nothing is copied. In
DEST the epoch is at level 4.` + objectsHelp + `
One of DIR and DEST may be such a place. Images are checked before they are put there, and objects after they were got.`,
		Example: `  ckptctl copy ckpt s3://backups/heat
  ckptctl copy ckpt /archive/heat
  ckptctl copy ckpt@3 backup && ckptrun --restart backup@3`,
		Args: cobra.ExactArgs(2),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := copyEpoch(cmd.Context(), args[0], args[1], cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), report)
		}
		return report.print(cmd.OutOrStdout())
	}
	return cmd
}

// copying is shown while files are copied; it is no stage of a checkpoint.
const copying = "copy"

// copyReport is what `copy` prints.
type copyReport struct {
	From   string       `json:"from"`
	To     string       `json:"to"`
	Epochs []copiedLine `json:"epochs"` // parents first
	named  bool         // by the program
}

type copiedLine struct {
	Epoch   int   `json:"epoch"`
	Files   int   `json:"files"`
	Bytes   int64 `json:"bytes"`
	Kept    int   `json:"kept,omitempty"` // images that an interrupted copy had left
	Already bool  `json:"already,omitempty"`
}

func copyEpoch(ctx context.Context, spec, dest string, stderr io.Writer) (*copyReport, error) {
	if objects.Is(spec) || objects.Is(dest) {
		r, err := copyObjects(ctx, spec, dest, newPhases(stderr))
		if ctx.Err() != nil && err != nil {
			err = fmt.Errorf("interrupted: the epoch is not in %s: %w", dest, err)
		}
		return r, err
	}
	e, err := resolveEpoch(spec)
	if err != nil {
		return nil, err
	}
	chain, err := e.store.Chain(e.manifest.Epoch)
	if err != nil {
		return nil, err
	}
	if same, err := sameDir(e.store.Dir(), dest); err != nil || same {
		return nil, errors.Join(err, usagef("%s is the directory of the epoch itself", dest))
	}
	to, err := store.Create(dest)
	if err != nil {
		return nil, err
	}
	r := &copyReport{From: e.String(), To: dest, Epochs: []copiedLine{}, named: namesState(e.manifest)}
	l, err := lease.Take(dest, lease.Claim{Program: "ckptctl copy", Brief: true})
	if err != nil {
		return nil, err
	}
	l.Keep(lease.Keeper{})
	show := newPhases(stderr)
	for _, m := range chain {
		var done store.Copied
		done, err = e.store.CopyEpoch(ctx, m.Epoch, to.Guard(l.Check), store.CopyOptions{Progress: func(done, total int64) {
			show.event(control.Event{Epoch: m.Epoch, Phase: copying, Done: uint64(done), Total: uint64(total)})
		}})
		if err != nil {
			break
		}
		r.Epochs = append(r.Epochs, copiedLine{m.Epoch, done.Files, done.Bytes, done.Kept, done.Already})
	}
	show.end(err == nil)
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("interrupted: epoch %d is not in %s yet; the same command goes on with what was copied", e.manifest.Epoch, dest)
	}
	return r, errors.Join(err, l.Release())
}

func sameDir(a, b string) (bool, error) {
	pa, err := filepath.EvalSymlinks(a)
	if err != nil {
		return false, err
	}
	pb, err := filepath.EvalSymlinks(b)
	if err != nil {
		return false, nil // it is made
	}
	pa, err1 := filepath.Abs(pa)
	pb, err2 := filepath.Abs(pb)
	return pa == pb, errors.Join(err1, err2)
}

func (r *copyReport) print(w io.Writer) error {
	for _, e := range r.Epochs {
		what := fmt.Sprintf("%d files, %s, checked", e.Files, sizeText(e.Bytes))
		if e.Kept > 0 {
			what += fmt.Sprintf("; %d images were there from an interrupted copy, and are sound", e.Kept)
		}
		if e.Already {
			what = "is there already"
		}
		if _, err := fmt.Fprintf(w, "epoch %d: %s\n", e.Epoch, what); err != nil {
			return err
		}
	}
	last := r.Epochs[len(r.Epochs)-1].Epoch
	if r.named {
		_, err := fmt.Fprintf(w, "with CKPT_DIR=%s the program goes on from epoch %d\n", r.To, last)
		return err
	}
	_, err := fmt.Fprintf(w, "continue with `ckptrun --restart %s@%d`\n", r.To, last)
	return err
}
