# SPDX-License-Identifier: Apache-2.0
#
# Each example as a user would build it: with an MPI's own compiler and -lckpt.  One program an MPI.

EXAMPLES :=

HEAT_SRCS := $(wildcard examples/heat/*.c)
# gcc takes MPICH's MPI_STATUSES_IGNORE for an array of length 0.
HEAT_FLAGS = -std=gnu11 -Wall -Wextra -Werror -Wno-stringop-overflow $(CFLAGS) \
             -ffp-contract=off -I$(BUILD)/include
HEAT_LIBS = -L$(LIB) -lckpt -lm '-Wl,-rpath,$$ORIGIN/../lib'

HEAT_DEPS := $(HEAT_SRCS) $(wildcard examples/heat/*.h) $(BUILD)/include/mpix_checkpoint.h \
             | $(LIB)/libckpt.so $(LIB)/libckpt.so.1

# $(call heat,NAME,COMPILER)
define heat
$(BUILD)/examples/heat.$(1): $(HEAT_DEPS)
	@mkdir -p $$(@D)
	$(2) $$(HEAT_FLAGS) -o $$@ $(HEAT_SRCS) $$(HEAT_LIBS)
EXAMPLES += $(BUILD)/examples/heat.$(1)
endef
$(call each_mpi,heat)

# For any MPI that has the standard ABI, as mpicc_abi would; libmpi_abi.so.1 is the front of that name.
$(BUILD)/examples/heat.abi: $(BUILD)/include/standard_abi/mpi.h $(HEAT_DEPS) $(PKG)/front/libmpi_abi.so.1
	@mkdir -p $(@D)
	$(CC) -I$(BUILD)/include/standard_abi $(HEAT_FLAGS) -o $@ $(HEAT_SRCS) $(PKG)/front/libmpi_abi.so.1 $(HEAT_LIBS)
EXAMPLES += $(BUILD)/examples/heat.abi

# ---- tmpi: a runtime with ranks that are user-level threads, and its programs -------------------

TMPI := $(BUILD)/examples/tmpi
TMPI_PROGRAMS := $(TMPI)/cg $(TMPI)/heat $(TMPI)/cg-slots $(TMPI)/heat-slots $(TMPI)/tmpirun
EXAMPLES += $(TMPI_PROGRAMS)
TMPI_SRCS := $(filter-out %/cg.c %/heat.c %/tmpirun.c,$(wildcard examples/tmpi/*.c))
TMPI_FLAGS = -std=gnu11 -Wall -Wextra -Wmissing-prototypes -Wshadow -Werror $(CFLAGS) -ffp-contract=off \
             -I$(BUILD)/include

$(TMPI)/cg $(TMPI)/heat: $(TMPI)/%: examples/tmpi/%.c $(TMPI_SRCS) $(wildcard examples/tmpi/*.h) $(HEADERS) \
                         | $(LIB)/libckpt.so $(LIB)/libckpt.so.1
	@mkdir -p $(@D)
	$(CC) $(TMPI_FLAGS) -o $@ $< $(TMPI_SRCS) -L$(LIB) -lckpt -pthread -lm '-Wl,-rpath,$$ORIGIN/../../lib'

# For ranks that go on in other processes: code at the same addresses, and no canaries on stacks.
$(TMPI)/cg-slots $(TMPI)/heat-slots: $(TMPI)/%-slots: examples/tmpi/%.c $(TMPI_SRCS) $(wildcard examples/tmpi/*.h) \
                                     $(HEADERS) | $(LIB)/libckpt.so $(LIB)/libckpt.so.1
	@mkdir -p $(@D)
	$(CC) $(TMPI_FLAGS) -fno-stack-protector -no-pie -o $@ $< $(TMPI_SRCS) -L$(LIB) -lckpt -pthread -lm \
	    '-Wl,-rpath,$$ORIGIN/../../lib'

$(TMPI)/tmpirun: examples/tmpi/tmpirun.c
	@mkdir -p $(@D)
	$(CC) $(TMPI_FLAGS) -o $@ $<

# Tasks, matching and collective calls without libckpt, under ThreadSanitizer.
TMPI_TEST := $(OBJ)/examples/tmpi/test/tasks
TMPI_TESTED := $(addprefix examples/tmpi/,test/tasks.c sched.c match.c coll.c slots.c tmpi.c)
$(TMPI_TEST): $(TMPI_TESTED) $(wildcard examples/tmpi/*.h) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(TMPI_FLAGS) -O1 -fsanitize=thread -o $@ $(TMPI_TESTED) -pthread
C_TESTS += $(TMPI_TEST)
