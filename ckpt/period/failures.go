// SPDX-License-Identifier: Apache-2.0

package period

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Failures are mean times between failures by class: a failure of class k is survived by epochs at level k and higher,
// and by no others. 0: there are none.
type Failures [Top + 1]time.Duration

// shares are those of the classes when only one mean time is given: each class is half as frequent as the one before.
// They are a guess, between jobs whose processes die and machines whose nodes do.
var shares = [Top + 1]float64{0, 8. / 15, 4. / 15, 2. / 15, 1. / 15}

// maxTime bounds mean times between failures: 100 years.
const maxTime = 36500 * 24 * time.Hour

// errFailures is what is wrong with the text of Failures.
var errFailures = errors.New("want a time such as 12h or 2d, times by level such as L1:6h,L2:1d,L4:30d, or a time and shares such as 12h,L1:60%,L2:30%,L4:10%")

// ParseFailures reads a mean time between failures of the job, one by level, or one and the shares of the levels. "off" and
// "0" are none.
func ParseFailures(text string) (Failures, error) {
	var f Failures
	if text == "off" || text == "0" {
		return f, nil
	}
	bad := func(why string) (Failures, error) {
		return Failures{}, fmt.Errorf("%q: %s; %w", text, why, errFailures)
	}
	items := strings.Split(text, ",")
	var mean time.Duration
	if !strings.Contains(items[0], ":") {
		var err error
		if mean, err = ParseTime(items[0]); err != nil {
			return bad(err.Error())
		}
		if items = items[1:]; len(items) == 0 {
			return Shared(mean), nil
		}
	}
	var seen [Top + 1]bool
	sum := 0.0
	for _, item := range items {
		name, value, ok := strings.Cut(item, ":")
		level, err := strconv.Atoi(strings.TrimPrefix(name, "L"))
		if !ok || err != nil || !strings.HasPrefix(name, "L") || len(name) != 2 || level < 1 || level > Top {
			return bad(fmt.Sprintf("%q is not a level from L1 to L%d and its failures", item, Top))
		}
		if seen[level] {
			return bad(fmt.Sprintf("level L%d is there twice", level))
		}
		seen[level] = true
		percent, isShare := strings.CutSuffix(value, "%")
		switch {
		case isShare != (mean > 0) && isShare:
			return bad(fmt.Sprintf("%q is a share of no time: the time comes first", item))
		case isShare != (mean > 0):
			return bad(fmt.Sprintf("%q is not a share of %v", item, mean))
		case isShare:
			p, err := strconv.ParseFloat(percent, 64)
			if err != nil || !(p >= 0 && p <= 100) {
				return bad(fmt.Sprintf("%q is not a percentage", value))
			}
			sum += p
			f[level] = part(mean, p/100)
		default:
			if f[level], err = ParseTime(value); err != nil {
				return bad(err.Error())
			}
		}
	}
	if mean > 0 && (sum < 99.5 || sum > 100.5) {
		return bad(fmt.Sprintf("the shares make %g%%, not 100%%", sum))
	}
	return f, nil
}

// Shared is a mean time between failures of all classes, with the usual shares.
func Shared(mean time.Duration) (f Failures) {
	for k := 1; k <= Top; k++ {
		f[k] = part(mean, shares[k])
	}
	return f
}

// part is the mean time between those failures that are a share of all.
func part(mean time.Duration, share float64) time.Duration {
	if share <= 0 {
		return 0
	}
	return min(seconds(mean.Seconds()/share), maxTime)
}

// Known tells whether failures are to be reckoned with.
func (f Failures) Known() bool { return f != Failures{} }

// Mean is the time between failures of any class; 0: there are none.
func (f Failures) Mean() time.Duration {
	sum := 0.0
	for _, d := range f {
		if d > 0 {
			sum += 1 / d.Seconds()
		}
	}
	if sum == 0 {
		return 0
	}
	return seconds(1 / sum)
}

// String is a text that ParseFailures reads.
func (f Failures) String() string {
	var items []string
	for k, d := range f {
		if d > 0 {
			items = append(items, fmt.Sprintf("L%d:%v", k, d))
		}
	}
	if len(items) == 0 {
		return "off"
	}
	return strings.Join(items, ",")
}

// ParseTime reads 90s, 1h30m and 2d.
func ParseTime(text string) (time.Duration, error) {
	var d time.Duration
	days, ok := strings.CutSuffix(text, "d")
	if n, err := strconv.ParseFloat(days, 64); ok {
		if err != nil || !(n > 0 && n <= 36500) {
			return 0, fmt.Errorf("%q is not a number of days", text)
		}
		d = time.Duration(n * 24 * float64(time.Hour))
	} else if d, err = time.ParseDuration(text); err != nil {
		return 0, fmt.Errorf("%q is not a time", text)
	}
	if d < time.Second || d > maxTime {
		return 0, fmt.Errorf("%q is not between 1s and 100 years", text)
	}
	return d, nil
}
