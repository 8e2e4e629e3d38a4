// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// series is one value a round.
type series []float64

// median is the middle value; of an even number the mean of the two in the middle. 0 without values.
func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (s series) least() float64   { return slices.Min(s) }
func (s series) largest() float64 { return slices.Max(s) }

// pairwise combines the rounds of two series of the same length.
func pairwise(a, b series, f func(a, b float64) float64) series {
	c := make(series, len(a))
	for i := range a {
		c[i] = f(a[i], b[i])
	}
	return c
}

func minus(a, b float64) float64 { return a - b }
func over(a, b float64) float64  { return a / b }
