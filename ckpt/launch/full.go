// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The option --full is written in words, "--full every 8", of which a parser of command lines would take the number for
// the program. So "every N" may also be one word, as in --full="every 8", in the environment and in ckpt.toml, and N
// alone means the same.

const fullOption, every = "--full", "every"

// maxFull bounds N: an image may refer to so many others.
const maxFull = 1000

func everyN(v string) (int, error) {
	words := strings.Fields(v)
	if len(words) == 2 && words[0] == every {
		words = words[1:]
	}
	if len(words) == 1 {
		if n, err := strconv.Atoi(words[0]); err == nil && n >= 1 && n <= maxFull {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%q is not \"every N\", with a number from 1 to %d", v, maxFull)
}

// words is how many words of a command line the option has that begins with them.
func words(args []string) int {
	name, _, whole := strings.Cut(args[0], "=")
	switch {
	case whole || name == "--whole" || name == "--version":
		return 1
	case name == fullOption && len(args) > 2 && args[1] == every:
		return 3
	}
	return min(2, len(args))
}

// joinFull makes "every" and what follows one word, where they are the value of --full. What is behind the options is
// the program's.
func joinFull(args []string) []string {
	for i := 0; i < len(args) && strings.HasPrefix(args[i], "--") && args[i] != "--"; {
		n := words(args[i:])
		if n == 3 {
			joined := append(slices.Clone(args[:i]), fullOption+"="+every+" "+args[i+2])
			args, n = append(joined, args[i+3:]...), 1
		}
		i += n
	}
	return args
}
