// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Connections that wait to be accepted are saved: the server that accepts later finds the same clients, in the same order,
// with what they have written, whether the job goes on or is continued; also those whose clients have closed or cut them.
func TestVisitors(t *testing.T) {
	for _, restarts := range []int{0, 2} {
		t.Run(fmt.Sprint(restarts, " restarts"), func(t *testing.T) {
			w := newTogether(t, 3)
			dir := w.Run.Dir + "/visits"
			must(t, os.Mkdir(dir, 0o755))
			w.Argv = []string{built.Bin + "/visitors", dir}
			must(t, w.Start("shell", options()...))
			there := func(name string) {
				t.Helper()
				if !Poll(patience, nil, func() bool { _, err := os.Stat(dir + "/" + name); return err == nil || w.Ended() }) || w.Ended() {
					t.Fatalf("no %s: %s", name, w.Said())
				}
			}
			there("almost")
			save := func() {
				t.Helper()
				if restarts == 0 {
					saveTogether(t, w, "continue")
					return
				}
				saveTogether(t, w, "kill")
				_, err := w.Wait(togetherLimit)
				must(t, err)
				must(t, w.Restart("shell", options()...))
				if !Poll(patience, nil, func() bool { return answers(w.Run.Checkpoints()) || w.Ended() }) {
					t.Fatalf("no job: %s", w.Said())
				}
			}
			save()
			must(t, os.WriteFile(dir+"/late", nil, 0o644))
			there("connected2")
			save() // of those that were saved before, and more
			must(t, os.WriteFile(dir+"/accept", nil, 0o644))
			must(t, w.MustEnd(togetherLimit))
			var want, lines strings.Builder
			for _, socket := range []string{"0 ", "1 "} {
				for r := 1; r < w.Ranks; r++ {
					for line := range strings.Lines(string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r)))) {
						if rest, ok := strings.CutPrefix(line, socket); ok {
							want.WriteString(rest)
						}
					}
				}
			}
			lines.Write(mustRead(t, fmt.Sprintf("%s.out.0", w.Files)))
			if want.WriteString("done\n"); lines.String() != want.String() || strings.Count(want.String(), "\n") != 19 {
				t.Errorf("the server has\n%swant\n%s", lines.String(), want.String())
			}
		})
	}
}
