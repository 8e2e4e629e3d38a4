// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// program is a line of a testlist.
type program struct {
	ABI    string `json:"abi"` // the MPI that it was built for
	Folder string `json:"folder"`
	Name   string `json:"program"`
	Ranks  int    `json:"ranks"`
	Args   string `json:"args,omitempty"`
	env    []string
	// Why it is not run; "" when it is.
	left string
}

func (p *program) key() string {
	return strings.Join([]string{p.ABI, p.Folder, p.Name, strconv.Itoa(p.Ranks), p.Args, strings.Join(p.env, " ")}, "|")
}

// number is one that a program always has, by which its moment and its ways are chosen.
func (p *program) number() uint32 {
	h := fnv.New32a()
	h.Write([]byte(p.key()))
	return h.Sum32()
}

// programs reads the testlists of a built suite. only are the folders that are
// wanted, with those below them; all when it is empty. Folders are named by "testlist", whether its programs are wanted or not.
func programs(abi, dir string, only, lists []string) ([]*program, error) {
	var found []*program
	var walk func(folder string) error
	walk = func(folder string) error {
		for _, list := range slices.Compact(slices.Sorted(slices.Values(append([]string{folders}, lists...)))) {
			f, err := os.Open(filepath.Join(dir, folder, list))
			if os.IsNotExist(err) && list == folders { // those that configure does not write
				f, err = os.Open(filepath.Join(dir, "source", folder, list))
			}
			if os.IsNotExist(err) {
				continue
			}
			if err != nil {
				return err
			}
			defer f.Close()
			lines := bufio.NewScanner(f)
			for lines.Scan() {
				line, _, _ := strings.Cut(lines.Text(), "#")
				words := strings.Fields(line)
				if len(words) == 0 || strings.HasPrefix(words[0], "!") {
					continue
				}
				below := filepath.Join(folder, words[0])
				if info, err := os.Stat(filepath.Join(dir, below)); err == nil && info.IsDir() {
					if err := walk(below); err != nil {
						return err
					}
					continue
				}
				if wanted(folder, only) && slices.Contains(lists, list) {
					found = append(found, parse(abi, folder, words))
				}
			}
			if err := lines.Err(); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
		}
		return nil
	}
	err := walk("")
	return found, err
}

// folders is the list that names those below a folder.
const folders = "testlist"

func wanted(folder string, only []string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(o string) bool {
		return folder == o || strings.HasPrefix(folder, o+"/")
	})
}

func parse(abi, folder string, words []string) *program {
	p := &program{ABI: abi, Folder: filepath.Join(folder, filepath.Dir(words[0])), Name: filepath.Base(words[0]), Ranks: 2}
	var args []string
	for _, w := range words[1:] {
		key, value, pair := strings.Cut(w, "=")
		switch {
		case !pair:
			if n, err := strconv.Atoi(w); err == nil {
				p.Ranks = n
			}
		case key == "arg":
			args = append(args, value)
		case key == "env":
			p.env = append(p.env, value)
		case key == "mpiexecarg":
			p.left = "wants an option of mpiexec's"
		case key == "resultTest":
			p.left = "is judged by more than what it says (" + value + ")"
		}
	}
	p.Args = strings.Join(args, " ")
	return p
}

// limitObjects has programs of testlist.dtp, which make datatypes at random, make at most so many where their lists want
// more: up to 1024 take minutes, and the counts, types and seeds of the lines remain.
func limitObjects(list []*program, most int) {
	const key = "-testsize="
	for _, p := range list {
		args := strings.Fields(p.Args)
		for i, a := range args {
			if n, err := strconv.Atoi(strings.TrimPrefix(a, key)); err == nil && strings.HasPrefix(a, key) {
				args[i] = key + strconv.Itoa(min(n, most))
			}
		}
		p.Args = strings.Join(args, " ")
	}
}
