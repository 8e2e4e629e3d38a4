# SPDX-License-Identifier: Apache-2.0
#
# The programs that lead a life in `make soak`; built as a user's are, one an MPI.

SOAK_DIR := $(BUILD)/soak
SOAK_RANDOM := $(wildcard internal/soak/programs/random/*.c)
# gcc takes MPICH's MPI_STATUSES_IGNORE, and Open MPI's MPI_UNWEIGHTED, for an array of length 0.
SOAK_FLAGS := -std=gnu11 -Wall -Wextra -Werror -Wno-stringop-overflow -Wno-stringop-overread -O2 -g
SOAK_SINGLE := particles farm pipeline polling files
SOAKS := $(foreach mpi,$(MPIS),$(SOAK_DIR)/random.$(mpi) $(SOAK_SINGLE:%=$(SOAK_DIR)/%.$(mpi)))

# $(call soak_programs,NAME,COMPILER)
define soak_programs
$(SOAK_DIR)/random.$(1): $(SOAK_RANDOM) internal/soak/programs/random/random.h
	@mkdir -p $$(@D)
	$(2) $(SOAK_FLAGS) -o $$@ $(SOAK_RANDOM)

$(SOAK_SINGLE:%=$(SOAK_DIR)/%.$(1)): $(SOAK_DIR)/%.$(1): internal/soak/programs/%.c
	@mkdir -p $$(@D)
	$(2) $(SOAK_FLAGS) -o $$@ $$<
endef
$(call each_mpi,soak_programs)
