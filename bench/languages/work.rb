# SPDX-License-Identifier: Apache-2.0
#
# Ruby: threads with queues, fibers, and the collector.
require "digest"
rounds = ARGV[0].to_i
work, done = Queue.new, Queue.new
3.times do
  Thread.new do
    while (x = work.pop)
      hash = Digest::SHA256.new
      fiber = Fiber.new { 100.times { |i| Fiber.yield("#{x}-#{i}" * 10) }; nil }
      while (text = fiber.resume)
        hash.update(text)
      end
      done << hash.hexdigest.to_i(16)
    end
  end
end
sum = 0
20.times do |step|
  rounds.times do |round|
    3.times { |k| work << (step * rounds + round) * 3 + k }
    3.times { sum ^= done.pop }
    sleep 0.0005
  end
  GC.start
  puts "#{step} #{sum}"
  $stdout.flush
end
