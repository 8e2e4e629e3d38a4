# SPDX-License-Identifier: Apache-2.0
#
# The soft adapter in the place of libibverbs, for machines without InfiniBand.
VERBS_TCP_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(SOFT_SRCS) $(wildcard capi/verbs/tcp/*.c) \
                  $(addprefix capi/verbs/soft/provider/,completions.c objects.c pairs.c pipes.c requests.c))
$(VERBS_TCP_OBJS): C_EXTRA := -Icapi -fvisibility=hidden
$(PKG)/back/libckptverbs-tcp.so: $(VERBS_TCP_OBJS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,now -o $@ $^ -lpthread
PARTS += $(PKG)/back/libckptverbs-tcp.so
