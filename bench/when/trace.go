// SPDX-License-Identifier: Apache-2.0

package when

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/libckpt/libckpt/ckpt/period"
)

// Failure is one: seconds after the beginning of the job, and the level that it needs.
type Failure struct {
	At    float64
	Class int
}

// Trace is failures by time.
type Trace []Failure

// Exponential draws failures without memory.
func Exponential(seed uint64, f period.Failures, until float64) Trace {
	return draw(seed, f, until, func(r *rand.Rand, mean float64) float64 { return r.ExpFloat64() * mean })
}

// Weibull draws failures that come in bursts when shape is below 1: the time since the last one of a class is distributed
// by Weibull, with the mean of the class.
func Weibull(seed uint64, shape float64, f period.Failures, until float64) Trace {
	scale := 1 / math.Gamma(1+1/shape)
	return draw(seed, f, until, func(r *rand.Rand, mean float64) float64 {
		return mean * scale * math.Pow(r.ExpFloat64(), 1/shape)
	})
}

func draw(seed uint64, f period.Failures, until float64, gap func(r *rand.Rand, mean float64) float64) Trace {
	var t Trace
	for k, mean := range f {
		if mean == 0 {
			continue
		}
		r := rand.New(rand.NewPCG(seed, uint64(k)))
		for at := gap(r, mean.Seconds()); at < until; at += gap(r, mean.Seconds()) {
			t = append(t, Failure{at, k})
		}
	}
	slices.SortFunc(t, func(a, b Failure) int { return cmp.Compare(a.At, b.At) })
	return t
}

// Read reads a trace. A line is a failure: the seconds since the beginning, and the level that it needs, 1 when there is
// nothing. Times do not decrease. Empty lines and those that begin with # are left out.
func Read(in io.Reader) (Trace, error) {
	var t Trace
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		f := Failure{Class: 1}
		var err error
		f.At, err = strconv.ParseFloat(words[0], 64)
		if err == nil && len(words) > 1 {
			f.Class, err = strconv.Atoi(words[1])
		}
		switch {
		case err != nil || len(words) > 2 || !(f.At >= 0) || math.IsInf(f.At, 0):
			return nil, fmt.Errorf("line %d: %q is not a number of seconds and a level", n, lines.Text())
		case f.Class < 1 || f.Class > period.Top:
			return nil, fmt.Errorf("line %d: there is no level %d", n, f.Class)
		case len(t) > 0 && f.At < t[len(t)-1].At:
			return nil, fmt.Errorf("line %d: %g s is before the failure above it", n, f.At)
		}
		t = append(t, f)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t) == 0 {
		return nil, fmt.Errorf("there is no failure in it")
	}
	return t, nil
}

// Write writes what Read reads.
func (t Trace) Write(out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, f := range t {
		_, _ = fmt.Fprintf(w, "%.1f %d\n", f.At, f.Class) // errors come out in Flush
	}
	return w.Flush()
}

// Failures are the mean times that a trace shows.
func (t Trace) Failures() (f period.Failures) {
	var n [period.Top + 1]int
	for _, one := range t {
		n[one.Class]++
	}
	for k, count := range n {
		if count > 0 {
			f[k] = seconds(t[len(t)-1].At / float64(count))
		}
	}
	return f
}

// After is the trace from a time on, which becomes its beginning; what was before follows at the end.
func (t Trace) After(at float64) Trace {
	length := t[len(t)-1].At
	i, _ := slices.BinarySearchFunc(t, at, func(f Failure, at float64) int { return cmp.Compare(f.At, at) })
	var out Trace
	for _, f := range t[i:] {
		out = append(out, Failure{f.At - at, f.Class})
	}
	for _, f := range t[:i] {
		out = append(out, Failure{f.At + length - at, f.Class})
	}
	return out
}
