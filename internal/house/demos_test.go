// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemos: what the README tells people to call first is a target of the Makefile, and its script can be read by bash.
func TestDemos(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, demo := range []string{"demo", "demo-embed", "demo-levels", "demo-nodes"} {
		script := "scripts/" + demo + ".sh"
		if !strings.Contains(string(makefile), "\n"+demo+": all examples\n\t"+script+" $(BUILD)") {
			t.Errorf("`make %s` does not build and call %s", demo, script)
		}
		if !strings.Contains(string(readme), "`make "+demo+"`") {
			t.Errorf("README.md does not name `make %s`", demo)
		}
		if out, err := exec.Command("bash", "-n", filepath.Join(root, script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
		text, err := os.ReadFile(filepath.Join(root, script))
		if err != nil || !strings.Contains(string(text), "\ndemo="+demo+"\n") || !strings.HasSuffix(string(text), "\npassed\n") {
			t.Errorf("%s does not end by saying that it has passed (%v)", script, err)
		}
	}
	lib, err := os.ReadFile(filepath.Join(root, "scripts/demo-lib.sh"))
	if err != nil || !strings.Contains(string(lib), "printf '\\n%s: passed\\n' \"$demo\"\n}") {
		t.Errorf("scripts/demo-lib.sh does not say that a demo has passed (%v)", err)
	}
}
