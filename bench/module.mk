# SPDX-License-Identifier: Apache-2.0
#
# The programs that `make bench` times: one question each.  They are built as a user's are, and no
# flag of the person who builds changes what is measured.

BENCH_DIR := $(BUILD)/bench
BENCH_FLAGS := -std=gnu11 -Wall -Wextra -Werror -Wno-stringop-overflow -O2 -Iinclude
# Only the one that needs it: a native run shall not have libckpt.so in its process.
$(BENCH_DIR)/checkpoint.%: BENCH_LIBS = -L$(LIB) -lckpt '-Wl,-rpath,$$ORIGIN/../lib'
BENCH_PLAIN := gate syscall
BENCH_MPI := crossing query blocking triple startup checkpoint

BENCHES := $(BENCH_PLAIN:%=$(BENCH_DIR)/%) \
           $(foreach mpi,mpich openmpi,$(BENCH_MPI:%=$(BENCH_DIR)/%.$(mpi)))

BENCH_DEPS := $(wildcard bench/programs/*.h include/*.h include/ckpt/*.h) bench/module.mk \
              | $(LIB)/libckpt.so $(LIB)/libckpt.so.1

$(BENCH_PLAIN:%=$(BENCH_DIR)/%): $(BENCH_DIR)/%: bench/programs/%.c $(BENCH_DEPS)
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ $<

$(BENCH_DIR)/%.mpich: bench/programs/%.c $(BENCH_DEPS)
	@mkdir -p $(@D)
	$(MPICC_MPICH) $(BENCH_FLAGS) -o $@ $< $(BENCH_LIBS)

$(BENCH_DIR)/%.openmpi: bench/programs/%.c $(BENCH_DEPS)
	@mkdir -p $(@D)
	$(MPICC_OPENMPI) $(BENCH_FLAGS) -o $@ $< $(BENCH_LIBS)
