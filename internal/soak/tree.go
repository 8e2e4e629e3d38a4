// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/libckpt/libckpt/internal/suites"
)

// Tree is the built tree, and what is known of programs that run the same way each time. Lives use it one
// after the other.
type Tree struct {
	build   string
	scratch string             // programs of internal/suites, and what their compilers leave
	inputs  string             // of these
	ready   map[string]bool    // those that are compiled
	natives map[string]*native // what they come to, by command
}

// native is the result of a program without ckptrun.
type native struct {
	outcome ending
	took    time.Duration
}

// Open returns the tree in a folder. The error says what is missing there. The scratch folder must exist.
func Open(build, scratch string) (*Tree, error) {
	build, err := filepath.Abs(build)
	if err != nil {
		return nil, err
	}
	inputs, err := suites.Inputs()
	if err != nil {
		return nil, err
	}
	t := &Tree{build: build, scratch: scratch, inputs: inputs, ready: map[string]bool{}, natives: map[string]*native{}}
	for _, path := range []string{t.Tool("ckptrun"), t.Tool("ckptctl"), t.faulty(), t.program("files", "mpich"), filepath.Join(build, "examples", "heat.mpich")} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w: run `make faults examples soak-programs` first", err)
		}
	}
	return t, nil
}

// Tool is the path of a command of libckpt.
func (t *Tree) Tool(name string) string { return filepath.Join(t.build, "bin", name) }

// faulty is a ckptrun that arms fault points from its environment.
func (t *Tree) faulty() string { return filepath.Join(t.build, "obj", "faults", "bin", "ckptrun") }

func (t *Tree) program(name, mpi string) string {
	return filepath.Join(t.build, "soak", name+"."+mpi)
}

// command fills in what Argv left open, for a program built with an MPI.
func (t *Tree) command(argv []string, mpi string) []string {
	out := slices.Clone(argv)
	if dir, name := filepath.Split(out[0]); dir == "BIN/" {
		out[0] = t.program(name, mpi)
	}
	return out
}

// other places and compiles a program of internal/suites.
func (t *Tree) other(p suites.Program) (suites.Program, error) {
	p = p.In(t.inputs, t.scratch)
	p.Argv[0] = strings.Replace(p.Argv[0], "$BUILD", t.build, 1)
	name := p.Name + p.MPI
	if t.ready[name] {
		return p, nil
	}
	if err := p.Compile(t.scratch); err != nil {
		return p, err
	}
	t.ready[name] = true
	return p, nil
}
