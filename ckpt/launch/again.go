// SPDX-License-Identifier: Apache-2.0

package launch

import "strings"

// Again returns the options, without a program, with which ckptrun runs a program that this program starts. own are
// the options of this process, o is their meaning. The program may have changed its working directory, so Dir is
// absolute. --restart is left out, also for a program that was continued.
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
