# SPDX-License-Identifier: Apache-2.0
#
# InfiniBand verbs: what programs see as libibverbs.so.1, and what is below it.

VERBS_FRONT_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(wildcard capi/verbs/front/*.c))
$(VERBS_FRONT_OBJS): C_EXTRA := -Icapi -fvisibility=hidden
$(PKG)/front/libibverbs.so.1: $(VERBS_FRONT_OBJS) capi/verbs/front/libibverbs.map
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,now -Wl,-soname,libibverbs.so.1 \
	    -Wl,--version-script=capi/verbs/front/libibverbs.map -o $@ $(VERBS_FRONT_OBJS)
PARTS += $(PKG)/front/libibverbs.so.1

# What libraries of rdma-core for some adapters alone are to programs: their functions say that this is none of them.
DIRECT := libmlx5 libmlx4 libefa libmana libhns
DIRECT_FRONTS := $(DIRECT:%=$(PKG)/front/%.so.1)
$(DIRECT:%=$(OBJ)/capi/verbs/direct/gen/zz_%.o): C_EXTRA := -Icapi -fvisibility=hidden
$(DIRECT_FRONTS): $(PKG)/front/%.so.1: $(OBJ)/capi/verbs/direct/gen/zz_%.o capi/verbs/direct/gen/zz_%.map
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,now -Wl,-soname,$*.so.1 \
	    -Wl,--version-script=capi/verbs/direct/gen/zz_$*.map -o $@ $<
PARTS += $(DIRECT_FRONTS)

# Connections: above the libibverbs of programs, and TCP.
CM_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(wildcard capi/verbs/cm/*.c)) $(OBJ)/capi/verbs/direct/gen/zz_librdmacm.o
$(CM_OBJS): C_EXTRA := -Icapi -fvisibility=hidden
$(PKG)/front/librdmacm.so.1: $(CM_OBJS) $(PKG)/front/libibverbs.so.1 capi/verbs/direct/gen/zz_librdmacm.map
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,now -Wl,-soname,librdmacm.so.1 \
	    -Wl,--version-script=capi/verbs/direct/gen/zz_librdmacm.map -o $@ $(CM_OBJS) $(PKG)/front/libibverbs.so.1 -lpthread
PARTS += $(PKG)/front/librdmacm.so.1

# It is linked with nothing: the machine's libibverbs is loaded when a program asks for devices.
VERBS_BACK_OBJS := $(patsubst %.c,$(OBJ)/%.o,$(wildcard capi/verbs/back/*.c))
$(VERBS_BACK_OBJS): C_EXTRA := -Icapi -fvisibility=hidden
$(PKG)/back/libckptverbs-ibv.so: $(VERBS_BACK_OBJS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-z,defs -Wl,-z,now -o $@ $^ -ldl
PARTS += $(PKG)/back/libckptverbs-ibv.so
