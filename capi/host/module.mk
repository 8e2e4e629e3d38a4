# SPDX-License-Identifier: Apache-2.0
#
# Signal handlers of ckptrun may begin with the other half's FS base: nothing may read thread-local storage
# before they have switched it, and a stack protector would.
$(BIN)/ckptrun: C_EXTRA := -fno-stack-protector -fcf-protection=none

# Each test includes the file that it is about, since the objects of ckptrun are compiled with the above, and
# stands in for what that file calls of others.  A sanitizer's report ends it with another status than 0.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
# $(call sanitized,SOURCE without .c): a program of one file.
define sanitized
C_TESTS += $(OBJ)/$(1)
$(OBJ)/$(1): C_EXTRA := $(SANITIZE) -Icapi
$(OBJ)/$(1): $(OBJ)/$(1).o
	$(CC) $(CFLAGS) $(SANITIZE) -o $$@ $$^
endef
$(foreach test,arena fds signals threads_check wrap xstate,$(eval $(call sanitized,capi/host/test/$(test))))
$(OBJ)/capi/host/test/xstate: $(OBJ)/capi/host/forget.o
