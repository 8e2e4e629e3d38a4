# SPDX-License-Identifier: Apache-2.0

$(eval $(call sanitized,capi/canon/test/info))
