// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/levels"
)

// environment is a getenv over pairs.
func environment(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

// directory makes a checkpoint directory with that ckpt.toml.
func directory(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	if file != "" {
		if err := os.WriteFile(filepath.Join(dir, "ckpt.toml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// wantStatus checks that err is an Error with that exit status whose text has all the words.
func wantStatus(t *testing.T, err error, status int, words ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("error %v, expected one with exit status %d", err, status)
		return
	}
	if e.Status != status {
		t.Errorf("exit status %d of %q, expected %d", e.Status, err, status)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not name %q", err, w)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	o, rest, own, err := Parse([]string{"./app"}, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("ckpt")
	if err != nil {
		t.Fatal(err)
	}
	want := Options{Dir: dir, Keep: 2, Full: 1, Changes: "auto", Same: "once", Compress: image.CompressAuto, SafeState: "clock",
		Rank: -1, Snapshot: "cow", Restarts: "auto", Fallback: true, Trap: "seccomp", Log: "warn", Files: "snapshot", FilesCopy: 64 << 20, Control: "auto", Timeout: time.Minute, Lease: time.Minute,
		Levels: levels.Policy{0, 1, 4, 8, 32}, Group: 4}
	if d := cmp.Diff(want, o, cmpopts.IgnoreUnexported(Options{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"./app"}, rest); d != "" || own != 0 {
		t.Error(d, own)
	}
}

// values are, for each setting but dir, three texts that mean different things.
var values = map[string][3]string{
	"interval":        {"30s", "10m", "2h"},
	"control":         {"local", "network", "10.1.0.0/16,eth1"},
	"overhead":        {"1%", "2", "3.5%"},
	"full":            {"every 2", "8", "every 1"},
	"changes":         {"digest", "auto", "digest"},
	"same-pages":      {"each", "once", "each"},
	"keep":            {"1", "3", "7"},
	"compress":        {"none", "snappy", "auto"},
	"snapshot-memory": {"512M", "off", "4GiB"},
	"write-limit":     {"50M", "off", "1G/s"},
	"signal":          {"USR1=continue", "SIGUSR2=exit", "usr1=kill,HUP"},
	"exit-code":       {"1", "2", "255"},
	"mpi":             {"mpich", "abi", "/opt/mpi/lib/libmpi.so"},
	"safe-state":      {"clock", "2pc", "clock"},
	"snapshot":        {"stop", "cow", "stop"},
	"restart-mode":    {"lazy", "eager", "auto"},
	"fallback":        {"no", "yes", "no"},
	"trap":            {"seccomp", "sud", "seccomp"},
	"files":           {"restore", "keep", "ignore"},
	"files-copy":      {"0", "512K", "1GiB"},
	"ignore-fd":       {"3", "4,5", "6"},
	"timeout":         {"1s", "off", "3s"},
	"lease":           {"1s", "2m", "500ms"},
	"log":             {"debug", "info", "error"},
	"local":           {"/a", "/b", "/c/d"},
	"levels":          {"L1:every", "L1:every,L4:every", "L1:every,L2:2,L3:9"},
	"group":           {"2", "3", "127"},
	"mtbf":            {"12h", "2d,L1:50%,L4:50%", "L1:6h,L2:1d,L3:7d,L4:30d"},

	"object":          {"s3://abc", "s3://abc/x", "s3://other/x/y"},
	"object-endpoint": {"http://127.0.0.1:9000", "https://store.example.org", "https://store.example.org:9000/"},
	"object-http":     {"yes", "no", "yes"},
	"object-timeout":  {"5s", "2m", "1h"},
	"ranks":           {"2", "auto", "65536"},
}

// --object without a local directory is wrong usage; a restart from an object store needs none.
func TestObjectNeedsLocal(t *testing.T) {
	_, _, _, err := Parse([]string{"--object", "s3://abc/x", "app"}, environment(nil))
	wantStatus(t, err, ExitUsage, "--object", "--local")
	o, _, _, err := Parse([]string{"--restart", "s3://abc/x@7"}, environment(nil))
	if err != nil || filepath.Base(o.Dir) != "ckpt" || o.Object.Bucket != "" {
		t.Errorf("%+v, %v", o, err)
	}
	if place, epoch, err := SplitObject(o.Restart); err != nil || place.String() != "s3://abc/x" || epoch != 7 {
		t.Errorf("%v, %d, %v", place, epoch, err)
	}
	o, _, _, err = Parse([]string{"--restart", "s3://abc/x", "--local", "/l", "--dir", "d"}, environment(nil))
	if err != nil || filepath.Base(o.Dir) != "d" || o.Object.String() != "s3://abc/x" {
		t.Errorf("goes on in %v, %v", o.Object, err)
	}
	for _, bad := range []string{"s3://", "s3://abc/x@0", "s3://abc/x@y", "s3://ABC"} {
		_, _, _, err := Parse([]string{"--restart", bad}, environment(nil))
		wantStatus(t, err, ExitUsage, "--restart")
	}
}

// --levels without a local directory is wrong usage, as is a size of nodes that is none.
func TestLevelsNeedLocal(t *testing.T) {
	_, _, _, err := Parse([]string{"--levels", "L1:every", "app"}, environment(nil))
	wantStatus(t, err, ExitUsage, "--levels", "--local")
	_, _, _, err = Parse([]string{"app"}, environment(map[string]string{"CKPT_NODE_SIZE": "0"}))
	wantStatus(t, err, ExitUsage, "CKPT_NODE_SIZE", "0")
	o, _, _, err := Parse([]string{"--local", "here", "app"}, environment(map[string]string{"CKPT_NODE_SIZE": "2"}))
	if err != nil || o.NodeSize != 2 || !filepath.IsAbs(o.Local) {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestPrecedence gives each setting in the file, then also in the environment, then also on the command
// line: the last one counts.
func TestPrecedence(t *testing.T) {
	for _, s := range settings[1:] {
		t.Run(s.flag, func(t *testing.T) {
			v, ok := values[s.flag]
			if !ok {
				t.Fatal("no values for this setting: add them")
			}
			dir := directory(t, s.flag+" = '"+v[0]+"'\n")
			env := map[string]string{}
			args := []string{"--dir", dir}
			local := ""
			if s.flag == "levels" || s.flag == "object" { // they need one
				local = "/local"
				env["CKPT_LOCAL"] = local
			}
			for i, where := range []string{"file", "environment", "command line"} {
				switch i {
				case 1:
					env[s.env] = v[1]
				case 2:
					args = append(args, "--"+s.flag+"="+v[2])
				}
				want := defaults()
				want.Dir, want.Local = dir, local
				if err := s.set(&want, v[i]); err != nil {
					t.Fatal(err)
				}
				got, _, _, err := Parse(append(args, "app"), environment(env))
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Options{})); d != "" {
					t.Errorf("%s: %s", where, d)
				}
			}
		})
	}
}

// TestMeaning says what texts mean, where it is not the text itself.
func TestMeaning(t *testing.T) {
	dir := directory(t, "keep = 5\noverhead = 2.5\nexit-code = 9\n")
	o, _, _, err := Parse([]string{"--dir", dir, "--interval", "90s", "--timeout", "0", "--lease", "90s", "--compress", "zstd",
		"--signal", "USR1,SIGusr2=exit,,term=kill", "--ignore-fd", "7,9", "--files-copy", "3MiB", "app"}, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := Options{Dir: dir, Interval: 90 * time.Second, Keep: 5, Full: 1, Changes: "auto", Same: "once", ExitCode: 9,
		Rank: -1, Compress: image.CompressZstd, SafeState: "clock", Snapshot: "cow", Restarts: "auto", Fallback: true, Trap: "seccomp", Log: "warn",
		Files: "snapshot", FilesCopy: 3 << 20, Control: "auto", IgnoreFD: []int{7, 9}, Lease: 90 * time.Second, Levels: levels.Policy{0, 1, 4, 8, 32}, Group: 4,
		Signals: map[unix.Signal]after.Action{unix.SIGUSR1: after.Continue, unix.SIGUSR2: after.Exit, unix.SIGTERM: after.Kill}}
	if d := cmp.Diff(want, o, cmpopts.IgnoreUnexported(Options{}), cmpopts.EquateApprox(0, 1e-12)); d != "" {
		t.Error(d)
	}
}

// TestHowOften: an interval and an overhead exclude each other where they are given, and the stronger place
// decides.
func TestHowOften(t *testing.T) {
	const minute = time.Minute
	for _, c := range []struct {
		file, env, line string // "interval overhead", "-" for none
		interval        time.Duration
		overhead        float64
		wrong           string // names the place
	}{
		{"- -", "- -", "- -", 0, 0, ""},
		{"1m -", "- -", "- -", minute, 0, ""},
		{"- 2%", "- -", "- -", 0, 0.02, ""},
		{"- 2%", "1m -", "- -", minute, 0, ""},
		{"1m -", "- 2%", "- -", 0, 0.02, ""},
		{"1m -", "- -", "- 2%", 0, 0.02, ""},
		{"1m -", "1m -", "- 2%", 0, 0.02, ""},
		{"- 3%", "- 2%", "1m -", minute, 0, ""},
		{"1m -", "- -", "off -", 0, 0, ""},
		{"- 2%", "- -", "0 -", 0, 0.02, ""},
		{"1m -", "- -", "0 2%", 0, 0.02, ""},
		{"1m -", "- 0%", "- -", minute, 0, ""},
		{"1m 2%", "- -", "- -", 0, 0, "ckpt.toml"},
		{"1m 2%", "- -", "2m -", 0, 0, "ckpt.toml"},
		{"- -", "1m 2%", "- -", 0, 0, "environment"},
		{"1m -", "1m 2%", "- -", 0, 0, "environment"},
		{"- -", "- -", "1m 2%", 0, 0, "command line"},
		{"1m -", "- -", "1m 2%", 0, 0, "command line"},
	} {
		text, env, args := "", map[string]string{}, []string{}
		if v, w, _ := strings.Cut(c.file, " "); true {
			if v != "-" {
				text += "interval = '" + v + "'\n"
			}
			if w != "-" {
				text += "overhead = '" + w + "'\n"
			}
		}
		if v, w, _ := strings.Cut(c.env, " "); true {
			if v != "-" {
				env["CKPT_INTERVAL"] = v
			}
			if w != "-" {
				env["CKPT_OVERHEAD"] = w
			}
		}
		if v, w, _ := strings.Cut(c.line, " "); true {
			if v != "-" {
				args = append(args, "--interval", v)
			}
			if w != "-" {
				args = append(args, "--overhead", w)
			}
		}
		o, _, _, err := Parse(append(append([]string{"--dir", directory(t, text)}, args...), "app"), environment(env))
		if c.wrong != "" {
			wantStatus(t, err, ExitUsage, c.wrong, "interval", "overhead")
			continue
		}
		if err != nil || o.Interval != c.interval || o.Overhead != c.overhead {
			t.Errorf("%+v: %v, %v, %v", c, o.Interval, o.Overhead, err)
		}
	}
}

// TestHowOftenByFailures: a time between failures goes with an overhead, and not with an interval; the stronger place
// decides.
func TestHowOftenByFailures(t *testing.T) {
	for _, c := range []struct {
		file, env, line map[string]string
		interval        time.Duration
		overhead        float64
		mtbf            time.Duration
		wrong           string
	}{
		{nil, nil, map[string]string{"mtbf": "1h"}, 0, 0, time.Hour, ""},
		{nil, nil, map[string]string{"mtbf": "1h", "overhead": "5%"}, 0, 0.05, time.Hour, ""},
		{map[string]string{"overhead": "5%"}, nil, map[string]string{"mtbf": "2d"}, 0, 0.05, 48 * time.Hour, ""},
		{map[string]string{"interval": "1m"}, map[string]string{"mtbf": "1h"}, nil, 0, 0, time.Hour, ""},
		{map[string]string{"mtbf": "1h", "overhead": "5%"}, map[string]string{"interval": "1m"}, nil, time.Minute, 0, 0, ""},
		{map[string]string{"mtbf": "1h"}, map[string]string{"mtbf": "off"}, nil, 0, 0, 0, ""},
		{map[string]string{"mtbf": "1h"}, nil, map[string]string{"interval": "off"}, 0, 0, time.Hour, ""},
		{map[string]string{"interval": "1m"}, nil, map[string]string{"mtbf": "off"}, time.Minute, 0, 0, ""},
		{nil, nil, map[string]string{"mtbf": "1h", "interval": "1m"}, 0, 0, 0, "command line"},
		{map[string]string{"mtbf": "1h", "interval": "1m"}, nil, nil, 0, 0, 0, "ckpt.toml"},
	} {
		text, env, args := "", map[string]string{}, []string{}
		for k, v := range c.file {
			text += k + " = '" + v + "'\n"
		}
		for k, v := range c.env {
			env["CKPT_"+strings.ToUpper(k)] = v
		}
		for k, v := range c.line {
			args = append(args, "--"+k, v)
		}
		o, _, _, err := Parse(append(append([]string{"--dir", directory(t, text)}, args...), "app"), environment(env))
		if c.wrong != "" {
			wantStatus(t, err, ExitUsage, c.wrong, "interval", "mtbf")
			continue
		}
		if mean := o.MTBF.Mean(); err != nil || o.Interval != c.interval || o.Overhead != c.overhead || (mean-c.mtbf).Abs() > time.Second {
			t.Errorf("%+v: %v, %v, %v, %v", c, o.Interval, o.Overhead, mean, err)
		}
	}
}

func TestControlAt(t *testing.T) {
	for _, c := range []struct {
		control string
		oneHost bool
		env     map[string]string
		local   bool
		only    []string
	}{
		{"auto", true, nil, true, nil},
		{"auto", false, nil, false, nil},
		{"auto", true, map[string]string{"SLURM_JOB_ID": "7"}, false, nil},
		{"auto", true, map[string]string{"PBS_JOBID": "7.host"}, false, nil},
		{"local", false, map[string]string{"SLURM_JOB_ID": "7"}, true, nil},
		{"network", true, nil, false, nil},
		{"ib0,10.1.0.0/16", true, nil, false, []string{"ib0", "10.1.0.0/16"}},
	} {
		o := Options{Control: c.control}
		if local, only := o.ControlAt(c.oneHost, environment(c.env)); local != c.local || !slices.Equal(only, c.only) {
			t.Errorf("%+v: %v, %q", c, local, only)
		}
	}
}

// TestBadValues: each is wrong usage, and the message names where it was given and the value.
func TestBadValues(t *testing.T) {
	bad := map[string][]string{
		"interval":        {"x", "-1s", "5", "10 m"},
		"overhead":        {"x", "-1%", "100%", "NaN", "Inf", "5%%", "%"},
		"control":         {"a b", "local,eth0", "eth0,", ",", "auto,network"},
		"changes":         {"kernel", "digests"},
		"same-pages":      {"always", "0"},
		"full":            {"0", "-1", "every", "every x", "always", "1001", "every 2 3"},
		"keep":            {"0", "-2", "x", "1.5", "99999999999999999999"},
		"compress":        {"gzip", "SNAPPY"},
		"snapshot-memory": {"little", "-1", "0", "1023K", "2000000T"},
		"write-limit":     {"fast", "-1", "1", "63K", "2000000T", "50M/h"},
		"signal":          {"NOSUCH=exit", "KILL=exit", "STOP=exit", "SYS=exit", "SEGV", "BUS", "FPE", "ILL", "USR1=reboot", "=exit", "USR1=", "SIGSIGUSR1"},
		"exit-code":       {"-1", "256", "x"},
		"mpi":             {"", "MPICH", "-x", "a b"},
		"safe-state":      {"3pc"},
		"snapshot":        {"fork"},
		"restart-mode":    {"", "later"},
		"fallback":        {"", "none"},
		"trap":            {"ptrace"},
		"files":           {"delete"},
		"files-copy":      {"x", "-1", "1.5M", "3G", "1T", "M", "9999999999999999999"},
		"ignore-fd":       {"x", "-1", "3,,4", "3,x"},
		"timeout":         {"soon", "-5s"},
		"lease":           {"soon", "-5s", "0", "off", "499ms", "25h"},
		"log":             {"loud", "WARN"},
		"local":           {""},
		"levels":          {"L2:4", "every", "L1:every,L2", "L1:every,L5:2", "L1:every,L2:0"},
		"group":           {"1", "0", "-4", "128", "x"},
		"mtbf":            {"x", "-1h", "5", "12h,L5:100%", "12h,L1:50%", "12h,L1:1h", "L1:50%", "L1:1h,L1:2h", "L1", "12h,", "L1:0s", "99999d", "12h,L1:NaN%", "12h,L1:200%,L2:-100%"},

		"object":          {"bucket/x", "s3:bucket", "s3://", "s3://b", "s3://Bucket/x", "s3://bucket/../x", "https://bucket/x"},
		"object-endpoint": {"store", "store:9000", "ftp://store", "http://", "https://store/path", "https://user@store", "https://store?x=1"},
		"object-http":     {"maybe", "1", "YES"},
		"object-timeout":  {"soon", "-5s", "0", "off", "999ms", "2h"},
		"ranks":           {"0", "-1", "two", "65537", "2.5", "AUTO"},
	}
	for _, s := range settings[1:] {
		if len(bad[s.flag]) == 0 {
			t.Errorf("no bad values for --%s: add some", s.flag)
		}
		for _, v := range append(bad[s.flag], "") {
			_, _, _, err := Parse([]string{"--dir", t.TempDir(), "--" + s.flag + "=" + v, "app"}, environment(nil))
			if v == "" && s.flag == "signal" { // no signals
				if err != nil {
					t.Errorf("--signal= : %v", err)
				}
				continue
			}
			wantStatus(t, err, ExitUsage, "--"+s.flag)
			if v == "" {
				continue // in the environment: as if it were not set
			}
			_, _, _, err = Parse([]string{"--dir", t.TempDir(), "app"}, environment(map[string]string{s.env: v}))
			wantStatus(t, err, ExitUsage, s.env)
			dir := directory(t, s.flag+" = '"+v+"'\n")
			_, _, _, err = Parse([]string{"--dir", dir, "app"}, environment(nil))
			wantStatus(t, err, ExitUsage, filepath.Join(dir, "ckpt.toml"), s.flag)
		}
	}
}

func TestBadFile(t *testing.T) {
	for _, c := range []struct {
		file  string
		words []string
	}{
		{"keep = \n", []string{"ckpt.toml"}},
		{"kepe = 2\n", []string{"ckpt.toml", "kepe"}},
		{"dir = '/elsewhere'\n", []string{"ckpt.toml", "dir"}},
		{"restart = 'x'\n", []string{"ckpt.toml", "restart"}},
		{"keep = [1]\n", []string{"ckpt.toml", "keep"}},
		{"[keep]\nn = 1\n", []string{"ckpt.toml", "keep"}},
		{"keep = 2\n\xff\n", []string{"ckpt.toml"}},
	} {
		_, _, _, err := Parse([]string{"--dir", directory(t, c.file), "app"}, environment(nil))
		wantStatus(t, err, ExitUsage, c.words...)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ckpt.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, _, _, err := Parse([]string{"--dir", dir, "app"}, environment(nil))
	wantStatus(t, err, ExitFailed, "ckpt.toml")
	// A directory that is a file: whoever makes it will say so.
	_, _, _, err = Parse([]string{"--dir", os.DevNull, "app"}, environment(nil))
	if err != nil {
		t.Error(err)
	}
}

func TestDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"user@host", "@3", "saved@", "job@7", "both", "both@7"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"CKPT_DIR": "fromenv"}
	for _, c := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, []string{"app"}, "ckpt"},
		{env, []string{"app"}, "fromenv"},
		{env, []string{"--dir", "fromflag", "app"}, "fromflag"},
		{nil, []string{"--restart", "saved"}, "saved"},
		{nil, []string{"--restart", "saved@12"}, "saved"},
		{nil, []string{"--restart", "user@host"}, "user@host"},
		{nil, []string{"--restart", "user@host@3"}, "user@host"},
		{nil, []string{"--restart", "@3"}, "@3"},
		{nil, []string{"--restart", "saved@"}, "saved@"},
		{nil, []string{"--restart", "job@7"}, "job@7"},
		{nil, []string{"--restart", "job@7/"}, "job@7"},
		{nil, []string{"--restart", "job@7@7"}, "job@7"},
		{nil, []string{"--restart", "both@7/"}, "both@7"},
		{nil, []string{"--restart", "both/@7"}, "both"},
		// What goes on writes where it was, unless it is told otherwise on this command line.
		{env, []string{"--restart", "saved@12"}, "saved"},
		{env, []string{"--restart", "saved", "--dir", "next"}, "next"},
	} {
		o, _, _, err := Parse(c.args, environment(c.env))
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if want := filepath.Join(here, c.want); o.Dir != want {
			t.Errorf("%q, %v: directory %s, expected %s", c.args, c.env, o.Dir, want)
		}
	}
	for spec, words := range map[string][]string{
		"nobody@host": {"want DIR or DIR@EPOCH"}, "saved@0": {"from 1 on"},
		"both@7": {"both@7/", "both/@7"}, // one would be taken for the other
	} {
		_, _, _, err := Parse([]string{"--restart", spec}, environment(nil))
		wantStatus(t, err, ExitUsage, append(words, "--restart")...)
	}
	_, _, _, err = Parse([]string{"--dir=", "app"}, environment(nil))
	wantStatus(t, err, ExitUsage, "--dir")
}

func TestCommandLine(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args []string
		rest []string
		own  int
	}{
		{[]string{"app", "--keep", "0"}, []string{"app", "--keep", "0"}, 0},
		{[]string{"--keep", "3", "app", "--", "x"}, []string{"app", "--", "x"}, 2},
		{[]string{"--keep=3", "--", "--app", "x"}, []string{"--app", "x"}, 1},
		{[]string{"--", "--", "x"}, []string{"--", "x"}, 0},
		{[]string{"--restart", "d"}, nil, 2},
		{[]string{"--argv0", "-sh", "/bin/sh"}, []string{"/bin/sh"}, 2},
	} {
		_, rest, own, err := Parse(c.args, environment(nil))
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if d := cmp.Diff(c.rest, rest, cmpopts.EquateEmpty()); d != "" || own != c.own {
			t.Errorf("%q: own %d, expected %d; %s", c.args, own, c.own, d)
		}
	}
	for _, c := range []struct {
		args   []string
		status int
		words  []string
	}{
		{nil, ExitUsage, []string{"program"}},
		{[]string{"--"}, ExitUsage, []string{"program"}},
		{[]string{"--keep", "3"}, ExitUsage, []string{"program"}},
		{[]string{"--keep"}, ExitUsage, []string{"keep"}},
		{[]string{"--nosuch", "app"}, ExitUsage, []string{"nosuch", "--help"}},
		{[]string{"-x", "app"}, ExitUsage, []string{"x", "--help"}},
		{[]string{"--restart", "d", "app"}, ExitUsage, []string{"--restart", "app"}},
		{[]string{"--restart=", "app"}, ExitUsage, []string{"--restart", "DIR"}},
		{[]string{"--restart="}, ExitUsage, []string{"--restart", "DIR"}},
	} {
		_, _, _, err := Parse(c.args, environment(nil))
		wantStatus(t, err, c.status, c.words...)
	}
	for _, args := range [][]string{{"--help"}, {"-h"}, {"--keep", "3", "--help", "app"}} {
		if _, _, _, err := Parse(args, environment(nil)); !errors.Is(err, ErrHelp) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if _, _, _, err := Parse([]string{"--version"}, environment(nil)); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	if _, rest, _, err := Parse([]string{"app", "--help"}, environment(nil)); err != nil || len(rest) != 2 {
		t.Error(rest, err)
	}
}

func TestHelpNamesAll(t *testing.T) {
	help := Help()
	for _, s := range settings {
		for _, w := range []string{"--" + s.flag + " ", "[" + s.env + "]"} {
			if !strings.Contains(help, w) {
				t.Errorf("--help does not name %s", w)
			}
		}
	}
}

func TestLauncherJob(t *testing.T) {
	process := func(age time.Duration, command ...string) Ancestor { return Ancestor{1, command, age} }
	script := process(time.Second, "sh", "-c", "ckptrun ./app")
	proxy := process(2*time.Second, strings.Fields("/usr/bin/hydra_pmi_proxy --control-port n1:34579 --rmk user --pgid 0 --proxy-id 1")...)
	mpiexec := process(3*time.Second, "/usr/bin/mpiexec.mpich", "-n", "2")
	for _, c := range []struct {
		env   map[string]string
		above []Ancestor
		rank  int
		job   string
		age   time.Duration
	}{
		{nil, nil, -1, "", 0},
		{nil, []Ancestor{script, process(time.Hour, "sshd")}, -1, "", 0},
		{map[string]string{"PMI_RANK": "3"}, []Ancestor{script, proxy, mpiexec}, 3, "hydra n1:34579 0", 3*time.Second + hydraPrecision},
		{map[string]string{"PMI_RANK": "3"}, []Ancestor{script, proxy, process(time.Hour, "sshd")}, 3, "hydra n1:34579 0", 2*time.Second + hydraStarts},
		{map[string]string{"PMI_RANK": "3"}, []Ancestor{script, proxy}, 3, "hydra n1:34579 0", 2*time.Second + hydraStarts},
		{map[string]string{"OMPI_COMM_WORLD_RANK": "2", "PMIX_NAMESPACE": "77", "PMI_RANK": "0"}, []Ancestor{script, proxy}, 2, "pmix 77 ", 0},
		{map[string]string{"PMIX_RANK": "1", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "2"}, nil, 1, "slurm 5.2", 0},
		{map[string]string{"PMI_RANK": "1", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "2", "SLURM_RESTART_COUNT": "3"}, nil, 1, "slurm 5.2 run 3", 0},
		{map[string]string{"PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.5.0", "SLURM_RESTART_COUNT": "0"}, nil, 1, "pmix slurm.pmix.5.0 ", 0},
		{map[string]string{"PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.5.0", "SLURM_RESTART_COUNT": "1"}, nil, 1, "pmix slurm.pmix.5.0 run 1 ", 0},
		{map[string]string{"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-5@1", "SLURM_RESTART_COUNT": "1"}, nil, 1, "pmix prterun-5@1 ", 0},
		{map[string]string{"PMI_RANK": "x", "SLURM_JOB_ID": "5"}, nil, -1, "", 0},
	} {
		env := environment(c.env)
		if got := LauncherRank(env); got != c.rank {
			t.Errorf("%v: rank %d, expected %d", c.env, got, c.rank)
		}
		if got, age := LauncherJob(env, c.above); got != c.job || age != c.age {
			t.Errorf("%v, %v: job %q of %v, expected %q of %v", c.env, c.above, got, age, c.job, c.age)
		}
	}
}

func TestLauncher(t *testing.T) {
	for _, c := range []struct {
		env   map[string]string
		mpi   string
		ranks int
	}{
		{nil, "", 0},
		{map[string]string{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, "openmpi", 4},
		{map[string]string{"PMI_RANK": "1", "PMI_SIZE": "2"}, "mpich", 2},
		{map[string]string{"PMI_FD": "7"}, "mpich", 0},
		{map[string]string{"PMI_RANK": "0", "PMI_SIZE": "many"}, "mpich", 0},
		{map[string]string{"PMI_RANK": "0", "PMI_SIZE": "-1"}, "mpich", 0},
		// srun --mpi=pmix; a launcher that srun started, as one task on each node.
		{map[string]string{"PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.7.0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, "openmpi", 4},
		{map[string]string{"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-7@1", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, "openmpi", 0},
		{map[string]string{"PMIX_RANK": "5", "PMIX_NAMESPACE": "slurm.pmix.7.0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}, "openmpi", 0},
		// Open MPI's mpiexec inside an allocation of another launcher.
		{map[string]string{"PMI_RANK": "0", "PMI_SIZE": "1", "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, "openmpi", 3},
	} {
		env := environment(c.env)
		if got := LauncherMPI(env); got != c.mpi {
			t.Errorf("%v: MPI %q, expected %q", c.env, got, c.mpi)
		}
		if got := Launched(env); got != (c.mpi != "") {
			t.Errorf("%v: launched: %v", c.env, got)
		}
		if got := LauncherRanks(env); got != c.ranks {
			t.Errorf("%v: %d ranks, expected %d", c.env, got, c.ranks)
		}
	}
	// What the user says counts more than the launcher.
	ompi := environment(map[string]string{"OMPI_COMM_WORLD_RANK": "0"})
	for want, args := range map[string][]string{"openmpi": {"app"}, "mpich": {"--mpi", "mpich", "app"}} {
		if o, _, _, err := Parse(append([]string{"--dir", t.TempDir()}, args...), ompi); err != nil || o.MPI != want {
			t.Errorf("%q: %q, %v", args, o.MPI, err)
		}
	}
}
