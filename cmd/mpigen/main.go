// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
)

func main() {
	root := flag.String("root", ".", "the repository")
	check := flag.Bool("check", false, "write nothing, fail when a generated file is stale")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "mpigen:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	files, err := generate()
	if err != nil {
		return err
	}
	var stale []string
	for _, name := range sorted(files) {
		path := filepath.Join(root, name)
		old, err := os.ReadFile(path)
		if name == sectionPage {
			files[name] = spliced(old, files[name])
		}
		if err == nil && bytes.Equal(old, files[name]) {
			continue
		}
		if check {
			stale = append(stale, name)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	unknown, err := leftovers(root, files)
	if err != nil {
		return err
	}
	if stale = append(stale, unknown...); len(stale) > 0 {
		return fmt.Errorf("not up to date (run `go run ./cmd/mpigen`, remove files that it does not write): %v", stale)
	}
	return nil
}

// generate returns every generated file by its path in the repository; of sectionPage a part.
func generate() (map[string][]byte, error) {
	fs, err := parseFunctions(functionsList)
	if err != nil {
		return nil, err
	}
	cs, err := parseConstants(constantsList)
	if err != nil {
		return nil, err
	}
	sec, err := parseSection(sectionList)
	if err != nil {
		return nil, err
	}
	records, err := sectionGo(sec)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"drain/zz_section.go":            records,
		sectionPage:                      sectionPart(sec),
		"capi/back/gen/zz_section.h":     sectionC(sec),
		"capi/canon/gen/zz_numbers.h":    numbers(fs),
		"capi/canon/gen/zz_constants.h":  constants(cs),
		"capi/canon/gen/zz_args.h":       argsHeader(fs),
		"capi/canon/gen/zz_shapes.h":     shapes(fs),
		"capi/front/gen/zz_mpifh.h":      fortranHeader(fs),
		"capi/front/gen/zz_words.h":      wordsHeader(fs),
		"capi/front/gen/zz_pmpi.h":       frontHeader(fs),
		"capi/back/gen/zz_back.h":        backHeader(fs),
		"capi/back/gen/zz_table.c":       backTable(fs),
		"capi/back/gen/zz_constants.c":   backConstants(cs),
		"capi/back/gen/zz_clocked.c":     backClocked(fs),
		"capi/back/gen/zz_files.h":       backFiles(fs),
		"capi/back/gen/zz_nonblocking.h": backNonblocking(fs),
		"capi/std/gen/mpi.h":             standardHeader(fs, cs),
		"docs/coverage.md":               coverage(fs),
	}
	stands, err := direct(directList)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, stands)
	chapters := map[string][]*function{}
	for _, f := range fs {
		chapters[f.chapter] = append(chapters[f.chapter], f)
	}
	for name, fs := range chapters {
		has := func(class ...string) bool {
			return slices.ContainsFunc(fs, func(f *function) bool { return slices.Contains(class, f.class) })
		}
		if has("translate", "hand", "persist", "large") {
			files["capi/front/gen/zz_"+name+".c"] = frontChapter(fs)
		}
		if has("translate", "front", "persist") {
			files["capi/back/gen/zz_"+name+".c"] = backChapter(fs)
		}
	}
	return files, nil
}

// leftovers names files that look generated but are not generated any more.
func leftovers(root string, files map[string][]byte) ([]string, error) {
	var left []string
	for _, dir := range []string{"capi/canon/gen", "capi/front/gen", "capi/back/gen", directGen, "drain"} {
		found, err := filepath.Glob(filepath.Join(root, dir, "zz_*"))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if name := dir + "/" + filepath.Base(f); files[name] == nil {
				left = append(left, name)
			}
		}
	}
	return left, nil
}

func sorted(m map[string][]byte) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
