# SPDX-License-Identifier: Apache-2.0
#
#   make            build everything into build/, a tree that can be moved anywhere; any one MPI is enough, and
#                   BACKS="mpich /opt/x/bin/mpicc" says for which to compile a back (default: those that are there)
#   make demo       kill -9 a running MPI job and continue it: the short proof
#   make demo-levels  nodes are lost, and the job goes on from what others have of them
#   make demo-embed  the same for a runtime that is saved with its program (examples/tmpi)
#   make demo-nodes  a job moves from three nodes to two under Slurm, on one machine; as root
#   make demo-verbs  programs on InfiniBand verbs are killed, and go on with other numbers and over TCP; as root
#   make check      build, lint, and the tests that start no MPI job: what to run before each commit
#   make test       all tests, in a random order as many as begin within MINUTES=30, the others named; MINUTES=0 all in any case;
#                   ONLY=REGEXP those with such names, ONLY=./ckpt/... or ONLY=packages a part
#   make test-verbs  those of programs on InfiniBand verbs, on an adapter in software; as root
#   make test-pyverbs  rdma-core's own tests in Python on it, LIVES=n saves, kills and restarts; as root
#   make verbs-cycles  CYCLES=n of a random program on it, on the adapter and over TCP in turn; as root
#   make test-pgas   PROGRAMS=DIR, GASNet-EX' own tests on it, saved and killed; as root
#   make test-verbs-vm  the same above a kernel's adapter, rdma_rxe, in virtual machines, VM_PARTS="edges ucx" of it; as root, an hour without KVM
#   make test-vm    tests above other kernels, with FSGSBASE and without, in virtual machines, VM_PARTS="segments moves" of it; as root, hours without KVM
#   make crosswise  a program of each ABI above each MPI, continued above each; and chains that alternate
#   make matrix     demo and crosswise on other releases of Debian (SUITES="trixie forky"), by debootstrap; as root
#                   TESTS=REGEXP runs these tests there.  matrix-short does a part of it, on trixie; moves continues jobs of
#                   each release in each other
#   make links      jobs over nodes whose links lose, delay, double and reorder frames; as root
#   make one-mpi    demo with one MPI alone, the other hidden, for each (TARGETS=...); as root
#   make bench      measure; results go to bench/results/
#   make soak       save, kill and continue random programs, hundreds of times
#   make campaign   hurt living jobs from the outside, and check what becomes of them
#   make fuzz       give every parser made-up bytes; FUZZTIME=30s for each, FUZZ=REGEXP for some
#   make lint       format, vet, staticcheck, C warnings, generated files up to date
#   make analyze    gcc -fanalyzer over all C that is installed: a minute of one processor
#   make format     give Go and C the form that lint asks for
#   make generate   write the generated files again
#   make dist       build/libckpt-VERSION.tar.gz, the sources of this commit; the same bytes each time.  VENDOR=1 puts the
#                   Go modules in, so that they build without a network
#   make deb        packages of Debian, looked at by lintian: build/deb (debian/README.source)
#   make deb-test   install them in a fresh Debian and run debian/tests there; as root
#   make install    copy build/ to PREFIX (/usr/local)
#   make setup      install what the build needs; the others call it, it does nothing when all is there
#   make clean      remove build/
#
# Each part in C has a module.mk beside it, which adds what it installs to PARTS, and programs that
# `make test` shall run (status 0 is good) to C_TESTS.

VERSION := 0.1.0
BUILD   := build
PREFIX  ?= /usr/local
DESTDIR ?=

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

OBJ := $(BUILD)/obj
BIN := $(BUILD)/bin
LIB := $(BUILD)/lib
PKG := $(LIB)/ckpt

# ---- setup: before everything else, and only there packages are installed -----------------------

# setup.mk says which GO to use.  It is an included makefile, so make brings it up to date first.
# `make test`, `make soak`, `make check` and `make lint` need more packages than the rest.
SETUP := $(BUILD)/setup.mk
ifneq ($(MAKECMDGOALS),clean)
include $(SETUP)
endif
$(SETUP): FORCE
	@BACKS='$(BACKS)' scripts/setup.sh $@ $(if $(filter test-vm test-verbs-vm,$(MAKECMDGOALS)),vm,$(if $(filter test test-verbs test-pyverbs test-pgas verbs-cycles demo-verbs soak,$(MAKECMDGOALS)),test,$(if $(filter bench,$(MAKECMDGOALS)),bench,$(if $(filter check lint format,$(MAKECMDGOALS)),lint))))

setup: $(SETUP)
	@echo "setup: all is there; Go is $(GO)"

# ---- tools --------------------------------------------------------------------------------------

CC := gcc
# What is done for each MPI is $(eval $(call WHAT,NAME,COMPILER)): $(call each_mpi,WHAT).  setup.sh has found them.
each_mpi = $(foreach mpi,$(MPIS),$(eval $(call $(1),$(mpi),$(MPICC_$(mpi)))))

CFLAGS ?= -O2 -g
# All C of this repository is compiled with these, whatever CFLAGS says.
C_FLAGS := -std=gnu11 -Wall -Wextra -Wmissing-prototypes -Wshadow -Werror -Iinclude -MMD -MP

# setup.sh chose the toolchain; Go shall not look for another.
export GOTOOLCHAIN := local
GO_BUILD := $(GO) build -trimpath -buildvcs=false
GO_LDFLAGS := -X main.version=$(VERSION) -X github.com/libckpt/libckpt/ckpt.Version=$(VERSION)

# $(call replace,NEW,OLD): puts NEW in the place of OLD when they differ, by a rename, so that running
# jobs keep the file that they have mapped.
replace = cmp -s $(1) $(2) || { cp -p $(1) $(2).new && mv $(2).new $(2); }

# ---- C: one object a source, with its dependencies ----------------------------------------------

# Position independent throughout: everything here ends in a shared object or in a PIE.  C_EXTRA may
# be set for a target and what it is made of.
$(OBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) $(CFLAGS) -fPIC $(C_EXTRA) -c -o $@ $<

$(OBJ)/%.o: %.S
	@mkdir -p $(@D)
	$(CC) -Iinclude -MMD -MP -g -fPIC $(C_EXTRA) -c -o $@ $<

# ---- ckptrun: loader, gate, threads, signals of one rank ----------------------------------------

PARTS   :=
C_TESTS :=
include capi/host/module.mk

HOST_SRCS := $(filter-out %/vdso.S,$(wildcard capi/host/*.c capi/host/*.S))
$(OBJ)/capi/host/whole.o $(OBJ)/capi/host/verbs.o: C_EXTRA := -Icapi -fno-stack-protector -fcf-protection=none
HOST_OBJS := $(patsubst %,$(OBJ)/%.o,$(basename $(HOST_SRCS)))

# The vDSO that the upper half sees; an image of one segment, which no loader touches.
$(PKG)/vdso.so: capi/host/vdso.S capi/host/vdso.lds
	@mkdir -p $(@D)
	$(CC) -nostdlib -shared -fPIC -Iinclude -Wl,-T,capi/host/vdso.lds -Wl,-soname,linux-vdso.so.1 \
	    -Wl,--hash-style=both -Wl,-Bsymbolic -Wl,--build-id=none -o $@ $<
PARTS += $(PKG)/vdso.so

# What replaces functions of the C library for the lower half, and what backs call.
HOST_EXPORTS := pthread_create __cxa_atexit lower_at_end
$(BIN)/ckptrun: $(HOST_OBJS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -pie $(HOST_EXPORTS:%=-Wl,--export-dynamic-symbol=%) -o $@ $^ -ldl -lpthread

# ---- libckpt.so: small, in C; and its core and ckptctl: Go, which decides itself what is stale ---

# What programs are linked with.  It loads the core when a call needs it.
EMBED_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(wildcard capi/embed/*.c))
$(EMBED_OBJS): C_EXTRA := -Icapi -fvisibility=hidden
$(LIB)/libckpt.so: $(filter-out %/gated.o,$(EMBED_OBJS)) | $(PKG)/libckpt-core.so
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,now -Wl,-soname,libckpt.so.1 -o $@ $^

# The same under ckptrun, which looks here first.
$(PKG)/front/libckpt.so.1: $(filter-out %/core.o %/named.o %/world.o,$(EMBED_OBJS))
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,now -Wl,-soname,libckpt.so.1 -o $@ $^
PARTS += $(PKG)/front/libckpt.so.1

$(LIB)/libckpt.so.1: | $(LIB)/libckpt.so
	ln -sfn libckpt.so $@

CORE_LD := -Wl,-soname,libckpt-core.so -Wl,--version-script=$(CURDIR)/capi/libckpt.map

# Go does not know that the map is an input: a newer map makes it link again.  Nor does it look at
# headers of other folders; with their sum among the flags it compiles again when one changes.
GO_HEADERS = $(shell cat $(wildcard include/*.h include/ckpt/*.h include/ckpt/private/*.h capi/host/hostgo.h capi/verbs/back.h) | cksum | cut -d' ' -f1)
CORE_BUILD = CGO_CFLAGS="-O2 -g -DHEADERS=$(GO_HEADERS)" $(GO_BUILD) -buildmode=c-shared \
             -ldflags "$(GO_LDFLAGS) -extldflags '$(CORE_LD)'"
$(PKG)/libckpt-core.so: FORCE capi/libckpt.map
	@mkdir -p $(@D) $(OBJ)/go
	@if [ capi/libckpt.map -nt $(OBJ)/go/libckpt-core.so ]; then rm -f $(OBJ)/go/libckpt-core.so; fi
	$(CORE_BUILD) -o $(OBJ)/go/libckpt-core.so ./capi
	@$(call replace,$(OBJ)/go/libckpt-core.so,$@)

# A tree for tests of whole jobs, whose core arms fault points from the environment, and whose backs check
# themselves (capi/back/module.mk). It is not installed.
FAULTS := $(OBJ)/faults
faults: all
	@mkdir -p $(FAULTS)
	@cp -a --remove-destination $(BIN) $(LIB) $(FAULTS)/
	@cp -a --remove-destination $(CHECKED)/*.so $(FAULTS)/lib/ckpt/back/
	$(CORE_BUILD) -tags faults -o $(FAULTS)/lib/ckpt/libckpt-core.so ./capi

$(BIN)/ckptctl: FORCE
	@mkdir -p $(@D) $(OBJ)/go
	$(GO_BUILD) -ldflags "$(GO_LDFLAGS)" -o $(OBJ)/go/ckptctl ./cmd/ckptctl
	@$(call replace,$(OBJ)/go/ckptctl,$@)

# ---- MPI: fronts and backs, from generated sources ----------------------------------------------

include capi/embed/module.mk capi/canon/module.mk capi/front/module.mk capi/back/module.mk capi/enter/module.mk \
        capi/fti/module.mk capi/veloc/module.mk capi/verbs/module.mk capi/verbs/soft/module.mk capi/verbs/tcp/module.mk

# ---- what else is installed ---------------------------------------------------------------------

HEADERS := $(patsubst include/%,$(BUILD)/include/%,$(wildcard include/*.h include/*.f90 include/ckpt/*.h include/fti/*.h \
           include/fti/*.f90 include/veloc/*.h))
$(BUILD)/include/%: include/%
	@mkdir -p $(@D)
	cp $< $@

# The standard ABI's, for programs that are compiled where no MPI has it.
$(BUILD)/include/standard_abi/mpi.h: capi/std/gen/mpi.h
	@mkdir -p $(@D)
	cp $< $@
PARTS += $(BUILD)/include/standard_abi/mpi.h

# The module of gfortran, where there is one; other compilers compile the source.
ifneq ($(shell command -v gfortran),)
$(BUILD)/include/mpix_checkpoint.mod: include/mpix_checkpoint.f90
	@mkdir -p $(@D)
	gfortran -std=f2018 -Wall -Werror -fsyntax-only -J $(@D) $<
$(BUILD)/include/fti/fti.mod: include/fti/fti.f90
	@mkdir -p $(@D)
	gfortran -std=f2018 -Wall -Werror -fsyntax-only -J $(@D) $<
PARTS += $(BUILD)/include/mpix_checkpoint.mod $(BUILD)/include/fti/fti.mod
endif

# Both find the installed tree relative to themselves.
VERSIONED := $(LIB)/pkgconfig/ckpt.pc $(LIB)/cmake/ckpt/ckptConfig.cmake \
             $(LIB)/cmake/ckpt/ckptConfigVersion.cmake
$(LIB)/pkgconfig/%: scripts/%.in Makefile
	@mkdir -p $(@D)
	sed 's/@VERSION@/$(VERSION)/' $< >$@
$(LIB)/cmake/ckpt/%: scripts/%.in Makefile
	@mkdir -p $(@D)
	sed 's/@VERSION@/$(VERSION)/' $< >$@

# What `ckptctl back add` compiles.
SOURCES := $(patsubst %,$(BUILD)/share/libckpt/src/%,$(BACK_SRCS) capi/back/which.in $(wildcard capi/back/*.h \
           capi/back/*/*.h capi/canon/*.h capi/canon/gen/*.h include/*.h include/ckpt/*.h include/ckpt/private/*.h))
$(BUILD)/share/libckpt/src/%: %
	@mkdir -p $(@D)
	@cp $< $@
PARTS += $(SOURCES)

MAN := $(BUILD)/share/man
$(MAN)/man1/%: docs/man/% Makefile
	@mkdir -p $(@D)
	sed 's/@VERSION@/$(VERSION)/' $< >$@
$(MAN)/man3/%: docs/man/% Makefile
	@mkdir -p $(@D)
	sed 's/@VERSION@/$(VERSION)/' $< >$@
# The options of ckptrun come from the table in ckpt/launch.
$(MAN)/man1/ckptrun.1: docs/man/ckptrun.1 Makefile $(BIN)/ckptctl
	@mkdir -p $(@D)
	$(BIN)/ckptctl man-options $< >$@.new
	sed 's/@VERSION@/$(VERSION)/' $@.new >$@ && rm $@.new
# ckptctl writes its own pages, one a command, from its help texts.
$(MAN)/man1/ckptctl.1: $(BIN)/ckptctl
	@mkdir -p $(@D)
	$< man $(@D)

PARTS += $(BIN)/ckptrun $(BIN)/ckptctl $(PKG)/libckpt-core.so $(LIB)/libckpt.so $(LIB)/libckpt.so.1 $(HEADERS) \
         $(VERSIONED) $(MAN)/man1/ckptrun.1 $(MAN)/man1/ckptctl.1 $(MAN)/man3/MPIX_Checkpoint.3 \
         $(MAN)/man3/ckpt.h.3

all: $(PARTS)

# ---- examples -----------------------------------------------------------------------------------

include examples/module.mk

examples: $(EXAMPLES)

# ---- what people call ---------------------------------------------------------------------------

# The MPI of demos: the first that there is; a choice of one's own is DEMO_MPI=openmpi.
demo demo-levels: export DEMO_MPI := $(or $(DEMO_MPI),$(firstword $(MPIS)))
demo demo-levels: export DEMO_MPIEXEC := $(or $(DEMO_MPIEXEC),$(MPIEXEC_$(or $(DEMO_MPI),$(firstword $(MPIS)))))
demo: all examples
	scripts/demo.sh $(BUILD)

demo-embed: all examples
	scripts/demo-embed.sh $(BUILD)

demo-levels: all examples
	scripts/demo-levels.sh $(BUILD)

demo-verbs: all $(SOFT_PROVIDER)
	scripts/demo-verbs.sh $(BUILD)

demo-nodes: all examples
	scripts/demo-nodes.sh $(BUILD)

# Each ABI above each MPI, continued above each.
crosswise: all examples
	scripts/crosswise.sh $(BUILD) $(foreach mpi,$(MPIS),$(mpi)=$(MPIEXEC_$(mpi)))

# No fault points, no programs of other people: what a change needs before it is committed.
check: all examples $(C_TESTS)
	GO=$(GO) scripts/lint.sh
	GO=$(GO) SCOPE=check scripts/test.sh $(BUILD) $(abspath $(C_TESTS))

include bench/module.mk

test: all faults examples soak-programs $(BENCH_PROGRAMS) $(C_TESTS) $(SOFT_PROVIDER)
	GO=$(GO) ONLY='$(ONLY)' scripts/test.sh $(BUILD) $(abspath $(C_TESTS))

# Above a kernel's adapter.
test-verbs-vm: all
	GO=$(GO) scripts/test-verbs-vm.sh $(BUILD)

# Above other kernels, with FSGSBASE and without.
HOST_TESTS := $(filter $(OBJ)/capi/host/test/%,$(C_TESTS))
test-vm: all faults examples $(HOST_TESTS)
	GO=$(GO) scripts/test-vm.sh $(BUILD) $(abspath $(HOST_TESTS))

# Programs on InfiniBand verbs, on an adapter in software; part of the tests.
test-verbs: all faults $(SOFT_PROVIDER)
	GO=$(GO) ONLY=./internal/e2e/verbs scripts/test.sh $(BUILD)

# Links between nodes that lose, delay, double and reorder frames, each on each node; a case of it is in the tests.
links: all faults examples
	GO=$(GO) CKPT_E2E_LINKS=all ONLY='^TestNodesLinks$$' scripts/test.sh $(BUILD)

# rdma-core's own tests in Python, saved, killed and continued LIVES=n times; the table is kept.  As root.
test-pyverbs: all faults $(SOFT_PROVIDER)
	CKPT_PYVERBS_LIVES=$(or $(LIVES),12) CKPT_PYVERBS_TABLE=$(CURDIR)/bench/results/pyverbs.md GO=$(GO) ONLY='^TestPyverbs$$' \
	    scripts/test.sh $(BUILD)

# GASNet-EX' own tests, built for its ibv-conduit in the folder PROGRAMS, saved and killed; what ran is kept.  As root.
test-pgas: all faults $(SOFT_PROVIDER)
	$(if $(PROGRAMS),,$(error make test-pgas PROGRAMS=DIR, the folder with GASNet-EX' built tests (docs/verbs.md)))
	CKPT_PGAS_PROGRAMS=$(abspath $(PROGRAMS)) CKPT_PGAS_LOG=$(CURDIR)/bench/results/verbs-pgas.txt GO=$(GO) ONLY='^TestPgas$$' \
	    scripts/test.sh $(BUILD)

# The random program on verbs, saved and killed CYCLES=n times, on the adapter and over TCP in turn; the log is kept.  As root.
verbs-cycles: all faults $(SOFT_PROVIDER)
	CKPT_VERBS_CYCLES=$(or $(CYCLES),500) CKPT_VERBS_LOG=$(CURDIR)/bench/results/verbs-cycles.txt \
	    $(if $(SEED),CKPT_E2E_SEED=$(SEED)) GO=$(GO) ONLY='^TestVerbsCycles$$' scripts/test.sh $(BUILD)

# Not part of the tests: it installs whole systems.
SUITES ?= trixie forky
matrix:
	GO=$(GO) TESTS='$(TESTS)' TARGETS='$(or $(TARGETS),$(if $(TESTS),,demo crosswise))' scripts/matrix.sh $(SUITES)

# A short form for each change; it says when this machine cannot do it.
SHORT_TESTS := ^(TestFortranVectors|TestBindNow|TestExportedSymbols|TestCompanions|TestReplaced|TestPMIxSegments)$$
matrix-short:
	GO=$(GO) SHORT=1 TESTS='$(SHORT_TESTS)' TARGETS=demo scripts/matrix.sh trixie

# Jobs that go on in another release of Debian.
moves: all examples
	GO=$(GO) scripts/moves.sh $(BUILD) $(SUITES)

one-mpi:
	TARGETS='$(or $(TARGETS),demo)' scripts/onempi.sh

# A few minutes; FULL=1 takes every combination and more rounds.  ONLY=query,... measures a part,
# ONLY=ranks RANKS=256 one number of ranks.
bench: all examples soak-programs $(BENCHES)
	$(if $(FTI),FTI='$(abspath $(FTI))') $(GO) run ./bench -build $(BUILD) $(if $(FULL),-full) $(if $(ONLY),-only $(ONLY)) $(if $(RANKS),-ranks $(RANKS))

include internal/soak/module.mk

# The programs that lead lives under ckptrun.
soak-programs: $(SOAKS)

# Hundreds of cycles of saving, killing and going on; CYCLES=n, SEED=n.
soak: faults examples soak-programs
	$(GO) run ./bench/soak -build $(BUILD) -cycles $(or $(CYCLES),500) $(if $(SEED),-seed $(SEED)) \
	    -log bench/results/soak.txt

# Faults on living jobs, COUNT=n of them, SEED=n.  SWEEP=checkpoint or SWEEP=restart has every system call of
# the library fail instead, one after the other.
campaign: all
	$(if $(SWEEP),LIBCKPT_SWEEP=$(SWEEP),LIBCKPT_CAMPAIGN=$(or $(COUNT),200) LIBCKPT_CAMPAIGN_LOG=$(CURDIR)/bench/results/campaign.txt) \
	    $(if $(SEED),CKPT_E2E_SEED=$(SEED)) $(GO) test -count=1 -timeout 4h -v -run '$(if $(SWEEP),TestEachCallFails,TestCampaign)$$' ./internal/e2e

# Every parser of bytes from disk or wire; scripts/fuzz.sh has more variables.
fuzz:
	GO=$(GO) FUZZTIME='$(or $(FUZZTIME),30s)' FUZZ='$(FUZZ)' FUZZPROCS='$(FUZZPROCS)' FUZZKEEP='$(FUZZKEEP)' FUZZLOG='$(FUZZLOG)' FUZZGOAL='$(FUZZGOAL)' scripts/fuzz.sh

lint: all examples
	GO=$(GO) scripts/lint.sh

analyze:
	MPICC=$(MPICC_$(firstword $(MPIS))) scripts/analyze.sh

format: $(SETUP)
	"$$($(GO) env GOROOT)/bin/gofmt" -w .
	git ls-files '*.c' '*.h' | grep -v /gen/ | xargs clang-format -i

generate:
	$(GO) generate ./...

install: all
	scripts/install.sh '$(BUILD)' '$(DESTDIR)$(PREFIX)'

dist:
	GO=$(GO) VERSION=$(VERSION) VENDOR='$(VENDOR)' scripts/dist.sh '$(BUILD)'

deb:
	GO=$(GO) VERSION=$(VERSION) scripts/deb.sh '$(BUILD)'

deb-test:
	scripts/deb-test.sh '$(BUILD)'

clean:
	rm -rf $(BUILD)

.PHONY: all faults setup examples check lint analyze format generate clean FORCE
.PHONY: demo demo-embed demo-levels demo-nodes demo-verbs
.PHONY: test test-vm test-verbs test-verbs-vm test-pyverbs test-pgas verbs-cycles links crosswise matrix matrix-short moves one-mpi
.PHONY: bench soak soak-programs campaign fuzz
.PHONY: install dist deb deb-test
FORCE:

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)
