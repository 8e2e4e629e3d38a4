// SPDX-License-Identifier: Apache-2.0

package attributes

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limit is a limit of a resource that the program has set itself: setrlimit(2). All bits set means none.
type Limit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Choice is one of the process's own settings that are a number, where the program has chosen another than it began with.
type Choice struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
}

// resources are what is limited, by the kernel's numbers.
var resources = [...]string{"processor time", "the size of files", "data", "the stack", "core files", "resident memory", "processes", unix.RLIMIT_NOFILE: "descriptors",
	unix.RLIMIT_MEMLOCK: "locked memory", unix.RLIMIT_AS: "addresses", 10: "file locks", 11: "pending signals", 12: "bytes in message queues",
	13: "niceness", 14: "real-time priority", 15: "real-time processor time"}

// own tells the resources whose limit the program sees is not the kernel's, which counts ckptrun's descriptors and memory as well
// (Start.limit).
func own(resource int) bool {
	return resource == unix.RLIMIT_NOFILE || resource == unix.RLIMIT_AS || resource == unix.RLIMIT_DATA
}

// setting is one of the numbers: how it is read and set.
type setting struct {
	name string // in the image, and for people
	get  func() (int, error)
	set  func(int) error
}

var settings = []setting{
	{"subreaper", getPointed(unix.PR_GET_CHILD_SUBREAPER), byPrctl(unix.PR_SET_CHILD_SUBREAPER)},
	{"no huge pages", getReturned(unix.PR_GET_THP_DISABLE), byPrctl(unix.PR_SET_THP_DISABLE)},
	{"dumpable", getReturned(unix.PR_GET_DUMPABLE), byPrctl(unix.PR_SET_DUMPABLE)},
	{"oom_score_adj", getOOM, setOOM},
}

// getPointed is for values that prctl writes to where its second argument points.
func getPointed(option int) func() (int, error) {
	return func() (int, error) {
		var v int32
		err := unix.Prctl(option, uintptr(unsafe.Pointer(&v)), 0, 0, 0)
		return int(v), err
	}
}

// getReturned is for values that prctl returns.
func getReturned(option int) func() (int, error) {
	return func() (int, error) { return unix.PrctlRetInt(option, 0, 0, 0, 0) }
}

func byPrctl(option int) func(int) error {
	return func(v int) error { return unix.Prctl(option, uintptr(v), 0, 0, 0) }
}

const oomFile = "/proc/self/oom_score_adj"

func getOOM() (int, error) {
	b, err := os.ReadFile(oomFile)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

func setOOM(v int) error { return os.WriteFile(oomFile, []byte(strconv.Itoa(v)), 0) }

// process is what concerns all threads, as it is now. What this kernel does not tell is left out.
type process struct {
	limits  [len(resources)]unix.Rlimit
	choices map[string]int
}

func (s Start) processNow() (p process, err error) {
	for r := range resources {
		if s.limit == nil && own(r) {
			continue
		}
		var e error
		p.limits[r], e = s.exchange(r, nil)
		err = errors.Join(err, e)
	}
	if err != nil {
		return process{}, fmt.Errorf("the limits of this process: %w", err)
	}
	p.choices = map[string]int{}
	for _, one := range settings {
		if v, err := one.get(); err == nil {
			p.choices[one.name] = v
		}
	}
	return p, nil
}

// changed lists what differs from how the process began.
func (p process) changed(now process) (limits []Limit, choices []Choice) {
	for r, l := range now.limits {
		if l != p.limits[r] {
			limits = append(limits, Limit{r, l.Cur, l.Max})
		}
	}
	for _, s := range settings {
		v, known := now.choices[s.name]
		if was, began := p.choices[s.name]; known && began && v != was {
			choices = append(choices, Choice{s.name, v})
		}
	}
	return limits, choices
}

// exchange returns a limit of the program as it was; then it becomes that of set, if there is one.
func (s Start) exchange(resource int, set *unix.Rlimit) (was unix.Rlimit, err error) {
	switch {
	case !own(resource):
		err = unix.Prlimit(0, resource, set, &was)
	case s.limit == nil:
		err = errors.New("not the program's here")
	default:
		was, err = s.limit(resource, set)
	}
	return was, err
}

// apply sets a limit as far as this process may: where the hard one is lower here, up to that.
func (s Start) apply(l Limit) error {
	want := unix.Rlimit{Cur: l.Soft, Max: l.Hard}
	here, err := s.exchange(l.Resource, nil)
	if err != nil {
		return err
	}
	if _, err := s.exchange(l.Resource, &want); err == nil { // the hard one, too
		return nil
	}
	want = unix.Rlimit{Cur: min(l.Soft, here.Max), Max: min(l.Hard, here.Max)}
	if _, err := s.exchange(l.Resource, &want); err != nil {
		return err
	}
	if l.Soft > here.Max {
		return fmt.Errorf("it is %s: nobody may have more here", amount(here.Max))
	}
	return nil
}

func (c Choice) apply() error {
	for _, s := range settings {
		if s.name == c.Name {
			return s.set(c.Value)
		}
	}
	return errors.New("not known to this version")
}

func amount(v uint64) string {
	if v == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(v, 10)
}

// check looks at what comes from an image.
func check(limits []Limit, choices []Choice) error {
	for _, l := range limits {
		if l.Resource < 0 || l.Resource >= len(resources) || l.Soft > l.Hard {
			return fmt.Errorf("a limit of resource %d of %d, at most %d", l.Resource, l.Soft, l.Hard)
		}
	}
	if len(choices) > 2*len(settings) {
		return fmt.Errorf("%d settings of the process", len(choices))
	}
	return nil
}

// applyProcess gives the process its limits and settings; what it cannot have is text for people.
func (s Start) applyProcess(state State) (lost []string) {
	for _, l := range state.Limits {
		if err := s.apply(l); err != nil {
			lost = append(lost, fmt.Sprintf("the limit of %s was %s (hard: %s), which it cannot be here: %v", resources[l.Resource], amount(l.Soft), amount(l.Hard), err))
		}
	}
	for _, c := range state.Choices {
		if err := c.apply(); err != nil {
			lost = append(lost, fmt.Sprintf("the setting %q of the process was %d, which it cannot be here: %v", c.Name, c.Value, err))
		}
	}
	return lost
}
