// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ftiVariable names the folder with FTI's own library, which somebody has built with mpicc.mpich.
const ftiVariable = "FTI"

// ftiLibrary is a library with FTI's calls, and the program that is linked with it.
type ftiLibrary struct {
	name    string
	program string
}

// measureFTI saves one state by FTI's calls with libckpt_fti.so, and with FTI's own library.
func measureFTI(ctx context.Context, b *bench) (*report, error) {
	mib := 64 // FTI's own library takes half a minute to recover 1 GiB from L3
	if b.full {
		mib = b.mibOfLevels()
	}
	if err := b.room([]*save{{MiB: 3 * mib * ranksOfLevels / ranksOfCheckpoint / 2}}); err != nil {
		return nil, err
	}
	own, err := b.ownFTI(ctx)
	if err != nil {
		return nil, err
	}
	libraries := []ftiLibrary{{"FTI", own}, {"libckpt_fti", b.program("ftistate.mpich")}}
	r := &report{
		Title: "FTI's calls: FTI's own library and libckpt's",
		Text: fmt.Sprintf("One program (`bench/programs/ftistate.c`), linked with FTI's own library and with `libckpt_fti.so`, saves itself with one "+
			"`FTI_Checkpoint` of each level: %d ranks under MPICH, %d nodes of one rank (`local_test`, all on this machine and its disk), in one group, "+
			"%d MiB a rank that cannot be compressed; `head = 0`, `ckpt_io = 1`, levels inline. It ends without `FTI_Finalize`. What nodes had "+
			"is then removed: nothing at L1, nodes 0 and 2 at L2, 1 and 2 (neighbours) at L3, all at L4; and it is started again.\n\n"+
			"*Saved* is the time inside `FTI_Checkpoint` on the slowest rank. *On disk* is what is there then, in local and global directories. *Synced* is "+
			"what `sync` takes right after the program's end: what a library has not brought to the disk. *Recovered* is the time inside "+
			"`FTI_Init` and `FTI_Recover` on the slowest rank, where missing files are rebuilt; *from the start* is that from the start of `mpiexec` to the return of "+
			"`FTI_Recover`. Each finds its memory right after that.", ranksOfLevels, ranksOfLevels, mib),
	}
	g := &grid{Title: fmt.Sprintf("%d ranks of %d MiB", ranksOfLevels, mib), Keys: []string{"level", "nodes lost", "library"},
		Columns: []string{"saved, s", "on disk, MiB", "synced, s", "recovered, s", "from the start, s"}}
	var levels []int
	var libs []ftiLibrary
	for level := 1; level <= 4; level++ {
		for _, lib := range libraries {
			levels, libs = append(levels, level), append(libs, lib)
			command := b.shown(ftiCommand(lib.program, mib, level))
			if lib.program == own {
				command = "mpiexec.mpich -n " + strconv.Itoa(ranksOfLevels) + " ftistate config.fti " + strconv.Itoa(mib) + " " + strconv.Itoa(level) + "    # with FTI's own library"
			}
			g.Rows = append(g.Rows, &gridRow{Keys: []string{fmt.Sprint("L", level), wordsOf(lostAt[level]), lib.name}, Commands: []string{command}})
		}
	}
	r.file = "ftibeside" // bench/fti_suite.sh writes fti.md
	r.again = "make bench ONLY=fti FTI=DIR"
	err = g.measure(ctx, b.roundsOfGrids(), func(ctx context.Context, i int) ([]float64, error) { return b.ftiRound(ctx, libs[i], mib, levels[i]) })
	r.Grids = []*grid{g}
	return r, err
}

const noFTI = ftiVariable + " is not set: say `make bench ONLY=fti FTI=DIR`, where DIR/include/fti.h and DIR/lib/libfti.so are those of FTI's own " +
	"library (github.com/leobago/fti), built with mpicc.mpich; nothing of it is fetched or built here"

// ownFTI links the program with FTI's own library.
func (b *bench) ownFTI(ctx context.Context) (program string, err error) {
	dir := os.Getenv(ftiVariable)
	if dir == "" {
		return "", fmt.Errorf("%w: %s", errLeftOut, noFTI)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	lib := ""
	for _, name := range []string{"lib", "lib64"} {
		if _, err := os.Stat(filepath.Join(dir, name, "libfti.so")); err == nil {
			lib = filepath.Join(dir, name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "include", "fti.h")); err != nil || lib == "" {
		return "", fmt.Errorf("%s=%s: there must be include/fti.h and lib/libfti.so in it", ftiVariable, dir)
	}
	program = filepath.Join(b.scratch, "ftistate")
	cmd := exec.CommandContext(ctx, "mpicc.mpich", "-std=gnu11", "-O2", "-Ibench/programs", "-I"+filepath.Join(dir, "include"),
		"-o", program, "bench/programs/ftistate.c", "-L"+lib, "-lfti", "-Wl,-rpath,"+lib)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, tail(out))
	}
	return program, nil
}

func ftiCommand(program string, mib, level int) []string {
	return []string{"mpiexec.mpich", "-n", strconv.Itoa(ranksOfLevels), program, "config.fti", strconv.Itoa(mib), strconv.Itoa(level)}
}

// ftiFolders are those of the configuration, in the working directory of what is run.
var ftiFolders = []string{"Local", "Global", "Meta"}

const ftiConfig = `[basic]
head = 0
node_size = 1
group_size = 4
ckpt_dir = Local
glbl_dir = Global
meta_dir = Meta
ckpt_io = 1
ckpt_l1 = 0
ckpt_l2 = 0
ckpt_l3 = 0
ckpt_l4 = 0
inline_l2 = 1
inline_l3 = 1
inline_l4 = 1
keep_last_ckpt = 0
keep_l4_ckpt = 0
verbosity = 3
max_sync_intv = 512
[restart]
failure = 0
exec_id = NULL
[injection]
rank = 0
number = 0
position = 0
frequency = 0
[advanced]
block_size = 1024
transfer_size = 16
mpi_tag = 2612
general_tag = 2612
ckpt_tag = 711
stage_tag = 406
final_tag = 3107
local_test = 1
fast_forward = 1
`

func (b *bench) ftiRound(ctx context.Context, lib ftiLibrary, mib, level int) ([]float64, error) {
	var folders []string
	for _, name := range ftiFolders {
		folders = append(folders, filepath.Join(b.scratch, name))
	}
	config := filepath.Join(b.scratch, "config.fti")
	defer func() {
		for _, path := range append(folders, config) {
			_ = os.RemoveAll(path)
		}
	}()
	for _, path := range folders {
		if err := os.Mkdir(path, 0o777); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(config, []byte(ftiConfig), 0o666); err != nil {
		return nil, err
	}
	syscall.Sync() // what others have not written is not this one's
	out, err := b.exec(ctx, limitOfMany, ftiCommand(lib.program, mib, level))
	if err != nil {
		return nil, err
	}
	ended := time.Now()
	syscall.Sync()
	synced := time.Since(ended)
	saved, err := parseFTI(out, 0)
	if err != nil {
		return nil, err
	}
	onDisk, err := diskUse(folders...)
	if err != nil {
		return nil, err
	}
	for _, node := range lostAt[level] {
		if err := os.RemoveAll(filepath.Join(folders[0], fmt.Sprint("node", node))); err != nil {
			return nil, err
		}
	}
	began := monotonic()
	if out, err = b.exec(ctx, limitOfMany, ftiCommand(lib.program, mib, level)); err != nil {
		return nil, err
	}
	again, err := parseFTI(out, began)
	if err != nil {
		return nil, err
	}
	took, err1 := need(saved, "saved")
	recovered, err2 := need(again, "init and recover")
	from, err3 := need(again, "recovered")
	return []float64{took, float64(onDisk) / (1 << 20), synced.Seconds(), recovered, from}, errors.Join(err1, err2, err3)
}

// parseFTI leaves out the words that FTI's library prints of itself.
func parseFTI(out []byte, began int64) ([]answer, error) {
	var own []byte
	for line := range bytes.Lines(out) {
		if bytes.HasPrefix(line, []byte("took\t")) || bytes.HasPrefix(line, []byte("moment\t")) {
			own = append(own, line...)
		}
	}
	return parse(own, began)
}
