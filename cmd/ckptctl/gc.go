// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newGCCmd) }

func newGCCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "gc DIR[@EPOCH]",
		GroupID: groupSaved,
		Short:   "Remove old epochs",
		Long: `Remove old epochs: all committed ones but the newest --keep, and incomplete ones older than the newest
committed one. With an epoch, remove only that one.

This command never removes the newest committed epoch, epochs that a kept one was built upon, and incomplete
epochs newer than every committed one, which may be under way. An epoch with a damaged manifest is removed only
if it is named. With CKPT_LOCAL set, local files of removed epochs go too, as far as this machine has them (ckptrun
--local); nodes remove theirs at the next commit or restart. While a job starts or restarts in the directory nothing is removed: the job may be reading the
epoch.` + objectsHelp + `
There nobody is asked whether a job runs; the newest epoch always stays.`,
		Example: `  ckptctl gc ckpt --keep 3 --dry-run
  ckptctl gc ckpt@2`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	keep := cmd.Flags().Int("keep", 0, "committed epochs to keep (default: CKPT_KEEP, or 2)")
	dry := cmd.Flags().Bool("dry-run", false, "only say what would be removed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := keepGiven(cmd, keep); err != nil {
			return err
		}
		gc := collect
		if objects.Is(args[0]) {
			gc = func(spec string, keep int, dry bool) (*gcReport, error) {
				return collectObjects(cmd.Context(), spec, keep, dry)
			}
		}
		report, err := gc(args[0], *keep, *dry)
		if report != nil {
			if *asJSON {
				_ = printJSON(cmd.OutOrStdout(), report)
			} else {
				report.print(cmd.OutOrStdout())
			}
		}
		return err
	}
	return cmd
}

// keepGiven is what --keep says, or else the environment.
func keepGiven(cmd *cobra.Command, keep *int) (err error) {
	if !cmd.Flags().Changed("keep") {
		if *keep, err = keepFromEnv(); err != nil {
			return err
		}
	}
	if *keep < 1 {
		return usagef("--keep %d: at least one epoch is always kept", *keep)
	}
	return nil
}

func keepFromEnv() (int, error) {
	v := os.Getenv("CKPT_KEEP")
	if v == "" {
		return 2, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, usagef("CKPT_KEEP=%q is not a number", v)
	}
	return n, nil
}

// gcReport is what `gc` prints.
type gcReport struct {
	Dir     string `json:"dir"`
	DryRun  bool   `json:"dryRun"`
	Removed []int  `json:"removed"`
	Kept    []int  `json:"kept"`
	// NeededBy says of epochs that are kept beyond --keep which one is built upon them.
	NeededBy map[int]int `json:"neededBy,omitempty"`
}

func collect(spec string, keep int, dry bool) (*gcReport, error) {
	dir, epoch, err := store.SplitSpec(spec)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	r := &gcReport{Dir: dir, DryRun: dry, Removed: []int{}, Kept: []int{}}
	if epoch != 0 {
		if dry {
			return nil, usagef("--dry-run goes with a directory, not with one epoch")
		}
		if err := withDirectory(s, func(s *store.Store) error { return s.Remove(epoch) }); err != nil {
			return nil, err
		}
		r.Removed = append(r.Removed, epoch)
	} else if dry {
		plan, err := s.PlanRetire(keep)
		r.Removed = append(r.Removed, plan.Remove...)
		r.Kept = append(r.Kept, plan.Keep...)
		r.NeededBy = plan.NeededBy
		return r, err
	} else {
		err := withDirectory(s, func(s *store.Store) error {
			removed, err := s.Retire(keep)
			r.Removed = append(r.Removed, removed...)
			return err
		})
		if err != nil {
			return r, err
		}
	}
	if plan, err := s.PlanRetire(keep); err == nil && epoch == 0 {
		r.NeededBy = plan.NeededBy
	}
	left, err := s.Epochs()
	for _, e := range left {
		r.Kept = append(r.Kept, e.Number)
	}
	if err == nil && !dry {
		err = collectLocal(left)
	}
	return r, err
}

// collectLocal removes what can be seen from here of epochs that are not there any more, in local directories.
func collectLocal(left []store.Epoch) error {
	var stay []int
	bound, sets := 0, map[string]bool{}
	for i := range left {
		stay = append(stay, left[i].Number)
		if m := left[i].Manifest; m != nil {
			bound = left[i].Number
			if m.Levels != nil {
				sets[m.Levels.Set] = true
			}
		}
	}
	var errs []error
	for set := range sets {
		for _, place := range levels.Find(os.Getenv(localName), set) {
			errs = append(errs, place.Keep(stay, bound))
		}
	}
	return errors.Join(errs...)
}

// withDirectory has f remove epochs. Where no job owns the directory this command does meanwhile, so that
// none starts from what is being removed; what a job that runs needs is never removed.
func withDirectory(s *store.Store, f func(*store.Store) error) error {
	o, owned := ownerOf(s)
	switch {
	case owned && o.Life != lease.Dead && o.Owner.State == lease.Starting:
		return fmt.Errorf("nothing is removed: %s; try again when it runs", o)
	case owned && o.Life != lease.Dead:
		return f(s)
	}
	l, err := lease.Take(s.Dir(), lease.Claim{Program: "ckptctl gc", Brief: true})
	if err != nil {
		return err
	}
	l.Keep(lease.Keeper{})
	err = f(s.Guard(l.Check))
	return errors.Join(err, l.Release())
}

func (r *gcReport) print(w io.Writer) {
	verb, sum := "removed", "removed %s, kept %s"
	if r.DryRun {
		verb, sum = "would remove", "would remove %s and keep %s"
	}
	for _, n := range r.Removed {
		_, _ = fmt.Fprintf(w, "%s epoch %d\n", verb, n)
	}
	for _, n := range r.Kept {
		if by := r.NeededBy[n]; by != 0 {
			_, _ = fmt.Fprintf(w, "kept epoch %d, upon which epoch %d was built\n", n, by)
		}
	}
	_, _ = fmt.Fprintf(w, "%s: "+sum+"\n", r.Dir, epochsText(len(r.Removed)), epochsText(len(r.Kept)))
}

func epochsText(n int) string {
	switch n {
	case 0:
		return "no epoch"
	case 1:
		return "1 epoch"
	}
	return fmt.Sprintf("%d epochs", n)
}
