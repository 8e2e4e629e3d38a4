// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"strings"
)

//go:generate go test . -run TestManual -rewrite

// Widths of --help: where explanations begin, and where lines end.
const (
	helpColumn = 32
	helpWidth  = 110
)

// Help is the text of --help.
func Help() string {
	var b strings.Builder
	b.WriteString(`ckptrun starts a program so that it can be saved, killed and continued.

Usage:
  ckptrun [options] [--] PROGRAM [ARGS...]    one per rank, under mpiexec, srun, ...
  ckptrun [options] --restart DIR[@EPOCH]     the newest committed epoch by default

Examples:
  mpiexec -n 4 ckptrun ./app input.txt        checkpoints go to ./ckpt
  ckptctl checkpoint ckpt --then exit         in another shell: save it, and end it
  mpiexec -n 4 ckptrun --restart ckpt         continue it, also on other nodes
  ckptrun --interval 10m -- python3 job.py    a program without MPI, saved every 10 minutes

Options (command line over environment over ckpt.toml in DIR):
`)
	for _, s := range settings {
		b.WriteString(helpRow("--"+s.flag+" "+s.value, fmt.Sprintf("%s (default: %s) [%s]", s.help, s.unset, s.env)))
	}
	b.WriteString(helpRow("--restart DIR[@EPOCH]", "continue what was saved there; s3://BUCKET/PREFIX[@EPOCH] is got from the object store, and DIR is that of --dir"))
	b.WriteString(helpRow("--rank I", "with --ranks, or at a restart of such a job: which of the N processes this is, from 0"))
	b.WriteString(helpRow("--whole", "save the MPI or other runtime with the program: for one that is linked with libckpt; a restart knows it"))
	b.WriteString(helpRow("--version", "print the version"))
	b.WriteString(`
Exit status: that of the program; 1 failed, nothing lost; 2 wrong usage; 3 no committed checkpoint.
See also: ckptctl --help, ckptctl doctor, man ckptrun.
`)
	return b.String()
}

// helpRow is an option and its explanation, in as many lines as that takes.
func helpRow(option, text string) string {
	indent := strings.Repeat(" ", helpColumn)
	row, line := "", "  "+option
	if len(line) > helpColumn-2 {
		row, line = line+"\n", ""
	}
	line += indent[len(line):]
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case len(line)+1+len(word) > helpWidth:
			row, line = row+line+"\n", indent
		default:
			line += " "
		}
		line += word
	}
	return row + line + "\n"
}

// ManOptions is the list of options for the man page, in the language of man(7).
func ManOptions() string {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`)
	for _, s := range settings {
		fmt.Fprintf(&b, ".TP\n.BI \\-\\-%s \" %s\"\n%s; default: %s [%s]\n", escape.Replace(s.flag), escape.Replace(s.value),
			escape.Replace(s.help), escape.Replace(s.unset), s.env)
	}
	return b.String()
}

// Table is the table of options in docs/manual.md.
func Table() string {
	var b strings.Builder
	b.WriteString("| option | environment | default | what |\n|---|---|---|---|\n")
	escape := strings.NewReplacer("|", `\|`)
	for _, s := range settings {
		fmt.Fprintf(&b, "| `--%s %s` | `%s` | %s | %s |\n", s.flag, escape.Replace(s.value), s.env, s.unset, escape.Replace(s.help))
	}
	return b.String()
}
