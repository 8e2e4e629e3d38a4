# SPDX-License-Identifier: Apache-2.0
#
# The soft adapter as a provider of libibverbs, for tests: it is not installed.
VERBS_TEST := $(OBJ)/verbs
SOFT_SRCS := $(wildcard capi/verbs/soft/*.c)
SOFT_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(SOFT_SRCS) $(wildcard capi/verbs/soft/provider/*.c))
$(SOFT_OBJS): C_EXTRA := -Icapi -fvisibility=hidden
# The suffix is that of the private ABI of rdma-core 44 to 56. Where libibverbs has another one there is no adapter, and
# scripts/verbs-bed.sh says so.
SOFT_FILE := $(VERBS_TEST)/libckptsoft-rdmav34.so
SOFT_PROVIDER := $(shell grep -qs verbs_register_driver_34 "$$($(CC) -print-file-name=libibverbs.so)" && echo $(SOFT_FILE))
soft-adapter: $(SOFT_PROVIDER)
.PHONY: soft-adapter
$(SOFT_FILE): $(SOFT_OBJS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -o $@ $^ -libverbs -lpthread
