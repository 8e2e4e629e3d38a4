// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed direct.list
var directList string

// directGen is where that goes which is written from direct.list.
const directGen = "capi/verbs/direct/gen"

// answers that direct.list knows; capi/verbs/direct/answers.h has a macro for each but the last.
var answers = []string{"error", "former", "null", "minus", "false", "nothing", "hand"}

// direct writes the stand-ins for libmlx5 and the like, and what of librdmacm is not by hand: for each library a source, and a map
// of its versions.
func direct(list string) (map[string][]byte, error) {
	files := map[string][]byte{}
	var name, version, former string
	var source, vers bytes.Buffer
	var known []string
	endVersion := func(last bool) {
		if version != "" {
			if last { // hides what is not listed; the first would hide former versions too
				vers.WriteString("  local:\n    *;\n")
			}
			fmt.Fprintf(&vers, "}%s;\n", former)
			former = " " + version
		}
		version = ""
	}
	endLibrary := func() {
		if endVersion(true); name != "" {
			files[directGen+"/zz_"+name+".c"] = bytes.Clone(source.Bytes())
			files[directGen+"/zz_"+name+".map"] = bytes.Clone(vers.Bytes())
		}
	}
	for n, line := range strings.Split(list, "\n") {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) == "" {
			continue
		}
		word := strings.Fields(line)
		bad := func(why string) (map[string][]byte, error) {
			return nil, fmt.Errorf("direct.list:%d: %q: %s", n+1, line, why)
		}
		if len(word) != 2 {
			return bad("want two words")
		}
		switch word[0] {
		case "library":
			endLibrary()
			name, former = strings.TrimSuffix(word[1], ".so.1"), ""
			known = nil
			source.Reset()
			vers.Reset()
			source.WriteString("// SPDX-License-Identifier: Apache-2.0\n" + banner + "#include \"verbs/direct/answers.h\"\n\n")
			vers.WriteString("/* SPDX-License-Identifier: Apache-2.0 */\n" + banner)
			continue
		case "version":
			endVersion(false)
			version = word[1]
			fmt.Fprintf(&vers, "%s {\n  global:\n", version)
			continue
		}
		function := word[1]
		switch {
		case !slices.Contains(answers, word[0]):
			return bad("not an answer")
		case version == "" || name == "":
			return bad("of no library and version")
		case slices.Contains(known, function+word[0]):
			return bad("twice")
		}
		known = append(known, function+word[0])
		if word[0] == "former" {
			fmt.Fprintf(&source, "DIRECT_FORMER(%s, \"%s@%s\")\n", function, function, version)
			continue
		}
		if word[0] != "hand" {
			fmt.Fprintf(&source, "DIRECT_%s(%s)\n", strings.ToUpper(word[0]), function)
		}
		fmt.Fprintf(&vers, "    %s;\n", function)
	}
	endLibrary()
	return files, nil
}
