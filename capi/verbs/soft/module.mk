# SPDX-License-Identifier: Apache-2.0
#
# The soft adapter as a provider of libibverbs, for tests: it is not installed.
VERBS_TEST := $(OBJ)/verbs
SOFT_SRCS := $(wildcard capi/verbs/soft/*.c)
SOFT_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(SOFT_SRCS) $(wildcard capi/verbs/soft/provider/*.c))
$(SOFT_OBJS): C_EXTRA := -Icapi -fvisibility=hidden
# The suffix is that of the private ABI of rdma-core 44.
SOFT_PROVIDER := $(VERBS_TEST)/libckptsoft-rdmav34.so
$(SOFT_PROVIDER): $(SOFT_OBJS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -o $@ $^ -libverbs -lpthread
