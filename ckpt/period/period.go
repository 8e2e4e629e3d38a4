// SPDX-License-Identifier: Apache-2.0

package period

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrArgument is wrapped when a quantity is zero, negative or out of range.
var ErrArgument = errors.New("no period can be computed")

// Overhead is the period for a budget, a share of the run time between 0 and 1.
func Overhead(cost time.Duration, budget float64) (time.Duration, error) {
	if cost <= 0 || budget <= 0 || budget >= 1 || math.IsNaN(budget) {
		return 0, fmt.Errorf("%w: cost %v, budget %g (want a cost above 0 and a budget between 0 and 1)",
			ErrArgument, cost, budget)
	}
	return seconds(cost.Seconds() / budget), nil
}

// Young is the period of first order.
func Young(cost, mtbf time.Duration) (time.Duration, error) {
	if err := check(cost, mtbf); err != nil {
		return 0, err
	}
	c, m := cost.Seconds(), mtbf.Seconds()
	return seconds(math.Sqrt(2*c*m) + c), nil
}

// Daly is the period of higher order.
func Daly(cost, mtbf time.Duration) (time.Duration, error) {
	if err := check(cost, mtbf); err != nil {
		return 0, err
	}
	c, m := cost.Seconds(), mtbf.Seconds()
	if c >= 2*m {
		return seconds(m + c), nil
	}
	x := c / (2 * m)
	// Daly's interval is the work between two checkpoints less the cost; the period adds the cost again.
	return seconds(math.Sqrt(2*c*m) * (1 + math.Sqrt(x)/3 + x/9)), nil
}

// Waste is the share of the time that is lost with a period: to checkpoints, and to work that failures
// destroy (to first order; restarts are not counted).
func Waste(cost, mtbf, period time.Duration) (checkpoints, failures float64) {
	t := period.Seconds()
	return cost.Seconds() / t, t / (2 * mtbf.Seconds())
}

func check(cost, mtbf time.Duration) error {
	if cost <= 0 || mtbf <= 0 {
		return fmt.Errorf("%w: cost %v, mean time between failures %v (want both above 0)",
			ErrArgument, cost, mtbf)
	}
	return nil
}

// seconds converts without overflow.
func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(s * 1e9)
}
