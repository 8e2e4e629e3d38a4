// SPDX-License-Identifier: Apache-2.0

package launch

import "strings"

// Again returns the options, without a program, with which a program that this one starts comes under
// ckptrun: own are those of this process, o is what they meant. The program may have gone to another
// folder, so the directory is absolute; it is started, also by a program that was continued.
func Again(own []string, o Options) []string {
	out := []string{}
	for i := 0; i < len(own); i++ {
		name, _, whole := strings.Cut(own[i], "=")
		value := i + 1
		switch {
		case own[i] == "--":
			continue
		case whole || name == "--whole" || name == "--version" || value == len(own):
			value = i // all in one word
		}
		if name != "--dir" && name != "--restart" && name != "--argv0" {
			out = append(out, own[i:value+1]...)
		}
		i = value
	}
	return append(out, "--dir", o.Dir)
}
