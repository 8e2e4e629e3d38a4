// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	// MPIs under which it runs; nil: all, and each image under any.
	MPIs []string
}

// Programs is the list.
var Programs = []Program{
	{Name: "random", Weight: 12, Ranks: []int{2, 3, 3, 4}, Argv: func(r *rand.Rand) []string {
		return []string{"BIN/random", fmt.Sprint(r.Uint32()), fmt.Sprint(60 + r.IntN(140)), fmt.Sprint(1 + r.IntN(6))}
	}},
	sized("particles", 100, 400),
	sized("farm", 300, 1000),
	sized("pipeline", 300, 1500),
	sized("polling", 80, 300),
}

// sized is a program whose only argument says how much it does.
func sized(name string, least, most int) Program {
	return Program{Name: name, Weight: 1, Ranks: []int{2, 3, 4}, Argv: func(r *rand.Rand) []string {
		return []string{"BIN/" + name, fmt.Sprint(least + r.IntN(most-least))}
	}}
}

// Find returns the program of a name.
func Find(name string) (*Program, error) {
	i := slices.IndexFunc(Programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no program %q", name)
	}
	return &Programs[i], nil
}

// draw chooses a program by weight.
func draw(r *rand.Rand, from []Program) *Program {
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

// Tree is the build tree.
type Tree string

// Tool is the path of a command of libckpt.
func (t Tree) Tool(name string) string { return filepath.Join(string(t), "bin", name) }

// Check says what is missing.
func (t Tree) Check() error {
	for _, path := range []string{t.Tool("ckptrun"), t.Tool("ckptctl"), t.program("random", "mpich")} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run `make soak-programs` first", err)
		}
	}
	return nil
}

func (t Tree) program(name, mpi string) string {
	return filepath.Join(string(t), "soak", name+"."+mpi)
}

// command fills in what Argv left open, for a program built with an MPI.
func (t Tree) command(argv []string, mpi string) []string {
	out := slices.Clone(argv)
	if dir, name := filepath.Split(out[0]); dir == "BIN/" {
		out[0] = t.program(name, mpi)
	}
	return out
}
