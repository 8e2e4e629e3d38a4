// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/ckpt/period"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/backs"
	"github.com/libckpt/libckpt/internal/regular"
)

// Exit statuses of ckptrun itself (a contract with scripts).
const (
	ExitFailed = 1
	ExitUsage  = 2
	ExitNone   = 3 // no committed checkpoint
)

// Error is a reason not to start, with the exit status that it gets.
type Error struct {
	Status int
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Exit is what ckptrun prints, and its exit status, if it starts nothing because of err.
func Exit(err error, version string) (text string, status int) {
	var e *Error
	switch {
	case errors.Is(err, ErrHelp):
		return Help(), 0
	case errors.Is(err, ErrVersion):
		return "ckptrun " + version + "\n", 0
	case errors.As(err, &e):
		status = e.Status
	case errors.Is(err, store.ErrSpec):
		status = ExitUsage
	case errors.Is(err, store.ErrNone):
		status = ExitNone
	default:
		status = ExitFailed
	}
	return "ckptrun: " + err.Error() + "\n", status
}

func usage(format string, args ...any) error {
	return &Error{ExitUsage, fmt.Errorf(format, args...)}
}

// Options are the settings of a job.
type Options struct {
	Dir      string
	Interval time.Duration   // 0: off
	Overhead float64         // fraction of time that checkpoints may cost; 0: off
	MTBF     period.Failures // how often the job fails; none: off
	Keep     int
	Full     int // every so many epochs there is one with all content; 1: each
	Compress image.Compression
	// WriteLimit is how many bytes a second a rank writes while its program runs; 0: as fast as it goes.
	WriteLimit int64
	Signals    map[unix.Signal]after.Action
	ExitCode   int
	MPI        string // "mpich", "openmpi", a path, or "": none seen
	SafeState  string
	Snapshot   string // "cow", "stop"
	// Changes is how epochs with what changed find it: auto or digest.
	Changes string
	// Same is how often pages that the ranks of a node have the same are written: once or each.
	Same string
	// SnapshotMemory is how many bytes a frozen copy may take; 0: any.
	SnapshotMemory int64
	Trap           string // "seccomp", "sud"
	Log            string
	Files          string // "snapshot", "restore", "keep", "ignore"
	Restarts       string // "auto", "lazy", "eager": how memory comes back
	Fallback       bool   // an older epoch is continued when the newest is damaged or lost
	FilesCopy      int64  // bytes of files that a rank copies into an epoch at most
	IgnoreFD       []int
	Control        string        // "auto", "local", "network", or a list of addresses, networks and interfaces
	Timeout        time.Duration // of a checkpoint that nobody gave a timeout: until the program is stopped ...
	Bound          bool          // ... or, when it was given as an option, until the commit
	Lease          time.Duration // without a sign of life for so long, another node may take Dir

	// Local is the directory of each node's own in which images are written; "": they go to Dir at once.
	Local       string
	Levels      levels.Policy
	LevelsGiven bool // and not the default
	Group       int  // nodes that have parities of each other's images
	NodeSize    int  // processes of a node, for tests of several nodes on one machine; 0: nodes are hosts

	// Object is the place in an object store where level 4 is; its Bucket is "": level 4 is in Dir.
	Object  objects.Place
	Objects objects.Options // how it is reached

	// Ranks is the number of processes of a job without MPI, AutoRanks when the launcher says it; 0: this process is a
	// job by itself, or MPI says who the ranks are. Rank is this process's place among them, -1 when it was not given.
	Ranks, Rank int

	Whole   bool   // the runtime is in the program's half and is saved with it
	Restart string // DIR[@EPOCH] or s3://BUCKET/PREFIX[@EPOCH], "" to start a program
	Argv0   string // the program's argv[0] when it differs; internal
	hasArg0 bool

	mtbfGiven bool // in the place that is being read
}

// A setting can come from the command line, the environment or the file; set understands its text. unset is the
// default. help is the one text for --help, the man page and the manual (help.go).
type setting struct {
	flag, env, value, unset, help string
	set                           func(o *Options, v string) error
}

func oneOf(dst func(*Options) *string, words ...string) func(*Options, string) error {
	return func(o *Options, v string) error {
		for _, w := range words {
			if v == w {
				*dst(o) = v
				return nil
			}
		}
		return fmt.Errorf("%q is not one of %s", v, strings.Join(words, ", "))
	}
}

func yesOrNo(dst func(*Options) *bool) func(*Options, string) error {
	return func(o *Options, v string) error {
		*dst(o) = v == "yes"
		if v != "yes" && v != "no" {
			return fmt.Errorf("%q is neither yes nor no", v)
		}
		return nil
	}
}

var settings = []setting{
	{"dir", "CKPT_DIR", "DIR", "ckpt",
		"where checkpoints go; every rank must see it",
		func(o *Options, v string) error {
			if v == "" {
				return errors.New("is empty")
			}
			o.Dir = v
			return nil
		}},
	{"ranks", "CKPT_RANKS", "N|auto", "none",
		"this is one of N processes without MPI that are saved and continued together; they meet in --dir, and have the launcher's ranks, or those of --rank, or the order in which they come; auto is as many as the launcher has started",
		func(o *Options, v string) (err error) { o.Ranks, err = parseRanks(v); return err }},
	{"interval", "CKPT_INTERVAL", "T", "off",
		"a checkpoint every T, such as 30s, 10m, 2h; not together with --overhead or --mtbf in one place",
		func(o *Options, v string) (err error) { o.Interval, err = duration(v); return err }},
	{"overhead", "CKPT_OVERHEAD", "P%", "off",
		"choose the period by the measured cost, so that checkpoints take P% of the time; with --mtbf, at most that",
		func(o *Options, v string) error {
			p, err := strconv.ParseFloat(strings.TrimSuffix(v, "%"), 64)
			if err != nil || p < 0 || p >= 100 || p != p {
				return fmt.Errorf("%q is not a percentage between 0 and 100", v)
			}
			o.Overhead = p / 100
			return nil
		}},
	{"mtbf", "CKPT_MTBF", "T[,L1:P%,...]", "off",
		"choose the period, and unless --levels is given how often each level is reached, so that the least is lost when the job fails every T on average, such as 12h or 2d, by measured costs; with the shares of failures that need each level, or times by level as in L1:6h,L2:1d,L4:30d",
		func(o *Options, v string) (err error) {
			o.MTBF, err = period.ParseFailures(v)
			o.mtbfGiven = true
			return err
		}},
	{"keep", "CKPT_KEEP", "N", "2",
		"committed epochs that are kept; older ones are removed after a commit",
		func(o *Options, v string) (err error) {
			o.Keep, err = strconv.Atoi(v)
			if err != nil || o.Keep < 1 {
				return fmt.Errorf("%q is not a number of at least 1", v)
			}
			return nil
		}},
	{"full", "CKPT_FULL", "every N", "every 1",
		"one epoch of N has all memory; the others have what changed, and need older ones, which are kept as long as that",
		func(o *Options, v string) (err error) { o.Full, err = everyN(v); return err }},
	{"changes", "CKPT_CHANGES", "auto|digest", "auto",
		"how epochs with what changed find it: auto has the kernel note what is written where it can (Linux 6.7), and compares digests of the rest; digest reads and compares all memory",
		oneOf(func(o *Options) *string { return &o.Changes }, "auto", "digest")},
	{"same-pages", "CKPT_SAME_PAGES", "once|each", "once",
		"pages that the ranks of a node have the same at an address: once has the image of the first of them hold them, and those of the others refer to it; each has every image hold its own",
		func(o *Options, v string) error {
			if v != "once" && v != "each" {
				return fmt.Errorf("%q is neither once nor each", v)
			}
			o.Same = v
			return nil
		}},
	{"compress", "CKPT_COMPRESS", "auto|none|snappy|zstd", "auto",
		"how images are compressed; auto finds out for each piece of memory what brings the image to the disk first: it tries samples, and measures what compressing costs and how fast the disk is",
		func(o *Options, v string) (err error) { o.Compress, err = image.ParseCompression(v); return err }},
	{"write-limit", "CKPT_WRITE_LIMIT", "SIZE", "off",
		"how many bytes a second each rank writes into its image while its program runs on, such as 50M or 1G; a program that stands is not kept standing by it",
		func(o *Options, v string) (err error) {
			if v == "off" {
				o.WriteLimit = 0
				return nil
			}
			o.WriteLimit, err = sizeUpTo(strings.TrimSuffix(v, "/s"), mostBytes)
			if err == nil && o.WriteLimit > 0 && o.WriteLimit < leastLimit {
				return fmt.Errorf("%q is below %d bytes a second: an image would never be complete", v, leastLimit)
			}
			return err
		}},
	{"signal", "CKPT_SIGNALS", "NAME=ACTION,...", "none",
		"signals that ask for a checkpoint, and whether to continue, exit or kill after it, such as USR1=continue,USR2=exit; the program does not see them",
		parseSignals},
	{"exit-code", "CKPT_EXIT_CODE", "N", "0",
		"exit status of a rank that ends after a checkpoint \"then exit\"",
		func(o *Options, v string) (err error) {
			o.ExitCode, err = strconv.Atoi(v)
			if err != nil || o.ExitCode < 0 || o.ExitCode > 255 {
				return fmt.Errorf("%q is not a number from 0 to 255", v)
			}
			return nil
		}},
	{"mpi", "CKPT_MPI", "mpich|openmpi|abi|NAME|PATH", "the launcher's",
		"the real MPI below, by the name or the path of its back (ckptctl back list); abi is any with the standard ABI",
		func(o *Options, v string) error {
			if !strings.Contains(v, "/") {
				if err := backs.CheckName(v); err != nil {
					return err
				}
			}
			o.MPI = v
			return nil
		}},
	{"safe-state", "CKPT_SAFE_STATE", "clock|2pc", "clock",
		"how collective calls are brought to an end: clock, which has no measurable cost, or 2pc, a barrier before every blocking one, for comparison",
		oneOf(func(o *Options) *string { return &o.SafeState }, "clock", "2pc")},
	{"snapshot", "CKPT_SNAPSHOT", "cow|stop", "cow",
		"write a frozen copy while the program runs on (cow), or write while it is stopped (stop), which needs less memory",
		oneOf(func(o *Options) *string { return &o.Snapshot }, "cow", "stop")},
	{"snapshot-memory", "CKPT_SNAPSHOT_MEMORY", "SIZE", "off",
		"how much memory the frozen copy of a rank may take by itself, such as 512M or 4G; when it would be more, or the node has not as much, the program stands until its image is written, and the log says so",
		func(o *Options, v string) (err error) {
			if v == "off" {
				o.SnapshotMemory = 0
				return nil
			}
			o.SnapshotMemory, err = sizeUpTo(v, mostBytes)
			if err == nil && o.SnapshotMemory < leastCopy {
				return fmt.Errorf("%q is below 1M: for no copy at all say --snapshot stop", v)
			}
			return err
		}},
	{"restart-mode", "CKPT_RESTART_MODE", "auto|lazy|eager", "auto",
		"with --restart: continue at once and read memory when it is touched, the rest in the background (lazy), or read all of it first (eager); auto is lazy for images with 64 MiB of memory and more; lazy needs userfaultfd, see ckptctl doctor",
		oneOf(func(o *Options) *string { return &o.Restarts }, "auto", "lazy", "eager")},
	{"fallback", "CKPT_FALLBACK", "yes|no", "yes",
		"with --restart DIR: when the newest epoch is damaged or lost, continue the newest one before it that is whole, and say so; no stops and names it, as --restart DIR@EPOCH does",
		yesOrNo(func(o *Options) *bool { return &o.Fallback })},
	{"trap", "CKPT_TRAP", "seccomp|sud", "seccomp",
		"how system calls of the program are caught; sud (Syscall User Dispatch) needs Linux 5.11 and is slower",
		oneOf(func(o *Options) *string { return &o.Trap }, "seccomp", "sud")},
	{"files", "CKPT_FILES", "snapshot|restore|keep|ignore", "snapshot",
		"files that the program writes: keep them with the epoch and put them back as they were (snapshot), cut them back to their saved size (restore), leave them (keep), or do as snapshot and continue even if files are not as they were (ignore)",
		oneOf(func(o *Options) *string { return &o.Files }, "snapshot", "restore", "keep", "ignore")},
	{"files-copy", "CKPT_FILES_COPY", "SIZE", "64M",
		"how much of such files a rank copies into an epoch where the file system cannot clone them, such as 512K, 64M; at most 2G",
		func(o *Options, v string) (err error) { o.FilesCopy, err = size(v); return err }},
	{"ignore-fd", "CKPT_IGNORE_FD", "N,...", "none",
		"descriptors that are closed instead of saved",
		func(o *Options, v string) error {
			o.IgnoreFD = nil
			for _, f := range strings.Split(v, ",") {
				n, err := strconv.Atoi(f)
				if err != nil || n < 0 {
					return fmt.Errorf("%q is not a descriptor", f)
				}
				o.IgnoreFD = append(o.IgnoreFD, n)
			}
			return nil
		}},
	{"control", "CKPT_CONTROL", "auto|local|network|WHERE,...", "auto",
		"where the job listens for ckptctl: on its own host (local), on all interfaces of rank 0's host (network), or on addresses, networks (10.1.0.0/16) or interfaces; auto is local when all ranks are on one host and no batch system started them, else network",
		func(o *Options, v string) error {
			if v == "" {
				return errors.New("is empty")
			}
			for _, w := range strings.Split(v, ",") {
				if w == "" || strings.ContainsAny(w, " \t\n") || strings.Contains(v, ",") && slices.Contains(controlWords, w) {
					return fmt.Errorf("%q is not one of %s, nor a list of addresses, networks and interfaces", v, strings.Join(controlWords, ", "))
				}
			}
			o.Control = v
			return nil
		}},
	{"timeout", "CKPT_TIMEOUT", "T", "60s",
		"abandon a checkpoint that is not committed within T; when not given, one for which the program is not stopped within 60s, while writing may take any time",
		func(o *Options, v string) (err error) {
			o.Timeout, err = duration(v)
			o.Bound = o.Timeout > 0
			return err
		}},
	{"local", "CKPT_LOCAL", "DIR", "none",
		"a directory of each node's own, such as one on its disk: images are written there, and brought to other nodes and to --dir in the background, as --levels says",
		func(o *Options, v string) (err error) {
			if v == "" {
				return errors.New("is empty")
			}
			o.Local, err = filepath.Abs(v)
			return err
		}},
	{"levels", "CKPT_LEVELS", "L1:every,L2:N,...", levels.DefaultPolicy + " with --local",
		"which epochs are raised to which level: L1 local, L2 copied to another node, L3 parities on a group of nodes, L4 copied to --dir or --object; L2:4 means every fourth one",
		func(o *Options, v string) (err error) {
			o.Levels, err = levels.ParsePolicy(v)
			o.LevelsGiven = true
			return err
		}},
	{"group", "CKPT_GROUP", "N", "4",
		"nodes that are a group, with --local: each has a copy of the files of the one before it (L2), and a parity of those of all (L3)",
		func(o *Options, v string) (err error) {
			if o.Group, err = strconv.Atoi(v); err != nil {
				return fmt.Errorf("%q is not a number", v)
			}
			return levels.CheckGroup(o.Group)
		}},
	{"object", "CKPT_OBJECT", "s3://BUCKET[/PREFIX]", "none",
		"an object store that speaks S3, in which level 4 is instead of in --dir; needs --local; keys are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in the file of AWS_SHARED_CREDENTIALS_FILE",
		func(o *Options, v string) (err error) { o.Object, err = objects.ParsePlace(v); return err }},
	{"object-endpoint", "CKPT_OBJECT_ENDPOINT", "URL", "AWS_ENDPOINT_URL, or Amazon's",
		"where the object store answers, such as https://minio.example.org:9000",
		func(o *Options, v string) error { o.Objects.Endpoint = v; return objects.CheckEndpoint(v) }},
	{"object-http", "CKPT_OBJECT_HTTP", "no|yes", "no",
		"whether images may be sent to an object store on another machine without TLS",
		yesOrNo(func(o *Options) *bool { return &o.Objects.Plain })},
	{"object-timeout", "CKPT_OBJECT_TIMEOUT", "T", "60s",
		"a request to the object store of which no byte moves for T is given up and made again, five times in all",
		func(o *Options, v string) (err error) {
			o.Objects.Stall, err = duration(v)
			if err == nil && (o.Objects.Stall < objects.LeastStall || o.Objects.Stall > objects.MostStall) {
				return fmt.Errorf("%q is not between %v and %v", v, objects.LeastStall, objects.MostStall)
			}
			return err
		}},
	{"lease", "CKPT_LEASE", "T", "60s",
		"after T without a sign of life, a job on another node may take DIR over",
		func(o *Options, v string) (err error) {
			o.Lease, err = duration(v)
			if err == nil && (o.Lease < lease.Least || o.Lease > lease.Most) {
				return fmt.Errorf("%q is not between %v and %v", v, lease.Least, lease.Most)
			}
			return err
		}},
	{"log", "CKPT_LOG", "debug|info|warn|error", "warn",
		"what is logged to standard error",
		oneOf(func(o *Options) *string { return &o.Log }, "debug", "info", "warn", "error")},
}

// controlWords are the values of --control that are not addresses.
var controlWords = []string{"auto", "local", "network"}

// ControlAt says where to listen for ckptctl: on this host only, or on which addresses (none: all). Jobs of a batch
// system are controlled from a login node, other jobs on one host from that host.
func (o *Options) ControlAt(oneHost bool, getenv func(string) string) (local bool, only []string) {
	switch o.Control {
	case "auto":
		return oneHost && !batch(getenv), nil
	case "local":
		return true, nil
	case "network":
		return false, nil
	}
	return false, strings.Split(o.Control, ",")
}

// batch tells from the environment whether a batch system started this process: Slurm, PBS and Torque, LSF,
// Grid Engine, Flux, OAR, Cobalt, LoadLeveler, HTCondor.
func batch(getenv func(string) string) bool {
	return slices.ContainsFunc([]string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID", "FLUX_JOB_ID", "OAR_JOB_ID",
		"COBALT_JOBID", "LOADL_STEP_ID", "_CONDOR_JOB_AD"}, func(name string) bool { return getenv(name) != "" })
}

func duration(v string) (time.Duration, error) {
	if v == "0" || v == "off" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as 30s, 10m or 2h", v)
	}
	return d, nil
}

// size reads a number of bytes, with K, M or G behind it, and B or iB behind that.
func size(v string) (int64, error) { return sizeUpTo(v, maxFilesCopy) }

func sizeUpTo(v string, most int64) (int64, error) {
	digits, shift := strings.TrimSuffix(strings.TrimSuffix(v, "B"), "i"), 0
	for i, unit := range []string{"K", "M", "G", "T"} {
		if number, ok := strings.CutSuffix(digits, unit); ok {
			digits, shift = number, 10*(i+1)
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > most>>shift {
		return 0, fmt.Errorf("%q is not a size up to %dG such as 512K, 64M or 1G", v, most>>30)
	}
	return n << shift, nil
}

// maxFilesCopy bounds --files-copy: the copies are memory until the image is written.
const maxFilesCopy = 2 << 30

const (
	mostBytes  = 1 << 50  // no memory, and no disk, has more
	leastCopy  = 1 << 20  // of --snapshot-memory
	leastLimit = 64 << 10 // of --write-limit
)

// KeepsFiles tells whether files are kept with an epoch, and put back from it.
func (o *Options) KeepsFiles() bool { return o.Files == "snapshot" || o.Files == "ignore" }

func parseSignals(o *Options, v string) error {
	o.Signals = map[unix.Signal]after.Action{}
	for _, f := range strings.Split(v, ",") {
		if f == "" {
			continue
		}
		name, action, ok := strings.Cut(f, "=")
		if !ok {
			action = string(after.Continue)
		}
		sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
		if sig == 0 {
			return fmt.Errorf("%q is not the name of a signal", name)
		}
		switch sig {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGSYS, unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL:
			return fmt.Errorf("%s cannot ask for a checkpoint", name)
		}
		a, err := after.Parse(action)
		if err != nil {
			return err
		}
		o.Signals[sig] = a
	}
	return nil
}

func defaults() Options {
	return Options{Dir: "ckpt", Keep: 2, Full: 1, Changes: "auto", Same: "once", Compress: image.CompressAuto, SafeState: "clock",
		Rank: -1, Snapshot: "cow", Restarts: "auto", Fallback: true, Trap: "seccomp", Log: "warn", Files: "snapshot", FilesCopy: 64 << 20, Control: "auto", Timeout: time.Minute, Lease: lease.Default,
		Levels: defaultLevels, Group: levels.DefaultGroup}
}

var defaultLevels, _ = levels.ParsePolicy(levels.DefaultPolicy)

// takeLevels checks what --local and --levels say together.
func (o *Options) takeLevels(getenv func(string) string) error {
	if v := getenv(nodeSizeName); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return usage("%s: %q is not a number of at least 1", nodeSizeName, v)
		}
		o.NodeSize = n
	}
	if o.LevelsGiven && o.Local == "" {
		return usage("--levels (CKPT_LEVELS) needs --local DIR (CKPT_LOCAL), the local directory of each node, in which level 1 lies")
	}
	if o.Object.Bucket != "" && o.Local == "" && o.Restart == "" {
		return usage("--object (CKPT_OBJECT) needs --local DIR (CKPT_LOCAL): epochs are brought from local directories to %s; `ckptctl copy` brings one from --dir there", o.Object)
	}
	return nil
}

// nodeSizeName is the variable for tests of several nodes on one machine.
const nodeSizeName = "CKPT_NODE_SIZE"

// ErrHelp and ErrVersion ask for a text on stdout and exit status 0.
var (
	ErrHelp    = pflag.ErrHelp
	ErrVersion = errors.New("version asked for")
)

// Parse reads the command line args (without the command's own name), the environment and, below
// them, ckpt.toml in the checkpoint directory. rest is the program and its arguments, own how many
// of args came before them.
func Parse(args []string, getenv func(string) string) (o Options, rest []string, own int, err error) {
	o = defaults()
	fs := pflag.NewFlagSet("ckptrun", pflag.ContinueOnError)
	fs.SetInterspersed(false)
	fs.Usage = func() {}
	fs.SortFlags = false
	given := map[string]*string{}
	for _, s := range settings {
		given[s.flag] = fs.String(s.flag, "", s.help)
	}
	restart := fs.String("restart", "", "")
	rank := fs.Int("rank", -1, "")
	whole := fs.Bool("whole", false, "")
	version := fs.Bool("version", false, "")
	argv0 := fs.String("argv0", "", "")
	if err := fs.Parse(joinFull(args)); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, nil, 0, ErrHelp
		}
		return o, nil, 0, usage("%w\nTry `ckptrun --help`.", err)
	}
	if *version {
		return o, nil, 0, ErrVersion
	}
	rest = fs.Args()
	own = len(args) - len(rest)
	if own > 0 && args[own-1] == "--" {
		own--
	}
	o.Restart, o.Argv0, o.hasArg0 = *restart, *argv0, fs.Changed("argv0")
	o.Whole, o.Rank = *whole, *rank
	if fs.Changed("restart") && *restart == "" {
		return o, nil, 0, usage("--restart needs the directory of the checkpoints, as DIR or DIR@EPOCH, or s3://BUCKET/PREFIX")
	}

	// The directory first: the file lies in it.
	dirSetting := settings[0]
	if v := getenv(dirSetting.env); v != "" {
		o.Dir = v
	}
	if fs.Changed("dir") {
		if err := dirSetting.set(&o, *given["dir"]); err != nil {
			return o, nil, 0, usage("--dir %w", err)
		}
	} else if objects.Is(o.Restart) { // DIR is where the job is saved into from then on
		if _, _, err := SplitObject(o.Restart); err != nil {
			return o, nil, 0, usage("--restart: %w", err)
		}
	} else if o.Restart != "" {
		if o.Dir, _, err = store.SplitSpec(o.Restart); err != nil {
			return o, nil, 0, usage("--restart: %w", err)
		}
	}
	file := filepath.Join(o.Dir, "ckpt.toml")
	if err := o.place(file, func() error { return o.readFile(file) }); err != nil {
		return o, nil, 0, err
	}
	err = o.place("the environment", func() error {
		for _, s := range settings[1:] {
			if v := getenv(s.env); v != "" {
				if err := s.set(&o, v); err != nil {
					return usage("%s: %w", s.env, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return o, nil, 0, err
	}
	err = o.place("the command line", func() error {
		for _, s := range settings[1:] {
			if fs.Changed(s.flag) {
				if err := s.set(&o, *given[s.flag]); err != nil {
					return usage("--%s: %w", s.flag, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return o, nil, 0, err
	}
	if err := o.takeLevels(getenv); err != nil {
		return o, nil, 0, err
	}
	if objects.Is(o.Restart) && o.Object.Bucket == "" && o.Local != "" {
		o.Object, _, _ = SplitObject(o.Restart) // it was checked above, or is by who opens it
	}
	if err := o.takeRanks(fs.Changed("rank")); err != nil {
		return o, nil, 0, err
	}
	if o.MPI == "" {
		o.MPI = LauncherMPI(getenv)
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, nil, 0, &Error{ExitFailed, err}
	}
	switch {
	case o.Restart == "" && len(rest) == 0:
		return o, nil, 0, usage("which program? Usage: ckptrun [options] [--] PROGRAM [ARGS...]; try `ckptrun --help`")
	case o.Restart != "" && len(rest) > 0:
		return o, nil, 0, usage("--restart continues the saved program; it takes no PROGRAM (%q)", rest[0])
	}
	return o, rest, own, nil
}

// SplitObject splits s3://BUCKET/PREFIX[@EPOCH]; epoch is 0 when none is given.
func SplitObject(spec string) (objects.Place, int, error) {
	place, epoch, err := store.SplitSpec(spec)
	if err != nil {
		return objects.Place{}, 0, err
	}
	p, err := objects.ParsePlace(place)
	return p, epoch, err
}

// place takes the settings of one place; they override those of weaker places. An interval, and an overhead or the time
// between failures, say how often: a place may give only one of the two, and it also overrides the other one of a
// weaker place.
func (o *Options) place(name string, take func() error) error {
	const notGiven = -1
	weaker := *o
	o.Interval, o.Overhead, o.MTBF, o.mtbfGiven = notGiven, notGiven, period.Failures{}, false
	if err := take(); err != nil {
		return err
	}
	var other string // what excludes an interval
	switch {
	case o.Overhead > 0:
		other = fmt.Sprintf("overhead (%g%%)", o.Overhead*100)
	case o.MTBF.Known():
		other = fmt.Sprintf("mtbf (%v)", o.MTBF)
	}
	given := o.mtbfGiven
	o.mtbfGiven = false
	switch {
	case o.Interval > 0 && other != "":
		return usage("%s has both interval (%v) and %s: each says how often; give one of them", name, o.Interval, other)
	case o.Interval > 0:
		o.Overhead, o.MTBF = 0, period.Failures{}
		return nil
	case other != "":
		o.Interval = 0
	}
	// What is off, or not there, leaves the others alone.
	if o.Interval == notGiven {
		o.Interval = weaker.Interval
	}
	if o.Overhead == notGiven {
		o.Overhead = weaker.Overhead
	}
	if !given {
		o.MTBF = weaker.MTBF
	}
	return nil
}

// maxFile bounds ckpt.toml, which a person writes.
const maxFile = 1 << 20

// readFile takes settings from a TOML file whose keys are the options' names.
func (o *Options) readFile(path string) error {
	b, err := regular.ReadFile(path, maxFile)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &Error{ExitFailed, err}
	}
	return o.takeFile(path, b)
}

func (o *Options) takeFile(path string, b []byte) error {
	var values map[string]any
	if err := toml.Unmarshal(b, &values); err != nil {
		return usage("%s: %w", path, err)
	}
	for key, v := range values {
		found := false
		for _, s := range settings[1:] {
			if s.flag == key {
				found = true
				if err := s.set(o, fmt.Sprint(v)); err != nil {
					return usage("%s: %s: %w", path, key, err)
				}
			}
		}
		if !found {
			return usage("%s: there is no setting %q", path, key)
		}
	}
	return nil
}
