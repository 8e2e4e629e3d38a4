# SPDX-License-Identifier: Apache-2.0
#
# The programs that lead a life in `make soak`; built as a user's are, one an MPI.

SOAK_DIR := $(BUILD)/soak
SOAK_RANDOM := $(wildcard internal/soak/programs/random/*.c)
# gcc takes MPICH's MPI_STATUSES_IGNORE, and Open MPI's MPI_UNWEIGHTED, for an array of length 0.
SOAK_FLAGS := -std=gnu11 -Wall -Wextra -Werror -Wno-stringop-overflow -Wno-stringop-overread -O2 -g
SOAK_SINGLE := particles farm pipeline polling files
SOAKS := $(foreach mpi,mpich openmpi,$(SOAK_DIR)/random.$(mpi) $(SOAK_SINGLE:%=$(SOAK_DIR)/%.$(mpi)))

$(SOAK_DIR)/random.mpich: $(SOAK_RANDOM) internal/soak/programs/random/random.h
	@mkdir -p $(@D)
	$(MPICC_MPICH) $(SOAK_FLAGS) -o $@ $(SOAK_RANDOM)

$(SOAK_DIR)/random.openmpi: $(SOAK_RANDOM) internal/soak/programs/random/random.h
	@mkdir -p $(@D)
	$(MPICC_OPENMPI) $(SOAK_FLAGS) -o $@ $(SOAK_RANDOM)

$(SOAK_SINGLE:%=$(SOAK_DIR)/%.mpich): $(SOAK_DIR)/%.mpich: internal/soak/programs/%.c
	@mkdir -p $(@D)
	$(MPICC_MPICH) $(SOAK_FLAGS) -o $@ $<

$(SOAK_SINGLE:%=$(SOAK_DIR)/%.openmpi): $(SOAK_DIR)/%.openmpi: internal/soak/programs/%.c
	@mkdir -p $(@D)
	$(MPICC_OPENMPI) $(SOAK_FLAGS) -o $@ $<
