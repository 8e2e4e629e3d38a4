// SPDX-License-Identifier: Apache-2.0

package period

import (
	"math"
	"testing"
	"time"
)

func TestKnownValues(t *testing.T) {
	near := func(what string, got time.Duration, err error, want time.Duration) {
		t.Helper()
		if err != nil || math.Abs(got.Seconds()-want.Seconds()) > 0.01*want.Seconds() {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	d, err := Overhead(2*time.Second, 0.05)
	near("overhead", d, err, 40*time.Second)
	// 5 minutes of cost, a failure a day: sqrt(2*300*86400) = 7200 s of work.
	d, err = Young(5*time.Minute, 24*time.Hour)
	near("Young", d, err, 7500*time.Second)
	// x = 300/172800: 7200 (1 + 0.04167/3 + 0.00174/9) = 7301 s.
	d, err = Daly(5*time.Minute, 24*time.Hour)
	near("Daly", d, err, 7301*time.Second)
	d, err = Daly(3*time.Hour, time.Hour)
	near("Daly beyond 2M", d, err, 4*time.Hour)
}

// TestYoungIsOptimal: no other period wastes noticeably less by the model that Young's formula minimizes.
func TestYoungIsOptimal(t *testing.T) {
	for _, cost := range []time.Duration{time.Second, time.Minute} {
		for _, mtbf := range []time.Duration{time.Hour, 100 * time.Hour} {
			best, err := Young(cost, mtbf)
			if err != nil {
				t.Fatal(err)
			}
			a, b := Waste(cost, mtbf, best)
			for _, k := range []float64{0.25, 0.5, 0.8, 1.25, 2, 4} {
				x, y := Waste(cost, mtbf, time.Duration(float64(best)*k))
				if x+y < (a+b)*0.98 {
					t.Errorf("cost %v, failures every %v: %g times the period wastes %g, the period %g",
						cost, mtbf, k, x+y, a+b)
				}
			}
		}
	}
}

func TestBadArguments(t *testing.T) {
	for _, f := range []func() (time.Duration, error){
		func() (time.Duration, error) { return Overhead(0, 0.1) },
		func() (time.Duration, error) { return Overhead(1, 0) },
		func() (time.Duration, error) { return Overhead(1, 1) },
		func() (time.Duration, error) { return Overhead(1, math.NaN()) },
		func() (time.Duration, error) { return Young(0, 1) },
		func() (time.Duration, error) { return Daly(1, -1) },
	} {
		if d, err := f(); err == nil {
			t.Errorf("%v", d)
		}
	}
	if d, err := Overhead(math.MaxInt64, 1e-9); err != nil || d != math.MaxInt64 {
		t.Errorf("%v, %v", d, err)
	}
}
