# SPDX-License-Identifier: Apache-2.0
#
# Each example as a user would build it: with an MPI's own compiler and -lckpt.  One program an MPI.

EXAMPLES := $(BUILD)/examples/heat.mpich $(BUILD)/examples/heat.openmpi

HEAT_SRCS := $(wildcard examples/heat/*.c)
# gcc takes MPICH's MPI_STATUSES_IGNORE for an array of length 0.
HEAT_FLAGS = -std=gnu11 -Wall -Wextra -Werror -Wno-stringop-overflow $(CFLAGS) \
             -ffp-contract=off -I$(BUILD)/include
HEAT_LIBS = -L$(LIB) -lckpt -lm '-Wl,-rpath,$$ORIGIN/../lib'

HEAT_DEPS := $(HEAT_SRCS) $(wildcard examples/heat/*.h) $(BUILD)/include/mpix_checkpoint.h \
             | $(LIB)/libckpt.so $(LIB)/libckpt.so.1

$(BUILD)/examples/heat.mpich: $(HEAT_DEPS)
	@mkdir -p $(@D)
	$(MPICC_MPICH) $(HEAT_FLAGS) -o $@ $(HEAT_SRCS) $(HEAT_LIBS)

$(BUILD)/examples/heat.openmpi: $(HEAT_DEPS)
	@mkdir -p $(@D)
	$(MPICC_OPENMPI) $(HEAT_FLAGS) -o $@ $(HEAT_SRCS) $(HEAT_LIBS)
