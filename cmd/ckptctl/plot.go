// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// plot is a bar chart as SVG: groups of bars side by side, or one bar a group with its series on top of each other.
type plot struct {
	title, note string
	groups      []string // below the axis
	series      []series
	stacked     bool
	format      func(float64) string
	base        float64 // of the steps of the axis: 10, or 1024 for bytes
}

// series is a value for each group; NaN: not known.
type series struct {
	name   string
	class  string // of the style: s0 to s6
	values []float64
}

// Places in a plot, in its own units: the page scales it.
const (
	plotWidth, plotHeight = 960, 260
	plotLeft, plotRight   = 78, 8
	plotTop, plotBottom   = 12, 30
)

func (p *plot) highest() float64 {
	top := 0.0
	for g := range p.groups {
		sum := 0.0
		for _, s := range p.series {
			v := s.values[g]
			if math.IsNaN(v) {
				continue
			}
			sum += v
			if !p.stacked {
				top = max(top, v)
			}
		}
		if p.stacked {
			top = max(top, sum)
		}
	}
	return top
}

// steps are where the axis has lines: round numbers, the last not below top.
func steps(top, base float64) []float64 {
	if top <= 0 || math.IsInf(top, 0) {
		return []float64{0, 1}
	}
	unit := math.Pow(base, math.Floor(math.Log(top)/math.Log(base)))
	step := unit
	for _, m := range []float64{0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500} {
		if base != 10 && m < 1 {
			m = math.Pow(2, math.Round(math.Log2(m))) // halves of KiB, MiB, ...
		}
		if step = unit * m; top/step <= 5 {
			break
		}
	}
	var list []float64
	for i := 0; ; i++ {
		v := float64(i) * step
		list = append(list, v)
		if v >= top {
			return list
		}
	}
}

func (p *plot) svg() string {
	var b strings.Builder
	axis := steps(p.highest(), p.base)
	top := axis[len(axis)-1]
	width, height := float64(plotWidth-plotLeft-plotRight), float64(plotHeight-plotTop-plotBottom)
	y := func(v float64) float64 { return plotTop + height - v/top*height }
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight, html.EscapeString(p.title))
	for _, v := range axis {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/><text class="tick" x="%d" y="%.1f">%s</text>`,
			plotLeft, y(v), plotWidth-plotRight, y(v), plotLeft-6, y(v)+4, html.EscapeString(p.format(v)))
	}
	slot := width / float64(max(len(p.groups), 1))
	gap := min(slot*0.2, 8)
	every := int(math.Ceil(float64(len(p.groups)) / 24)) // labels that fit
	for g, name := range p.groups {
		left := plotLeft + float64(g)*slot + gap/2
		wide := min(slot-gap, 64)
		left += (slot - gap - wide) / 2
		at := 0.0
		for i, s := range p.series {
			v := s.values[g]
			if math.IsNaN(v) || v < 0 {
				continue
			}
			x, w, from := left, wide, at
			if p.stacked {
				at += v
			} else {
				from, w = 0, wide/float64(len(p.series))
				x = left + float64(i)*w
			}
			fmt.Fprintf(&b, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"><title>%s: %s %s</title></rect>`, s.class,
				x, y(from+v), max(w-0.5, 0.5), max(y(from)-y(from+v), 0), html.EscapeString(name), html.EscapeString(s.name), html.EscapeString(p.format(v)))
		}
		if g%every == 0 {
			fmt.Fprintf(&b, `<text class="name" x="%.1f" y="%d">%s</text>`, left+wide/2, plotHeight-plotBottom+18, html.EscapeString(name))
		}
	}
	b.WriteString(`</svg>`)
	return b.String()
}

// secondsText writes seconds of a plot: "0", "250 ms", "1.5 s".
func secondsText(s float64) string {
	if s == 0 {
		return "0"
	}
	return durationText(time.Duration(s * float64(time.Second)))
}

// bytesText writes bytes of a plot.
func bytesText(v float64) string { return sizeText(uint64(v)) }

func bandwidthText(v float64) string { return bytesText(v) + "/s" }
