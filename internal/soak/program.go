// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"

	"github.com/libckpt/libckpt/internal/suites"
)

// MPIs are those of the distribution.
var MPIs = []string{"mpich", "openmpi"}

// launchers start ranks under each.
var launchers = map[string][]string{
	"mpich":   {"mpiexec.mpich"},
	"openmpi": {"mpiexec.openmpi", "--oversubscribe"},
}

// Program is one of the programs that lead lives.
type Program struct {
	Name string
	// Weight says how often it is drawn.
	Weight int
	// Ranks are the numbers of ranks that it may have.
	Ranks []int
	// Argv is a command for a random amount of work; BIN stands for the folder of built programs.
	Argv func(r *rand.Rand) []string
	// MPIs with which it is built; nil: all. Each image goes on under any.
	MPIs []string
	// Options of ckptrun. Links: files are kept as links, so checkpoints must be on the same file system.
	Options []string
	Links   bool
	// other is the program in internal/suites, by the MPI that it is built with. Such a program also writes
	// files and prints while it runs, and only a part of its output is a result. nil: the program prints its
	// result at the end.
	other map[string]suites.Program
}

// Programs is the list: our own first.
var Programs = append([]Program{
	{Name: "random", Weight: 12, Ranks: []int{2, 2, 2, 3, 4}, Argv: func(r *rand.Rand) []string {
		return []string{"BIN/random", fmt.Sprint(r.Uint32()), fmt.Sprint(60 + r.IntN(140)), fmt.Sprint(1 + r.IntN(6))}
	}},
	sized("particles", 100, 400),
	sized("farm", 300, 1000),
	sized("pipeline", 300, 1000),
	sized("polling", 80, 300),
	{Name: "files", Weight: 4, Ranks: []int{2, 2, 3}, Argv: filesArgv()},
	{Name: "files, as links", Weight: 2, Ranks: []int{2, 2, 3}, Argv: filesArgv("named"), Options: []string{"--files-copy", "0"}, Links: true},
	heat(),
}, others()...)

// sized is a program whose only argument is its amount of work.
func sized(name string, least, most int) Program {
	return Program{Name: name, Weight: 1, Ranks: []int{2, 2, 3}, Argv: func(r *rand.Rand) []string {
		return []string{"BIN/" + name, fmt.Sprint(least + r.IntN(most-least))}
	}}
}

func filesArgv(how ...string) func(*rand.Rand) []string {
	return func(r *rand.Rand) []string {
		return append([]string{"BIN/files", fmt.Sprint(100 + r.IntN(300)), fmt.Sprint(r.Uint32())}, how...)
	}
}

// heat is the example; it saves itself, too.
func heat() Program {
	p := Program{Name: "heat", Weight: 1, Ranks: []int{2, 2, 3}, other: map[string]suites.Program{}, Argv: func(r *rand.Rand) []string {
		return []string{"rows=600", "columns=600", "checkpoint_every=300", fmt.Sprintf("steps=%d", 400+r.IntN(400))}
	}}
	for _, mpi := range MPIs {
		p.other[mpi] = suites.Program{Name: p.Name, MPI: mpi, Argv: []string{"$BUILD/examples/heat." + mpi, "heat.par"},
			Inputs: []string{"$IN/../../../examples/heat/heat.par"}, Keep: regexp.MustCompile(`^\d+ steps; field`), Blank: regexp.MustCompile(`.+`),
			Bytes: []string{"heat.raw", "heat.log"}, Proof: "~"}
	}
	return p
}

// others are other people's programs.
func others() []Program {
	var all []Program
	for _, s := range suites.Long() {
		i := slices.IndexFunc(all, func(p Program) bool { return p.Name == s.Name })
		if i < 0 {
			i = len(all)
			all = append(all, Program{Name: s.Name, Weight: 1, Ranks: []int{s.Ranks}, other: map[string]suites.Program{}})
		}
		all[i].other[s.MPI] = s
		all[i].MPIs = append(all[i].MPIs, s.MPI)
	}
	return all
}

// Find returns the program of a name.
func Find(name string) (*Program, error) {
	i := slices.IndexFunc(Programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no program %q", name)
	}
	return &Programs[i], nil
}

// Draw chooses a program by weight.
func Draw(r *rand.Rand, from []Program) *Program {
	total := 0
	for i := range from {
		total += from[i].Weight
	}
	at := r.IntN(total)
	for i := range from {
		if at -= from[i].Weight; at < 0 {
			return &from[i]
		}
	}
	panic("unreachable: the weights were summed up")
}
