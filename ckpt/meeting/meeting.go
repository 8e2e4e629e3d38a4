// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/libckpt/libckpt/ckpt/launch"
)

// Meeting is the ranks of a job that the launcher started. One goroutine at a time calls its methods.
type Meeting interface {
	Rank() int
	Ranks() int
	// Allgather returns what every rank gave, by rank. Collective; each rank gives the same number of bytes. A
	// failed all-gather ends the meeting: all later ones fail too.
	Allgather(mine []byte) ([][]byte, error)
	// Close leaves the meeting, and tells the launcher that this process has ended its part of the job. So it is
	// called when the program ends as it should. A process that fails ends without Close: the launcher, which
	// takes the loss of the connection for a failure, then ends the other ranks. After Close it does not, if the
	// process ends by itself. A process meets once: Hydra's mpiexec does not survive a second connection after
	// the first has taken leave.
	Close() error
}

// DefaultPatience is how long ranks wait for each other when Options.Patience is 0.
const DefaultPatience = 60 * time.Second

// Options say where to look.
type Options struct {
	// Getenv is the environment of the launcher, the only one that is looked at.
	Getenv func(string) string
	// Dir is the directory in which ranks without an MPI launcher meet: it exists, and is the same for all. Empty:
	// they cannot.
	Dir string
	// Ranks is how many the job must have, 0 when any number is right.
	Ranks int
	// Numbers, if not nil, are this process's: no launcher is asked, and the ranks meet in Dir. A Rank of -1 is given by
	// the meeting, in the order in which processes come: all have to come without a number, or none.
	Numbers *launch.Numbers
	// First is called by a process without a number that finds no meeting, before it opens one and is rank 0. An error
	// is Find's. Nil: nothing is to be done.
	First func() error
	// PMIx reaches the launcher's library; nil: there is none.
	PMIx PMIx
	// Patience is how long ranks without an MPI launcher wait for each other to come. A launcher's answer to a
	// question that needs no other rank takes no longer either.
	Patience time.Duration
	// Log gets what an operator may want to know. Nil: nothing.
	Log *slog.Logger
}

// Find finds the meeting of this process. Find, and every Allgather of what it returns, give up when ctx is done. It
// starts no process, needs no runtime and touches no signals, so it may be called before anything of an image is
// mapped. On failure nothing is left open.
func Find(ctx context.Context, o Options) (Meeting, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	m, how, err := find(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("which rank this is (%s): %w", how, err)
	}
	if o.Ranks > 0 && m.Ranks() != o.Ranks {
		err := &SizeError{Want: o.Ranks, Have: m.Ranks(), From: how}
		return nil, errors.Join(err, m.Close())
	}
	o.Log.Debug("the launcher says which rank this is", "rank", m.Rank(), "ranks", m.Ranks(), "from", how)
	return m, nil
}

func find(ctx context.Context, o Options) (m Meeting, how string, err error) {
	if n := o.Numbers; n != nil {
		m, err = findDirectory(ctx, o, *n)
		return m, n.From, err
	}
	env := o.Getenv
	switch {
	case env("OMPI_COMM_WORLD_RANK") != "" && env("PMIX_RANK") != "":
		// Open MPI's launcher leaves what another launcher above it has set.
		m, err = findPMIx(o)
		return m, "PMIx", err
	case env("PMI_FD") != "" || env("PMI_PORT") != "":
		m, err = findPMI(ctx, o)
		return m, "PMI", err
	case env("PMIX_RANK") != "" || env("PMIX_NAMESPACE") != "":
		m, err = findPMIx(o)
		return m, "PMIx", err
	}
	n, err := launch.NumbersOf(env)
	switch {
	case err != nil:
		return nil, "environment", err
	case n != nil:
		m, err = findDirectory(ctx, o, *n)
		return m, n.From, err
	case launch.Launched(env):
		return nil, "environment", fmt.Errorf("%s says that a launcher started this process, but there is neither "+
			"PMI_FD nor PMI_PORT nor PMIX_RANK to reach it by; set CKPT_RANK and CKPT_SIZE", launcherSign(env))
	}
	return &alone{}, "no launcher", nil
}

// launcherSign is the variable by which launch.Launched knows the launcher.
func launcherSign(env func(string) string) string {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMI_RANK"} {
		if env(name) != "" {
			return name
		}
	}
	return "the environment"
}

// SizeError says that the launcher started another number of ranks than the job has.
type SizeError struct {
	Want, Have int
	From       string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("the job has %d ranks, and %s says %d: start as many processes as it has ranks", e.Want, e.From, e.Have)
}

var errClosed = errors.New("the meeting is over: it was closed")

// alone is one process.
type alone struct{ closed bool }

func (*alone) Rank() int  { return 0 }
func (*alone) Ranks() int { return 1 }
func (a *alone) Allgather(mine []byte) ([][]byte, error) {
	if a.closed {
		return nil, errClosed
	}
	return [][]byte{append([]byte(nil), mine...)}, nil
}
func (a *alone) Close() error { a.closed = true; return nil }

// seconds writes a time as people count it: "60 s".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'g', 3, 64) + " s"
}

// ranksText writes "rank 3", "ranks 3 and 5", "ranks 1, 2, 3 and 96 more".
func ranksText(ranks []int) string {
	const most = 8
	if len(ranks) == 1 {
		return "rank " + strconv.Itoa(ranks[0])
	}
	var words []string
	for _, r := range ranks[:min(len(ranks), most)] {
		words = append(words, strconv.Itoa(r))
	}
	last := strconv.Itoa(len(ranks)-most) + " more"
	if len(ranks) <= most {
		last = words[len(words)-1]
		words = words[:len(words)-1]
	}
	return "ranks " + strings.Join(words, ", ") + " and " + last
}
