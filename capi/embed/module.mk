# SPDX-License-Identifier: Apache-2.0
#
# Tests of single files, without the core.  Each includes the file that it is about, and stands in
# for what that file calls of others.  Threads and tasks: under ThreadSanitizer.
RACES := -fsanitize=thread -O1 -fno-omit-frame-pointer
# $(call raced,SOURCE without .c): a program of one file.
define raced
C_TESTS += $(OBJ)/$(1)
$(OBJ)/$(1): C_EXTRA := $(RACES) -Icapi
$(OBJ)/$(1): $(OBJ)/$(1).o
	$(CC) $(CFLAGS) $(RACES) -o $$@ $$^
endef
$(foreach test,tasks rails_race,$(eval $(call raced,capi/embed/test/$(test))))
$(eval $(call sanitized,capi/embed/test/rails))
