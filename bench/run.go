// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answer is what one run says to one question, in nanoseconds.
type answer struct {
	name         string
	value, least float64 // of the batches the median, and the quickest
	apart        float64 // what a cache line took to the other rank and back; 0: not measured
}

// monotonic is the clock that the programs read, too.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the kernel has this clock
	}
	return t.Nano()
}

// run runs a command in the scratch directory and returns its answers, in the order in which they were
// given. There must be one at least.
func (b *bench) run(ctx context.Context, limit time.Duration, command []string) ([]answer, error) {
	began := monotonic()
	out, err := b.exec(ctx, limit, command)
	if err != nil {
		return nil, err
	}
	answers, err := parse(out, began)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.shown(command), err)
	}
	return answers, nil
}

// exec runs a command to its end and returns its standard output; any status but 0 is an error.
func (b *bench) exec(ctx context.Context, limit time.Duration, command []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = b.scratch
	cmd.Env = environment()
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	// A launcher that is told to end ends its ranks; one that is killed may leave them.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("not done after %v", limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", b.shown(command), err, tail(out.Bytes()), tail(errors.Bytes()))
	}
	return out.Bytes(), nil
}

// environment is ours without options of ckptrun, which would change what is measured.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CKPT_") {
			env = append(env, v)
		}
	}
	// Open MPI does not start as root unless it is told twice.
	return append(env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
}

func tail(text []byte) []byte {
	const most = 2000
	if len(text) > most {
		return text[len(text)-most:]
	}
	return text
}

// shown is a command as one would type it in the repository.
func (b *bench) shown(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if rel, err := filepath.Rel(b.build, word); err == nil && filepath.IsAbs(word) && filepath.IsLocal(rel) {
			word = filepath.Join("build", rel)
		} else if here, err := os.Getwd(); err == nil && strings.HasPrefix(word, here+"/") {
			word = word[len(here)+1:]
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

// parse reads what a program of bench/programs prints:
//
//	ns <tab> NAME <tab> MEDIAN <tab> LEAST <tab> LARGEST    of batches; the median is the answer
//	ns <tab> NAME <tab> ... <tab> DISTANCE                  the same, of two ranks whose distance was measured
//	took <tab> NAME <tab> NS                                a duration
//	moment <tab> NAME <tab> NS                              a time of CLOCK_MONOTONIC; counts from began
func parse(out []byte, began int64) ([]answer, error) {
	var answers []answer
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.Split(line, "\t")
		want := map[string]int{"ns": 5, "took": 3, "moment": 3}[words[0]]
		far := words[0] == "ns" && len(words) == want+1
		if want == 0 || len(words) != want && !far {
			return nil, fmt.Errorf("printed %q, which is no answer", line)
		}
		value, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			return nil, fmt.Errorf("printed %q: %w", line, err)
		}
		if words[0] == "moment" {
			value -= float64(began)
		}
		if !(value > 0) {
			return nil, fmt.Errorf("printed %q, but time goes forward", line)
		}
		least, apart := value, 0.0
		if words[0] == "ns" {
			if least, err = strconv.ParseFloat(words[3], 64); err != nil {
				return nil, fmt.Errorf("printed %q: %w", line, err)
			}
		}
		if far {
			if apart, err = strconv.ParseFloat(words[5], 64); err != nil || !(apart > 0) {
				return nil, fmt.Errorf("printed %q, whose distance is none", line)
			}
		}
		answers = append(answers, answer{words[1], value, least, apart})
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("printed no answer")
	}
	return answers, nil
}
