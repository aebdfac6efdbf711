// Benchmark of the global index under the events of a fleet. A trace of requests runs through mock
// workers with LRU caches. Stored, removed and match operations are mixed as they occur.
//
// Figures:
//   block_ops_per_s         blocks stored, removed and asked for by matches, per second. A match
//                           counts all its blocks, although it stops at the first block that no
//                           worker holds.
//   found_block_ops_per_s   the same time, but a match counts only the blocks that it found
//   *_per_cpu_s             the same by the thread's CPU time, for a machine with other work
//   queued_*                as the others, but the next operation is known early, as with a queue;
//                           PrefetchTable is called for it in advance
//   match_*                 Match: returns numbers of holders
//   route_match_*           MatchWorkers, which a router calls for each request: returns a sorted
//                           list of workers in its own memory
//   hash_ns_per_unit        computing hashes; the other figures get the hashes as input
//
// The clock runs from the start of the first operation to the end of the last. There is no queue to
// drain, and except for the queued_* figures the index learns of an operation only when it is
// due. The index allocates its memory before the clock runs.
//
// The limit is memory access. A stored or removed block needs its line of the table and a quarter
// of a line of hashes. A match needs about three lines, and a quarter of a line per block that it
// finds. The same run measures `random_lines_per_s`: independent reads of random cache lines in as
// much memory as the index uses, the fastest rate at which cache misses can overlap.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <thread>

#include "absl/container/flat_hash_set.h"
#include "bench/cache_trace.h"
#include "bench/figure_list.h"
#include "bench/index_operations.h"
#include "bench/literal_fleet.h"
#include "bench/random_access.h"
#include "cache/index/global_index.h"
#include "common/check.h"
#include "common/command_line.h"
#include "kernels/cpu/usable_processors.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = IndexOperation::Kind;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

double Quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<int64_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

struct BenchOptions {
  std::string trace;
  std::string dump_operations;
  size_t synthetic = 0;
  int32_t workers = 16;
  uint64_t seed = 1;
  int32_t laps = 0;
  int runs = 9;
};

GlobalIndexOptions IndexOptions(const BenchOptions& options) {
  // The capacity of all workers' pools. A router knows it from the workers' registrations.
  const size_t pools = static_cast<size_t>(options.workers) * FleetReplay::Options{}.capacity;
  return {.max_blocks = pools + 4096, .expected_blocks = pools, .key_seeds = {}};
}

class Replay {
 public:
  Replay(const IndexWorkload& workload, GlobalIndex& index) : workload_(workload), index_(index) {}

  void Event(const IndexOperation& op) {
    const auto hashes = workload_.HashesOf(op);
    if (op.kind == Kind::kStored) {
      std::optional<Hash128> parent;
      if (op.parent != IndexOperation::kNoParent) parent = workload_.hashes[op.parent];
      index_.Stored(IndexedWorker(op.worker), CacheTier::kDevice, parent, hashes);
    } else {
      index_.Removed(IndexedWorker(op.worker), CacheTier::kDevice, hashes);
    }
  }
  void Match(const IndexOperation& op) { index_.Match(workload_.HashesOf(op), match_); }
  std::vector<HeldPrefix> RouteMatch(const IndexOperation& op) const {
    return index_.MatchWorkers(workload_.HashesOf(op));
  }
  void Do(const IndexOperation& op) { op.kind == Kind::kMatch ? Match(op) : Event(op); }
  // Runs all operations in order. Prefetches each operation's own memory a little earlier, because
  // in production it is warm from receiving or hashing. This tells the index nothing in advance.
  void All(bool queued) {
    constexpr size_t kAhead = 8;
    const std::span<const IndexOperation> operations = workload_.operations;
    for (size_t i = 0; i < operations.size(); ++i) {
      if (i + kAhead < operations.size()) Fetch(operations[i + kAhead]);
      if (queued && i + 1 < operations.size()) {
        index_.PrefetchTable(workload_.HashesOf(operations[i + 1]));
      }
      Do(operations[i]);
    }
  }
  const PrefixMatch& match() const { return match_; }

 private:
  void Fetch(const IndexOperation& op) const {
    const auto hashes = workload_.HashesOf(op);
    constexpr size_t kHashesPerLine = 4;
    for (size_t i = 0; i < hashes.size(); i += kHashesPerLine) __builtin_prefetch(&hashes[i]);
  }

  const IndexWorkload& workload_;
  GlobalIndex& index_;
  PrefixMatch match_;
};

// Prints figures as a table.
struct Figures {
  FigureList list;

  void Add(const char* name, double value, const char* unit, std::optional<double> limit = {}) {
    const nlohmann::json& figure = list.Add(name, value, unit, limit);
    std::printf("%-32s %14.4g %-12s", name, value, unit);
    if (limit) std::printf(" %12.4g", *limit);
    if (!figure["ratio"].is_null()) std::printf(" %9.3f", figure["ratio"].get<double>());
    std::printf("\n");
  }
};

struct Shape {
  double memberships, blocks, bytes;
};

// Block operations per second: medians of several runs after a warm-up run. Each run has a new
// index.
struct Rates {
  double by_clock, by_cpu_time;
};
Rates Throughput(const IndexWorkload& workload, const BenchOptions& options, bool queued,
                 Shape* shape) {
  std::vector<double> by_clock;
  std::vector<double> by_cpu_time;
  const auto blocks = static_cast<double>(workload.blocks());
  for (int run = -1; run < options.runs; ++run) {
    GlobalIndex index(IndexOptions(options));
    Replay replay(workload, index);
    const auto start = Clock::now();
    const double cpu_start = ThreadCpuSeconds();
    replay.All(queued);
    const double cpu_s = ThreadCpuSeconds() - cpu_start;
    const double s = Seconds(start);
    CHECK_EQ(index.refused(), 0u);
    *shape = {static_cast<double>(index.memberships()), static_cast<double>(index.blocks()),
              static_cast<double>(index.bytes())};
    if (run < 0) continue;
    by_clock.push_back(blocks / s);
    by_cpu_time.push_back(blocks / cpu_s);
  }
  return {Quantile(by_clock, 0.5), Quantile(by_cpu_time, 0.5)};
}

// Counts the blocks that matches find: those before the first block that no worker holds.
uint64_t FoundBlocks(const IndexWorkload& workload, const BenchOptions& options) {
  GlobalIndex index(IndexOptions(options));
  Replay replay(workload, index);
  uint64_t found = 0;
  for (const IndexOperation& op : workload.operations) {
    replay.Do(op);
    if (op.kind != Kind::kMatch) continue;
    int32_t most = 0;
    replay.match().ForEach([&](HolderId, int32_t units) { most = std::max(most, units); });
    found += static_cast<uint64_t>(most);
  }
  return found;
}

// Seconds of each MatchWorkers call, run in order among the events.
std::vector<double> RouteMatches(const IndexWorkload& workload, const BenchOptions& options) {
  GlobalIndex index(IndexOptions(options));
  Replay replay(workload, index);
  std::vector<double> seconds;
  volatile uint64_t touched = 0;
  for (const IndexOperation& op : workload.operations) {
    for (const Hash128& hash : workload.HashesOf(op)) touched = touched ^ hash.low;
    if (op.kind != Kind::kMatch) {
      replay.Event(op);
      continue;
    }
    const auto start = Clock::now();
    const std::vector<HeldPrefix> holders = replay.RouteMatch(op);
    seconds.push_back(Seconds(start));
    touched = touched + holders.size();
  }
  return seconds;
}

// Times every operation separately. Its hashes are in the CPU cache, as after computing or
// receiving them. Subtracts the time of reading the clock (`clock_us`).
void Latencies(const IndexWorkload& workload, const BenchOptions& options, double line_s,
               Figures& figures) {
  GlobalIndex index(IndexOptions(options));
  Replay replay(workload, index);
  std::vector<double> match_s;
  double kind_s[3] = {};
  std::vector<double> clock_s;
  for (int i = 0; i < 1000; ++i) clock_s.push_back(Seconds(Clock::now()));
  const double clock = Quantile(clock_s, 0.5);
  volatile uint64_t touched = 0;
  for (const IndexOperation& op : workload.operations) {
    for (const Hash128& hash : workload.HashesOf(op)) touched = touched ^ hash.low;
    const auto start = Clock::now();
    replay.Do(op);
    const double seconds = std::max(0.0, Seconds(start) - clock);
    kind_s[static_cast<int>(op.kind)] += seconds;
    if (op.kind == Kind::kMatch) match_s.push_back(seconds);
  }
  // Most matches end at the first line of the table that is in no cache. A longer one waits at
  // least for a line of the table, a run's head and the run's hashes, one after the other.
  figures.Add("match_p50_us", Quantile(match_s, 0.5) * 1e6, "us", line_s * 1e6);
  figures.Add("match_p99_us", Quantile(match_s, 0.99) * 1e6, "us", 3 * line_s * 1e6);
  std::vector<double> route_s = RouteMatches(workload, options);
  for (double& seconds : route_s) seconds = std::max(0.0, seconds - clock);
  figures.Add("route_match_p50_us", Quantile(route_s, 0.5) * 1e6, "us");
  figures.Add("route_match_p99_us", Quantile(route_s, 0.99) * 1e6, "us");
  figures.Add("clock_us", clock * 1e6, "us");
  const char* const names[] = {"matched_ns_per_block", "stored_ns_per_block",
                               "removed_ns_per_block"};
  for (int kind = 0; kind < 3; ++kind) {
    const auto blocks = static_cast<double>(std::max<uint64_t>(1, workload.blocks_of[kind]));
    figures.Add(names[kind], kind_s[kind] / blocks * 1e9, "ns");
  }
}

void Check(const IndexWorkload& workload, const BenchOptions& options, Figures& figures) {
  GlobalIndex index(IndexOptions(options));
  Replay replay(workload, index);
  LiteralFleet model(workload, static_cast<uint32_t>(options.workers));
  const uint64_t every = std::max<uint64_t>(1, workload.count_of[0] / 5000);
  uint64_t matches = 0;
  int64_t compared = 0;
  int64_t wrong = 0;
  for (const IndexOperation& op : workload.operations) {
    if (op.kind != Kind::kMatch) {
      replay.Event(op);
      model.Event(op);
    } else if (matches++ % every == 0) {
      replay.Match(op);
      ++compared;
      if (!model.Agrees(op, index, replay.match())) ++wrong;
    }
  }
  figures.Add("compared_answers", static_cast<double>(compared), "answers");
  figures.Add("wrong_answers", static_cast<double>(wrong), "answers", 0);
}

// One thread applies all events while another thread repeats all matches.
void Concurrent(const IndexWorkload& workload, const BenchOptions& options, Figures& figures) {
  GlobalIndex index(IndexOptions(options));
  std::vector<IndexOperation> matches;
  std::vector<IndexOperation> events;
  for (const IndexOperation& op : workload.operations) {
    (op.kind == Kind::kMatch ? matches : events).push_back(op);
  }
  std::atomic<bool> begun{false};
  std::atomic<bool> done{false};
  std::vector<double> match_s;
  match_s.reserve(size_t{1} << 24);
  double read_blocks = 0;
  double read_s = 0;
  std::thread reader([&] {
    Replay replay(workload, index);
    begun = true;
    const auto start = Clock::now();
    for (size_t i = 0; !done; i = (i + 1) % matches.size()) {
      const auto from = Clock::now();
      replay.Match(matches[i]);
      if (match_s.size() < match_s.capacity()) match_s.push_back(Seconds(from));
      read_blocks += matches[i].count;
    }
    read_s = Seconds(start);
  });
  while (!begun) std::this_thread::yield();
  Replay replay(workload, index);
  const auto start = Clock::now();
  for (const IndexOperation& op : events) replay.Event(op);
  const double write_s = Seconds(start);
  done = true;
  reader.join();
  const auto written = static_cast<double>(workload.blocks_of[1] + workload.blocks_of[2]);
  figures.Add("concurrent_write_block_ops_per_s", written / write_s, "1/s");
  figures.Add("concurrent_read_block_ops_per_s", read_blocks / read_s, "1/s");
  figures.Add("concurrent_match_p50_us", Quantile(match_s, 0.5) * 1e6, "us");
  figures.Add("concurrent_match_p99_us", Quantile(match_s, 0.99) * 1e6, "us");
}

double HashNsPerUnit() {
  std::vector<CacheUnit> units(kUnitsPerHash * 512);
  std::iota(units.begin(), units.end(), 1);
  std::vector<double> seconds;
  for (int i = 0; i < 200; ++i) {
    const auto start = Clock::now();
    const auto hashes = ChainedHashes(CacheNamespace(static_cast<uint64_t>(i)), units);
    seconds.push_back(Seconds(start) / static_cast<double>(hashes.size()));
  }
  return Quantile(seconds, 0.5) * 1e9;
}

int Run(const BenchOptions& options) {
  std::vector<TraceRequest> trace;
  if (options.trace.empty()) {
    trace = MakeTrace(options.synthetic, options.seed);
  } else {
    auto read = ReadTrace(options.trace);
    if (!read.ok()) {
      std::cerr << read.status() << "\n";
      return 2;
    }
    trace = std::move(*read);
  }
  absl::flat_hash_set<uint64_t> distinct;
  for (const TraceRequest& request : trace) distinct.insert(request.begin(), request.end());
  FleetReplay::Options fleet{.workers = static_cast<uint32_t>(options.workers),
                             .laps = static_cast<uint32_t>(options.laps),
                             .seed = options.seed};
  if (fleet.laps == 0) {
    fleet.laps = static_cast<uint32_t>(2 * fleet.workers * fleet.capacity / distinct.size() + 1);
  }
  const IndexWorkload workload = FleetReplay(fleet).Run(trace);
  Figures figures;
  figures.list.AddCondition(
      "One process makes the operations and runs the index. The concurrent_* figures have a writer "
      "thread and a reader thread on " +
      std::to_string(UsableProcessors()) + " processors.");
  std::printf(
      "%zu requests, %zu distinct blocks, %u laps, %u workers with LRU caches of %zu blocks; each "
      "request goes where its uncached blocks and those waiting there are fewest; events %zu "
      "requests later\nblocks: %.4g matched over, %.4g stored, %.4g removed, in %.4g, %.4g, %.4g "
      "calls\n\n%-32s %14s %-12s %12s %9s\n",
      trace.size(), distinct.size(), fleet.laps, fleet.workers, fleet.capacity, fleet.delay,
      static_cast<double>(workload.blocks_of[0]), static_cast<double>(workload.blocks_of[1]),
      static_cast<double>(workload.blocks_of[2]), static_cast<double>(workload.count_of[0]),
      static_cast<double>(workload.count_of[1]), static_cast<double>(workload.count_of[2]),
      "figure", "value", "unit", "limit", "ratio");

  if (!options.dump_operations.empty()) {
    if (const absl::Status written = WriteOperations(workload, options.dump_operations);
        !written.ok()) {
      std::cerr << written << "\n";
      return 2;
    }
  }

  Shape shape{};
  const Rates rates = Throughput(workload, options, /*queued=*/false, &shape);
  const Rates queued = Throughput(workload, options, /*queued=*/true, &shape);
  const RandomAccess memory = MeasureRandomAccess(static_cast<size_t>(shape.bytes), options.seed);
  // Lines per block operation: a quarter line of hashes for every block stored, removed or found, a
  // table line for every stored or removed block, three lines for every match.
  const auto blocks = static_cast<double>(workload.blocks());
  const uint64_t found = FoundBlocks(workload, options);
  const double lines =
      (1.25 * static_cast<double>(workload.blocks_of[1] + workload.blocks_of[2]) +
       0.25 * static_cast<double>(found) + 3.0 * static_cast<double>(workload.count_of[0])) /
      blocks;
  figures.Add("block_ops_per_s", rates.by_clock, "1/s", memory.lines_per_s / lines);
  const double found_share =
      static_cast<double>(found + workload.blocks_of[1] + workload.blocks_of[2]) / blocks;
  figures.Add("found_block_ops_per_s", rates.by_clock * found_share, "1/s",
              memory.lines_per_s / lines * found_share);
  figures.Add("block_ops_per_cpu_s", rates.by_cpu_time, "1/s", memory.lines_per_cpu_s / lines);
  figures.Add("found_block_ops_per_cpu_s", rates.by_cpu_time * found_share, "1/s",
              memory.lines_per_cpu_s / lines * found_share);
  figures.Add("queued_block_ops_per_s", queued.by_clock, "1/s", memory.lines_per_s / lines);
  figures.Add("queued_found_block_ops_per_s", queued.by_clock * found_share, "1/s",
              memory.lines_per_s / lines * found_share);
  figures.Add("lines_per_block_op", lines, "lines");
  figures.Add("found_share_of_matched_blocks",
              static_cast<double>(found) / static_cast<double>(workload.blocks_of[0]), "share");
  figures.Add("random_lines_per_s", memory.lines_per_s, "1/s");
  figures.Add("random_line_latency_us", memory.line_s * 1e6, "us");
  Latencies(workload, options, memory.line_s, figures);
  // Limit: 24 bytes for each block, its hash and its word in the table.
  figures.Add("bytes_per_membership", shape.bytes / shape.memberships, "bytes",
              24 * shape.blocks / shape.memberships);
  figures.Add("memberships", shape.memberships, "blocks");
  figures.Add("distinct_blocks", shape.blocks, "blocks");
  Check(workload, options, figures);
  Concurrent(workload, options, figures);
  figures.Add("hash_ns_per_unit", HashNsPerUnit(), "ns");
  figures.list.Print("index", static_cast<int64_t>(options.seed));
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line(
      "Benchmarks the global index under a fleet's events. A trace has one JSON object per line, "
      "as published with Mooncake: {\"timestamp\": ms, \"input_length\", \"output_length\", "
      "\"hash_ids\": [..]}. One block of the trace is one unit here.");
  baton::BenchOptions options;
  const baton::CommandLine::Option trace =
      line.Add("--trace", &options.trace, "Trace to replay").Value("FILE");
  line.Add("--synthetic", &options.synthetic,
           "Number of requests of a synthetic trace that resembles Mooncake's conversation trace, "
           "drawn from --seed. Default without --trace: 12000")
      .Excludes(trace)
      .Range(1, 10'000'000);
  line.Add("--workers", &options.workers, "Mock workers").Range(1, 4096);
  line.Add("--seed", &options.seed, "Seed of hashes and of a synthetic trace");
  line.Add("--laps", &options.laps,
           "How often to play the trace, each time with other blocks. Default: until the workers' "
           "caches have been filled twice")
      .Range(1, 10'000);
  line.Add("--dump-operations", &options.dump_operations,
           "Write the operations to this file, one JSON object per line, for a peer to replay")
      .Value("FILE");
  line.Add("--runs", &options.runs, "Runs; block_ops_per_s is their median").Range(1, 1000);
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  if (options.synthetic == 0) options.synthetic = 12'000;
  return baton::Run(options);
}
