# SPDX-License-Identifier: Apache-2.0
#
# The programs that `make bench` times: one question each.  They are built as a user's are, and no
# flag of the person who builds changes what is measured.

BENCH_DIR := $(BUILD)/bench
BENCH_FLAGS := -std=gnu11 -Wall -Wextra -Werror -Wno-stringop-overflow -O2 -Iinclude
# Only those that need it: a native run shall not have libckpt.so in its process.
$(BENCH_DIR)/checkpoint.% $(BENCH_DIR)/levels.% $(BENCH_DIR)/tracking: BENCH_LIBS = -L$(LIB) -lckpt '-Wl,-rpath,$$ORIGIN/../lib'
BENCH_PLAIN := gate syscall elect verbs tcp verbsheld tracking turns
$(BENCH_DIR)/verbs: BENCH_LIBS = -libverbs
$(BENCH_DIR)/verbsheld: BENCH_LIBS = -libverbs -L$(LIB) -lckpt '-Wl,-rpath,$$ORIGIN/../lib'
# It has the rails of a runtime in it.
$(BENCH_DIR)/elect: BENCH_FLAGS += -Icapi
$(BENCH_DIR)/elect: capi/embed/rails.c capi/embed/say.c $(wildcard capi/embed/*.h)
BENCH_MPI := crossing switching query blocking triple window counting safestate groups startup checkpoint levels ftistate

# A runtime, with libckpt; and one whose ranks are tasks.
BENCH_EMBEDDED := $(BENCH_DIR)/embedded $(BENCH_DIR)/embedded-levels

# make test builds these, so that they keep up with what they measure.
BENCH_PROGRAMS := $(BENCH_EMBEDDED) $(BENCH_PLAIN:%=$(BENCH_DIR)/%) \
                  $(foreach mpi,$(MPIS),$(BENCH_MPI:%=$(BENCH_DIR)/%.$(mpi)))
BENCHES := $(BENCH_PROGRAMS) $(SOFT_PROVIDER) $(foreach mpi,$(MPIS),$(BENCH_DIR)/libckptback-$(mpi)-uncounted.so)

BENCH_DEPS := $(wildcard bench/programs/*.h internal/e2e/programs/*.h include/*.h include/ckpt/*.h) bench/module.mk \
              | $(LIB)/libckpt.so $(LIB)/libckpt.so.1

$(BENCH_PLAIN:%=$(BENCH_DIR)/%): $(BENCH_DIR)/%: bench/programs/%.c $(BENCH_DEPS)
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ $< $(BENCH_LIBS)

$(BENCH_DIR)/embedded: bench/programs/embedded.c $(BENCH_DEPS)
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ $< -L$(LIB) -lckpt '-Wl,-rpath,$$ORIGIN/../lib'

# tmpirun starts it.
$(BENCH_DIR)/embedded-levels: | $(TMPI)/tmpirun
$(BENCH_DIR)/embedded-levels: bench/programs/embedded.c $(TMPI_SRCS) $(wildcard examples/tmpi/*.h) $(BENCH_DEPS)
	@mkdir -p $(@D)
	$(CC) $(TMPI_FLAGS) -DLEVELS -o $@ $< $(TMPI_SRCS) -L$(LIB) -lckpt -pthread -lm '-Wl,-rpath,$$ORIGIN/../lib'

# An object of other people's programs (bench/mpich_suite.sh).
# Linked into the programs of CRIU's suite (bench/zdtm.sh).
$(BENCH_DIR)/hold.o: bench/programs/hold.c bench/module.mk
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -c -o $@ $<

$(BENCH_DIR)/moment.o: bench/programs/moment.c capi/canon/gen/zz_numbers.h $(BENCH_DEPS)
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -fPIC -c -o $@ $<

$(BENCH_DIR)/moment-fortran.o: bench/programs/moment.c capi/canon/gen/zz_numbers.h $(BENCH_DEPS)
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -DMOMENT_BELOW_P -fPIC -c -o $@ $<

# $(call bench_programs,NAME,COMPILER)
define bench_programs
$(BENCH_DIR)/%.$(1): bench/programs/%.c $(BENCH_DEPS)
	@mkdir -p $$(@D)
	$(2) $(BENCH_FLAGS) -o $$@ $$< $$(BENCH_LIBS)
$(BENCH_DIR)/ftistate.$(1): BENCH_LIBS = -Iinclude/fti -L$(PKG)/fti/$(1) -lckpt_fti '-Wl,-rpath,$$$$ORIGIN/../lib/ckpt/fti/$(1)' -Wl,-rpath-link,$(LIB)
$(BENCH_DIR)/ftistate.$(1): $(PKG)/fti/$(1)/libckpt_fti.so $(PKG)/fti/$(1)/libckpt_fti.so.1
endef
$(call each_mpi,bench_programs)

# Backs without clock and bookmarks: what counting costs is the difference to those that are installed.
# $(call uncounted,NAME,COMPILER)
define uncounted
UNCOUNTED_$(1)_OBJS := $(patsubst %.c,$(OBJ)/uncounted-$(1)/%.o,$(BACK_SRCS))
$(OBJ)/uncounted-$(1)/%.o: %.c
	@mkdir -p $$(@D)
	$(2) $(C_FLAGS) -Icapi $(CFLAGS) -DBACK_COUNTS=0 -fPIC -fvisibility=hidden -c -o $$@ $$<
$(BENCH_DIR)/libckptback-$(1)-uncounted.so: $$(UNCOUNTED_$(1)_OBJS) | $(PKG)/libckpt-core.so
	@mkdir -p $$(@D)
	$(2) $(CFLAGS) -shared -o $$@ $$^ -L$(PKG) -l:libckpt-core.so -Wl,-rpath,'$$$$ORIGIN/../lib/ckpt'
endef
$(call each_mpi,uncounted)
