-- SPDX-License-Identifier: Apache-2.0
--
-- LuaJIT: compiled traces, memory of C, and strings for the collector.
local ffi = require 'ffi'
local rounds, sum, texts = tonumber(arg[1]), 0, {}
for step = 0, 19 do
    for round = 1, rounds do
        local a = ffi.new('double[?]', 20000)
        for i = 0, 19999 do a[i] = i * (step * rounds + round) % 97 end
        for i = 0, 19999 do sum = (sum + a[i] * 3) % 1000003 end
        for i = 1, 2000 do texts[i % 500] = tostring(i) .. round end
    end
    print(step, sum, #texts)
    io.flush()
end
