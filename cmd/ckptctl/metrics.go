// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newMetricsCmd) }

func newMetricsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "metrics DIR",
		GroupID: groupSaved,
		Short:   "Give figures of a job's checkpoints to Prometheus",
		Long: `Print figures of the checkpoints in a directory in the text format of Prometheus: what the newest epoch cost, as a
whole and by rank and stage, how large it is, which epochs there are, and how full the disk is. If a job runs there
and can be asked, also its state, and how many checkpoints were committed, refused and failed since its start. All
names begin with libckpt_; the label dir is the directory.

With --listen, serve them at http://ADDRESS/metrics until interrupted; the address must be of this host alone
(127.0.0.1, ::1), and port 0 takes a free one. The address is printed. With --textfile, write them to a file, as a whole or not
at all, for the textfile collector of the node exporter: once, or with --period again and again.`,
		Example: `  ckptctl metrics ckpt
  ckptctl metrics --listen 127.0.0.1:9500 ckpt
  ckptctl metrics --textfile /var/lib/node_exporter/heat.prom --period 30s ckpt`,
		Args: cobra.ExactArgs(1),
	}
	listen := cmd.Flags().String("listen", "", "serve on this loopback `ADDRESS:PORT`")
	textfile := cmd.Flags().String("textfile", "", "write to this `file`, and replace it")
	period := cmd.Flags().Duration("period", 0, "with --textfile: write it again after this `time`, until interrupted")
	perRank := cmd.Flags().Bool("per-rank", true, "give figures of each rank, too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m := &metrics{spec: args[0], perRank: *perRank}
		switch {
		case *listen != "" && *textfile != "":
			return usagef("--listen or --textfile, not both")
		case *period < 0 || *period > 0 && *textfile == "":
			return usagef("--period goes with --textfile, and is a time above 0")
		case *listen != "":
			return m.serve(cmd.Context(), *listen, cmd.OutOrStdout())
		case *textfile != "":
			return m.writeFile(cmd.Context(), *textfile, *period)
		}
		p, err := m.collect(cmd.Context())
		if err == nil {
			_, err = cmd.OutOrStdout().Write(p)
		}
		return err
	}
	return cmd
}

// metrics collects figures of a directory.
type metrics struct {
	spec    string
	perRank bool
}

// answerWait is how long a scrape waits for the job.
const answerWait = 2 * time.Second

// sample is a line.
type sample struct {
	labels []string // name, value, ...
	value  float64
}

// text is the text format, version 0.0.4.
type text struct {
	bytes.Buffer
	dir string
}

func (t *text) family(name, kind, help string, samples ...sample) {
	if len(samples) == 0 {
		return
	}
	fmt.Fprintf(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	for _, s := range samples {
		t.WriteString(name + "{dir=" + labelText(t.dir))
		for i := 0; i+1 < len(s.labels); i += 2 {
			t.WriteString("," + s.labels[i] + "=" + labelText(s.labels[i+1]))
		}
		t.WriteString("} " + strconv.FormatFloat(s.value, 'g', -1, 64) + "\n")
	}
}

func labelText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "�")) + `"`
}

func one(v float64, labels ...string) sample { return sample{labels, v} }

func (m *metrics) collect(ctx context.Context) ([]byte, error) {
	s, err := store.Open(m.spec)
	if err != nil {
		return nil, err
	}
	epochs, err := s.Epochs()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(s.Dir())
	if err != nil {
		return nil, err
	}
	t := &text{dir: dir}
	states := map[string]float64{stateCommitted: 0, stateIncomplete: 0, stateDamaged: 0}
	var newest *store.Manifest
	for i := range epochs {
		states[describeEpoch(&epochs[i]).State]++
		if epochs[i].Committed() {
			newest = epochs[i].Manifest
		}
	}
	t.family("libckpt_epochs", "gauge", "Epochs in the directory, by their state.",
		one(states[stateCommitted], "state", stateCommitted), one(states[stateIncomplete], "state", stateIncomplete), one(states[stateDamaged], "state", stateDamaged))
	m.disk(t, s.Dir())
	if newest != nil {
		m.epoch(t, newest)
	}
	m.job(ctx, t, s)
	return t.Bytes(), nil
}

func (m *metrics) disk(t *text, dir string) {
	if r, err := diskUse(dir, 1, false); err == nil {
		t.family("libckpt_directory_bytes", "gauge", "Space that the directory takes on disk.", one(float64(r.Disk)))
		t.family("libckpt_directory_removable_bytes", "gauge", "Space that ckptctl gc --keep 1 would free.", one(float64(r.Freed)))
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil {
		t.family("libckpt_filesystem_avail_bytes", "gauge", "Space that is left on the file system of the directory.", one(float64(fs.Bavail)*float64(fs.Bsize)))
	}
}

// epoch gives what the newest one cost.
func (m *metrics) epoch(t *text, e *store.Manifest) {
	var bytes, memory float64
	var ranks struct{ bytes, memory, stop, phase []sample }
	for i := range e.Images {
		im := &e.Images[i]
		bytes += float64(im.Bytes)
		memory += float64(im.Payload)
		who := []string{"rank", strconv.Itoa(im.Rank), "host", im.Host}
		ranks.bytes = append(ranks.bytes, sample{who, float64(im.Bytes)})
		ranks.memory = append(ranks.memory, sample{who, float64(im.Payload)})
		if len(im.Phases) > 0 {
			ranks.stop = append(ranks.stop, sample{who, im.StopSeconds})
		}
		for _, p := range im.Phases {
			ranks.phase = append(ranks.phase, sample{[]string{"rank", who[1], "host", im.Host, "phase", p.Name}, p.Seconds})
		}
	}
	t.family("libckpt_epoch_newest", "gauge", "Number of the newest committed epoch.", one(float64(e.Epoch)))
	t.family("libckpt_epoch_timestamp_seconds", "gauge", "When the newest epoch was committed, in seconds since 1970.", one(float64(e.Time.UnixMilli())/1e3))
	t.family("libckpt_epoch_ranks", "gauge", "Ranks of the newest epoch.", one(float64(e.Ranks)))
	t.family("libckpt_epoch_size_bytes", "gauge", "Bytes of all images of the newest epoch.", one(bytes))
	t.family("libckpt_epoch_memory_bytes", "gauge", "Bytes of memory in all images of the newest epoch, before compression.", one(memory))
	t.family("libckpt_epoch_duration_seconds", "gauge", "From the request for the newest epoch to its commit.", one(e.TotalSeconds))
	t.family("libckpt_epoch_stop_seconds", "gauge", "For how long the program stood still for the newest epoch, on the rank where it was longest.", one(e.StopSeconds))
	if !m.perRank {
		return
	}
	t.family("libckpt_rank_size_bytes", "gauge", "Bytes of the image of a rank in the newest epoch.", ranks.bytes...)
	t.family("libckpt_rank_memory_bytes", "gauge", "Bytes of memory of a rank in the newest epoch, before compression.", ranks.memory...)
	t.family("libckpt_rank_stop_seconds", "gauge", "For how long a rank stood still for the newest epoch.", ranks.stop...)
	t.family("libckpt_rank_phase_seconds", "gauge", "For how long a rank was in a stage of the newest checkpoint.", ranks.phase...)
}

// job gives what a job that runs says of itself.
func (m *metrics) job(ctx context.Context, t *text, s *store.Store) {
	status, err := func() (control.Status, error) {
		if _, err := s.ReadJob(); err != nil {
			return control.Status{}, err // nobody is waited for
		}
		job, err := findJob(s.Dir())
		if err != nil {
			return control.Status{}, err
		}
		ctx, cancel := context.WithTimeout(ctx, answerWait)
		defer cancel()
		return job.client.Status(ctx)
	}()
	if err != nil {
		t.family("libckpt_job_up", "gauge", "Whether a job runs in the directory and answers.", one(0))
		return
	}
	t.family("libckpt_job_up", "gauge", "Whether a job runs in the directory and answers.", one(1))
	t.family("libckpt_job_start_time_seconds", "gauge", "When the job was started, in seconds since 1970.", one(float64(status.Started.UnixMilli())/1e3))
	var states []sample
	for _, st := range []control.State{control.Running, control.Checkpointing, control.Ending} {
		v := 0.0
		if st == status.State {
			v = 1
		}
		states = append(states, one(v, "state", string(st)))
	}
	t.family("libckpt_job_state", "gauge", "1 for the state in which the job is.", states...)
	c := status.Counters
	t.family("libckpt_checkpoints_total", "counter", "Checkpoints since the job was started, by how they ended.",
		one(float64(c.Committed), "result", "committed"), one(float64(c.Refused), "result", "refused"), one(float64(c.Failed), "result", "failed"))
}

// serve answers on a loopback address until ctx ends.
func (m *metrics) serve(ctx context.Context, address string, stdout io.Writer) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--listen %s: want ADDRESS:PORT, for example 127.0.0.1:9500", address)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return usagef("--listen %s: only addresses of this host alone are served, 127.0.0.1 or ::1: nobody is asked who he is", address)
	}
	if _, err := m.collect(ctx); err != nil { // before anybody waits for an answer
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		p, err := m.collect(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(p)
	})
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	if _, err := fmt.Fprintf(stdout, "http://%s/metrics\n", l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(last)
		_ = server.Close()
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// writeFile writes them once, or again and again.
func (m *metrics) writeFile(ctx context.Context, path string, period time.Duration) error {
	for {
		p, err := m.collect(ctx)
		if err == nil {
			err = writeOutput(path, p, true)
		}
		if err != nil || period == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(period):
		}
	}
}
