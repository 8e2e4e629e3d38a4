// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/internal/fault"
)

// trace writes down what the collective clock of this rank does, so that the model of the
// protocol can be asked whether it would have done so too. A line is a time of CLOCK_MONOTONIC, which
// all ranks of a machine share, a step of collclock.TraceKind, the clock, and a value:
//
//	81372940012 call a1b2c3d4e5f60718 3
//
// A snapshot is preceded by what the counters said, "counted CLOCK CALLS RETURNED".
type trace struct{ file *os.File }

// openTrace opens the trace that a test asks for (fault.Debug, clocktrace=PREFIX), one file a rank; nil
// when none does.
func openTrace(rank int) (*trace, error) {
	prefix, ok := fault.Debug("clocktrace")
	if !ok {
		return nil, nil
	}
	f, err := os.OpenFile(fmt.Sprintf("%s.%d", prefix, rank), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("trace of the clock: %w", err)
	}
	return &trace{f}, nil
}

func (t *trace) step(e collclock.TraceEvent) {
	t.line(fmt.Sprintf("%v %v %d", e.Kind, e.Clock, e.Value))
}

func (t *trace) counted(counts []collclock.Count) {
	for _, c := range counts {
		t.line(fmt.Sprintf("counted %v %d %d", c.Clock, c.Call, c.Ret))
	}
}

// line writes at once: a process may be killed. What cannot be written is missed by the reader.
func (t *trace) line(text string) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d %s\n", now.Nano(), text)
	_, _ = t.file.Write(b.Bytes())
}
