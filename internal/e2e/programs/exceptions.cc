// SPDX-License-Identifier: Apache-2.0
//
// C++: exceptions through many frames and across threads, thread_local with constructors and
// destructors, std::thread, async, condition variables, RTTI, iostreams, static initialisation.
// usage: exceptions ROUNDS
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

std::mutex mutex;
long constructed, destroyed;

struct Counter {
    std::map<std::string, long> counts;
    Counter() {
        std::lock_guard<std::mutex> hold(mutex);
        constructed++;
    }
    ~Counter() {
        std::lock_guard<std::mutex> hold(mutex);
        destroyed++;
    }
};

thread_local Counter counter;
thread_local std::string name = "unnamed";

struct Deep : std::runtime_error {
    int depth;
    Deep(const std::string &what, int d) : std::runtime_error(what), depth(d) {}
};

struct Guard {
    long &n;
    explicit Guard(long &c) : n(c) { n++; }
    ~Guard() { n--; }
};

int descend(int depth, long &open) {
    Guard guard(open);
    if (depth == 0)
        throw Deep(name + " reached the bottom", 0);
    try {
        return descend(depth - 1, open) + 1;
    } catch (Deep &e) {
        e.depth++;
        if (depth % 7 == 0)
            throw std::invalid_argument(std::string(e.what()) + " " + std::to_string(e.depth));
        throw;
    } catch (const std::invalid_argument &e) {
        if (depth % 21 == 0)
            std::throw_with_nested(std::logic_error("nested"));
        throw;
    }
}

uint64_t work(int me, int rounds) {
    name = "thread " + std::to_string(me);
    uint64_t digest = 1469598103934665603u;
    long open = 0;
    for (int i = 0; i < rounds; i++) {
        std::string what;
        try {
            descend(i % 50, open);
        } catch (const std::invalid_argument &e) {
            what = e.what();
            counter.counts["invalid"]++;
        } catch (const std::logic_error &e) {
            try {
                std::rethrow_if_nested(e);
            } catch (const std::exception &inner) {
                what = std::string("nested ") + inner.what();
            }
            counter.counts["logic"]++;
        } catch (const std::exception &e) {
            what = e.what();
            counter.counts["other"]++;
        }
        for (char c : what)
            digest = (digest ^ static_cast<unsigned char>(c)) * 1099511628211u;
        if (open != 0)
            std::abort();
    }
    for (const auto &entry : counter.counts)
        digest ^= std::hash<long>()(entry.second) * entry.first.size();
    return digest;
}

} // namespace

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
    for (int generation = 0; generation < 10; generation++) {
        std::vector<std::thread> threads;
        std::vector<uint64_t> digests(4);
        for (int i = 0; i < 4; i++)
            threads.emplace_back([i, rounds, &digests] { digests[i] = work(i, rounds); });
        for (auto &t : threads)
            t.join();
        auto failing = std::async(std::launch::async, [] {
            name = "async";
            long open = 0;
            return descend(3, open);
        });
        std::ostringstream line;
        try {
            failing.get();
        } catch (const Deep &e) {
            line << e.what() << " " << e.depth;
        }
        std::cout << "generation " << generation << ":" << std::hex;
        for (auto d : digests)
            std::cout << " " << d;
        std::cout << std::dec << " " << line.str() << std::endl;
    }
    std::cout << "thread_local objects: " << constructed << " made, " << destroyed << " destroyed" << std::endl;
    std::unique_ptr<int> never;
    try {
        never = std::make_unique<int>(std::stoi("not a number"));
    } catch (const std::exception &e) {
        std::cerr << e.what() << std::endl;
    }
    return 0;
}
