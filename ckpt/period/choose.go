// SPDX-License-Identifier: Apache-2.0

package period

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// window is how many measurements an estimate is made of.
const window = 16

// series are the last measurements of a quantity.
type series []time.Duration

func (s *series) add(d time.Duration) {
	*s = append(*s, max(d, 0))
	if len(*s) > window {
		*s = slices.Delete(*s, 0, 1)
	}
}

// estimate is the mean without the least and the largest, from four on. A median would not do: of epochs that are full
// every fourth time, and increments between, it says nothing of the full ones.
func (s series) estimate() (mean time.Duration, known bool) {
	if len(s) == 0 {
		return 0, false
	}
	list := slices.Clone(s)
	slices.Sort(list)
	if len(list) >= 4 {
		list = list[1 : len(list)-1]
	}
	for _, d := range list {
		mean += d / time.Duration(len(list))
	}
	return mean, true
}

// Chooser chooses anew when costs are measured. It is not safe for several goroutines.
type Chooser struct {
	settings Settings
	stop     series
	write    series
	raise    [Top + 1]series
	since    Every // epochs since the last one that was raised to the level
	tried    [Top + 1]bool
	choice   Choice
	chosen   bool
	stale    bool
}

// NewChooser begins with no cost known.
func NewChooser(s Settings) *Chooser {
	c := &Chooser{settings: s, stale: true}
	for k := range c.since {
		c.since[k] = maxPattern
	}
	return c
}

// Saved takes what an epoch has cost: how long the program stood still, and the time to the commit.
func (c *Chooser) Saved(stop, total time.Duration) {
	if total <= 0 {
		return
	}
	stop = min(max(stop, 0), total)
	c.stop.add(stop)
	c.write.add(total - stop)
	c.stale = true
}

// Raised takes how long it took to raise an epoch to a level.
func (c *Chooser) Raised(level int, took time.Duration) {
	if level < 2 || level > Top || took <= 0 {
		return
	}
	c.raise[level].add(took)
	c.stale = true
}

// Due counts an epoch that is committed, and lists the levels above the first to which it is to be raised, lowest first:
// those that are due, and those that were never tried.
// last: the job ends after it, so it gets to all levels that are used.
func (c *Chooser) Due(last bool) (due []int) {
	choice, _ := c.Choice()
	for k := 2; k <= Top && c.settings.Local; k++ {
		c.since[k]++
		often := choice.Every[k]
		first := len(c.raise[k]) == 0 && !c.tried[k] // what it costs is known then
		if often > 0 && (last || c.since[k] >= often) || c.settings.Levels[k] && (first || last && k == Top) {
			due = append(due, k)
			c.since[k], c.tried[k] = 0, true
		}
	}
	return due
}

// At says that the newest epoch at a level is so many epochs old.
func (c *Chooser) At(level, epochs int) {
	if level >= 2 && level <= Top {
		c.since[level] = epochs
	}
}

// costs are the estimates. A level that was never measured is taken to cost what writing does, twice as much with parities.
// A restart reads what was written; from another place than its own disk it takes as long as bringing it there did.
func (c *Chooser) costs() (Costs, bool) {
	var k Costs
	var known bool
	if k.Stop, known = c.stop.estimate(); !known {
		return k, false
	}
	k.Write, _ = c.write.estimate()
	total := k.Stop + k.Write
	k.Restart[1] = total
	for level := 2; level <= Top; level++ {
		if !c.settings.Local {
			k.Restart[level] = total
			continue
		}
		if k.Raise[level], known = c.raise[level].estimate(); !known {
			k.Raise[level] = total
			if level == 3 {
				k.Raise[level] = 2 * total
			}
		}
		k.Restart[level] = total + k.Raise[level]
	}
	return k, true
}

// Choice is what holds. ok is false before the first epoch.
func (c *Chooser) Choice() (_ Choice, ok bool) {
	if c.stale {
		c.stale = false
		if costs, known := c.costs(); known && !(c.chosen && costs.near(c.choice.Costs)) {
			c.choice, c.chosen = Best(c.settings, costs), true
		}
	}
	return c.choice, c.chosen
}

// near tells whether costs are so much alike that a choice stays: the loss is flat around its least, a tenth more of a
// cost is a twentieth more of a period.
func (k Costs) near(o Costs) bool {
	near := func(a, b time.Duration) bool { return (a - b).Abs() <= max(a, b)/10 }
	for level := range k.Raise {
		if !near(k.Raise[level], o.Raise[level]) {
			return false
		}
	}
	return near(k.Stop+k.Write, o.Stop+o.Write) && (near(k.Stop, o.Stop) || near(k.Write, o.Write))
}

// Levels is the policy as ckptrun --levels takes it; "" without local directories.
func (c Choice) Levels() string {
	var items []string
	if c.Every[1] == 0 {
		return ""
	}
	for k, often := range c.Every {
		switch often {
		case 0:
		case 1:
			items = append(items, fmt.Sprintf("L%d:every", k))
		default:
			items = append(items, fmt.Sprintf("L%d:%d", k, often))
		}
	}
	return strings.Join(items, ",")
}

// Why says in words what the choice follows from.
func (c Choice) Why() string {
	var b strings.Builder
	switch c.By {
	case ByFailures:
		b.WriteString("the least is lost")
	case ByOverhead:
		b.WriteString("the overhead allows no more")
	default:
		b.WriteString("writing and raising need it")
	}
	fmt.Fprintf(&b, "; an epoch stops the program for %s and is written in %s", short(c.Costs.Stop), short(c.Costs.Write))
	if c.Every[1] > 0 {
		for k := 2; k <= Top; k++ {
			if c.Every[k] > 0 {
				fmt.Fprintf(&b, ", L%d takes %s", k, short(c.Costs.Raise[k]))
			}
		}
	}
	fmt.Fprintf(&b, "; %.2g%% of the time for checkpoints", 100*c.Checkpoints)
	if c.Failures > 0 {
		fmt.Fprintf(&b, ", %.2g%% lost with failures", 100*c.Failures)
	}
	return b.String()
}

// short is a time with three digits that mean something.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
