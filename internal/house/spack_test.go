// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// standIn is what of Spack a recipe may use, as far as it can be seen from outside: names that it gives a package, each of
// which writes down how it is called. It is not Spack: whether versions and dependencies can be had is not looked at.
const standIn = `
import ast, sys, types
path = sys.argv[1]
source = open(path).read()
ast.parse(source, path)
package = types.ModuleType("spack.package")
def note(name):
    def f(*args, **kwargs):
        print(name, *args, *("%s=%s" % kv for kv in sorted(kwargs.items())))
        return lambda g: g
    return f
for name in ("version", "variant", "depends_on", "requires", "conflicts", "license", "run_after", "on_package_attributes"):
    setattr(package, name, note(name))
class MakefilePackage: pass
package.MakefilePackage = MakefilePackage
package.join_path = lambda *a: "/".join(a)
ran = []
package.make = lambda *a: ran.append(a)
package.Executable = note("Executable")
package.working_dir = None
sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), package
scope = {}
exec(compile(source, path, "exec"), scope)
p = scope["Libckpt"]()
class Env:
    def set(self, name, value): print("env", name, value)
p.stage = types.SimpleNamespace(path="STAGE")
p.spec = {"mpi": types.SimpleNamespace(mpicc="MPICC")}
p.setup_build_environment(Env())
print("build", *p.build_targets)
p.install(p.spec, "PREFIX")
print("install", *ran[0])
`

// TestSpackRecipe runs the recipe with a stand-in for Spack, and compares what it says with the Makefile and go.mod.
func TestSpackRecipe(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("%v: make setup installs it", err)
	}
	out, err := exec.Command(python, "-c", standIn, filepath.Join(root, "packaging", "spack", "package.py")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	version := regexp.MustCompile(`(?m)^VERSION := (.+)$`).FindStringSubmatch(read(t, "Makefile"))
	golang := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	if version == nil || golang == nil {
		t.Fatal("the Makefile says no VERSION, or go.mod no Go")
	}
	for _, line := range []string{
		"version " + version[1] + " tag=v" + version[1],
		"depends_on go@" + golang[1] + ": type=build",
		"env LIBCKPT_SETUP look", // scripts/setup.sh
		"build all BACKS=MPICC",
		"install install BACKS=MPICC PREFIX=PREFIX",
	} {
		if !strings.Contains("\n"+string(out), "\n"+line+"\n") {
			t.Errorf("the recipe does not say %q: %s", line, out)
		}
	}
	if !strings.Contains(read(t, "scripts", "setup.sh"), `"${LIBCKPT_SETUP:-}" != look`) {
		t.Error("scripts/setup.sh knows no LIBCKPT_SETUP=look")
	}
	if !strings.Contains(read(t, "debian", "changelog"), "libckpt ("+version[1]+")") {
		t.Errorf("debian/changelog does not begin with %s", version[1])
	}
}
