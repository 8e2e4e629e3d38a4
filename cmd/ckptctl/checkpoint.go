// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newCheckpointCmd) }

func newCheckpointCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "checkpoint DIR",
		GroupID: groupLive,
		Short:   "Save a running job",
		Long: `Save the job that runs in a directory, and print the number of its epoch.

Returns once the epoch is committed: from then on the job can be restarted from it. If a request with the
same --then is under way, this one joins it and prints the same epoch; a request with another --then waits its
turn.

--then says what happens to the job after the commit: "continue" lets it go on; "exit" finalizes MPI and
ends every rank in an orderly way; "kill" kills every rank.

If the checkpoint is refused, every reason is printed, and nothing has changed. --timeout bounds the whole
checkpoint, from the request to the commit. If it expires, the checkpoint is abandoned on all ranks, the job
continues, and --then is not done. Interrupting this command stops only the command: the checkpoint continues.

--witness has the kernel (eBPF) watch the sockets of all ranks meanwhile, and says whether a byte moved on them from
the end of the drain, when all messages under way are received, until the memory was safe. If one did, or if that cannot
be told, the epoch is there and the exit status is 1. Without the privilege (root, or CAP_BPF and CAP_PERFMON),
or if ranks run on other hosts, no checkpoint is asked for. Connections of libckpt's own, by which the ranks tell each other how far
they are, are left out. Messages that go through shared memory or a network card pass by no socket.

A job opens the directory in MPI_Init. If no job has opened it yet, this command fails, or waits for one for as
long as --timeout says. If the job ends while this command waits for it, the command fails at once.`,
		Example: `  ckptctl checkpoint ckpt
  ckptctl checkpoint ckpt --trace ckpt.json
  ckptctl checkpoint ckpt --then exit --timeout 10m`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := addJSON(cmd)
	then := cmd.Flags().String("then", string(after.Continue), "what happens to the job after the commit: `continue|exit|kill`")
	timeout := cmd.Flags().Duration("timeout", 0, "abandon the checkpoint after this `time`, e.g. 90s or 10m; until then also wait for a job to open the directory (default: no limit, and no waiting for a job)")
	watch := cmd.Flags().Bool("witness", false, "prove that no byte of the job's sockets moved between drain and snapshot")
	trace := cmd.Flags().String("trace", "", "write when each rank was in which stage to this `file`, for https://ui.perfetto.dev (see ckptctl trace)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		request, err := newRequest(*then, *timeout)
		if err != nil {
			return usageError{err}
		}
		if *trace != "" {
			if err := mayWrite(*trace); err != nil { // before anything is asked for
				return err
			}
		}
		var seen *witness
		if *watch {
			if seen, err = newWitness(cmd.Context(), args[0]); err != nil {
				return err
			}
		}
		result, err := checkpointOnceOpen(cmd.Context(), args[0], request, cmd.ErrOrStderr())
		if err != nil {
			if seen != nil {
				_, werr := seen.end()
				err = errors.Join(err, werr)
			}
			return err
		}
		if *trace != "" {
			err = traceEpoch(args[0], result.Epoch, *trace, cmd.ErrOrStderr())
		}
		if seen != nil {
			return errors.Join(err, saidByWitness(cmd, args[0], result, seen, *asJSON))
		}
		if *asJSON {
			return errors.Join(printJSON(cmd.OutOrStdout(), result), err)
		}
		_, perr := fmt.Fprintln(cmd.OutOrStdout(), result.Epoch)
		return errors.Join(perr, err)
	}
	return cmd
}

// saidByWitness prints the epoch and what the witness has seen of it.
func saidByWitness(cmd *cobra.Command, dir string, result control.Result, seen *witness, asJSON bool) error {
	s, err := store.Open(dir)
	var m *store.Manifest
	if err == nil {
		m, err = s.Manifest(result.Epoch)
	}
	if err != nil {
		_, werr := seen.end()
		return errors.Join(fmt.Errorf("epoch %d is committed, and its witness does not know when it was made: %w", result.Epoch, err), werr)
	}
	report, err := seen.judge(m)
	if err != nil {
		return fmt.Errorf("epoch %d is committed; its witness: %w", result.Epoch, err)
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), struct {
			control.Result
			Witness *witnessReport `json:"witness"`
		}{result, report})
	} else {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), result.Epoch)
		report.print(cmd.ErrOrStderr())
	}
	return errors.Join(err, report.err())
}

// traceEpoch writes the trace of an epoch that was just made.
func traceEpoch(dir string, epoch int, path string, stderr io.Writer) error {
	list, err := history(fmt.Sprintf("%s/@%d", strings.TrimRight(dir, "/"), epoch), stderr)
	if err != nil {
		return fmt.Errorf("epoch %d is committed, and there is no trace of it: %w", epoch, err)
	}
	p, err := encodeTrace(list[len(list)-1:])
	if err != nil {
		return err
	}
	return writeOutput(path, p, false)
}

func newRequest(then string, timeout time.Duration) (control.Request, error) {
	t, err := after.Parse(then)
	if err != nil {
		return control.Request{}, fmt.Errorf("--then: %w", err)
	}
	if timeout < 0 {
		return control.Request{}, fmt.Errorf("--timeout %v: a time cannot be negative", timeout)
	}
	return control.Request{Then: t, Timeout: timeout}, nil
}

// lookAgain is how often a directory is looked at that no job has opened yet.
const lookAgain = 50 * time.Millisecond

// checkpointOnceOpen asks the job of a directory for a checkpoint. Within the request's timeout it waits
// for a job that is starting, or restarting, to open the directory; but not after the one that was there
// has ended meanwhile.
func checkpointOnceOpen(ctx context.Context, dir string, r control.Request, stderr io.Writer) (control.Result, error) {
	end := time.Now().Add(r.Timeout)
	var seen sighting
	for {
		job, err := findJob(dir)
		if err == nil {
			var result control.Result
			if result, err = job.checkpoint(ctx, r, stderr); err == nil {
				return result, nil
			}
		}
		left := time.Until(end)
		switch {
		case r.Timeout == 0 && notOpenYet(err):
			return control.Result{}, fmt.Errorf("%w; --timeout 60s would wait for one", err)
		case !notOpenYet(err):
			return control.Result{}, err
		case seen.over(job, err):
			return control.Result{}, fmt.Errorf("%s ended before it could be saved, and no other job runs there; if its work is not done, %s", seen.job, howToRun(seen.job.store))
		case left < lookAgain:
			return control.Result{}, fmt.Errorf("no job has opened it within the time of --timeout: %w", err)
		}
		r.Timeout = left
		select {
		case <-ctx.Done():
			return control.Result{}, context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

// answerGrace is for how much longer than --timeout a job may take to say what became of a request. It
// answers in time by itself, unless its process stands still.
var answerGrace = 10 * time.Second

var errNoAnswer = errors.New("the job does not answer")

// silent says that a request was taken, and not answered within its time.
func (j *liveJob) silent(r control.Request) error {
	text := fmt.Sprintf("%s does not answer %v after the time of --timeout", j, answerGrace)
	if o, ok := ownerOf(j.store); ok && o.Life != lease.Dead {
		text = fmt.Sprintf("%s; %s", text, o)
	}
	return fmt.Errorf("%s; it has the request, and when it goes on may still make the checkpoint, and do what --then says: see `ckptctl status %s`",
		text, j.store.Dir())
}

// checkpoint asks for a checkpoint and shows its progress on stderr, if that is a terminal.
func (j *liveJob) checkpoint(ctx context.Context, r control.Request, stderr io.Writer) (control.Result, error) {
	before := newest(j.store)
	show := newPhases(stderr)
	asked, cancel := ctx, func() {}
	if r.Timeout > 0 {
		asked, cancel = context.WithTimeoutCause(ctx, r.Timeout+answerGrace, errNoAnswer)
	}
	defer cancel()
	result, err := j.client.Checkpoint(asked, r, show.event)
	show.end(err == nil)

	var refused *control.RefusedError
	switch {
	case err == nil:
		if stderr, ok := terminal(stderr); ok {
			_, _ = fmt.Fprintln(stderr, resultText(result))
		}
		return result, nil
	case errors.As(err, &refused):
		return control.Result{}, fmt.Errorf("refused; the job goes on unchanged, and can be asked again:\n  - %s",
			strings.Join(refused.Reasons, "\n  - "))
	case errors.Is(err, control.ErrEnding):
		return control.Result{}, fmt.Errorf("%w; no epoch was made for this request", err)
	case errors.Is(err, control.ErrTimeout):
		return control.Result{}, fmt.Errorf("no epoch within %v: %w", r.Timeout.Round(time.Millisecond), err)
	case ctx.Err() == nil && errors.Is(err, errNoAnswer):
		return control.Result{}, j.silent(r)
	case ctx.Err() != nil:
		return control.Result{}, fmt.Errorf("interrupted; the checkpoint goes on, see `ckptctl status %s`", j.store.Dir())
	case r.Then != after.Continue && connectionLost(err):
		return j.committedAfter(before, err)
	case connectionLost(err) && !errors.Is(err, control.ErrNotRunning): // it had the request
		return control.Result{}, j.goneMeanwhile(before)
	}
	return control.Result{}, j.explain(err)
}

// committedAfter finds out what became of a checkpoint when the job was gone before it could tell: as
// it was asked to end after the commit, that may be a success.
func (j *liveJob) committedAfter(before int, lost error) (control.Result, error) {
	epoch := newest(j.store)
	if epoch <= before {
		return control.Result{}, fmt.Errorf("the job ended before an epoch was committed: %w; %s", lost, howToRun(j.store))
	}
	m, err := j.store.Manifest(epoch)
	if err != nil {
		return control.Result{}, err
	}
	result := control.Result{Epoch: epoch}
	for _, image := range m.Images {
		result.Bytes += uint64(image.Bytes)
	}
	return result, nil
}

// goneMeanwhile says that a job, which was to go on, was gone before it could tell what became of a request.
func (j *liveJob) goneMeanwhile(before int) error {
	became := "no epoch was committed meanwhile"
	if epoch := newest(j.store); epoch > before {
		became = fmt.Sprintf("epoch %d was committed meanwhile", epoch)
	}
	return fmt.Errorf("%s ended while this request was under way, or its connection broke; %s; %s", j, became, howToRun(j.store))
}

// connectionLost tells whether err is the end of the connection, not something that the job said.
func connectionLost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func resultText(r control.Result) string {
	s := fmt.Sprintf("epoch %d: %s in %s", r.Epoch, sizeText(r.Bytes), durationText(secondsOf(r.Seconds)))
	if r.Stopped > 0 {
		s += fmt.Sprintf(", of which the job stood still for %s", durationText(secondsOf(r.Stopped)))
	}
	return s
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
