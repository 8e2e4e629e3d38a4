// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

// sizeText writes a number of bytes for people: "1.5 GiB".
func sizeText[N int64 | uint64](n N) string {
	v, unit := float64(n), 0
	for v >= 1024 && unit < len(sizeUnits)-1 {
		v /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, sizeUnits[unit])
}

var sizeUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// ratioText writes how many times smaller stored is than content: "3.2x".
func ratioText(content, stored uint64) string {
	if stored == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", float64(content)/float64(stored))
}

// durationText writes a duration to about three digits: "1h12m", "3.21s".
func durationText(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// briefText has three digits, for what may be a nanosecond or a minute.
func briefText(d time.Duration) string {
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

func mpiText(m store.MPI) string {
	if m.Version == "" {
		return m.Name
	}
	return m.Name + " " + m.Version
}
