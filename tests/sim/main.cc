// Command-line program cluster_sim. It runs seeds of the cluster simulation, the exhaustive sweep,
// or the mutants.
//
//   cluster_sim --first-seed S --seeds N [--chunks] [--both] [--mutant NAME] [--verbose]
//               [--fingerprints]
//   cluster_sim --sweep [--chunks] every single fault at every message of the small scenario
//   cluster_sim --check-mutants    every mutant is caught within its number of seeds
//   cluster_sim --list-mutants
//
// Exit code 1 if a rule was violated or a mutant survived. With the same commit, a seed gives the
// same run on every machine.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/command_line.h"
#include "tests/sim/cluster.h"

namespace baton {
namespace {

struct Options {
  uint64_t first_seed = 1;
  int64_t seeds = 1000;
  std::string mutant;
  bool verbose = false;
  bool twice = false;
  bool fingerprints = false;
  bool chunks = false;
  bool both = false;

  Traffic traffic() const { return chunks ? Traffic::kChunked : Traffic::kMixed; }
  Fleets fleets() const { return both ? Fleets::kBoth : Fleets::kMixed; }
};

// The scenario that runs now, for the report of a failed CHECK in production code.
struct Playing {
  uint64_t seed = 0;
  std::string name;
  const SimCluster* cluster = nullptr;
  bool whole_story = false;  // also events of other requests
  int oracle_pipe = -1;      // gets the name of the oracle that reports a violation
};
Playing playing;

void Report(Violation violation) {
  std::cout << playing.name << "seed " << playing.seed << ": oracle " << violation.oracle << ": "
            << violation.what << "\n";
  if (playing.oracle_pipe >= 0) {
    CHECK_EQ(write(playing.oracle_pipe, violation.oracle.data(), violation.oracle.size()),
             static_cast<ssize_t>(violation.oracle.size()));
  }
  if (playing.whole_story) violation.request = 0;
  if (playing.cluster != nullptr) std::cout << playing.cluster->Story(violation);
  std::cout << std::flush;
}

// Uses the attribute of glog's own function type. clang does not accept [[noreturn]] for it.
void ReportFailedCheck() __attribute__((noreturn));
void ReportFailedCheck() {
  Report({"check", "a CHECK failed in production code (above)", 0, -1});
  _exit(1);
}

struct Totals {
  int64_t runs = 0;
  int64_t events = 0;
  int64_t requests = 0;
  int64_t succeeded = 0;
  uint64_t fingerprint = 0;  // fingerprint of the last run
  ChunkCoverage chunks;
};

// Returns false if a rule was violated, and reports it.
bool Play(const Scenario& scenario, uint64_t seed, Mutant mutant, Totals& totals) {
  SimCluster cluster(scenario, seed, mutant);
  playing.seed = seed;
  playing.cluster = &cluster;
  const std::optional<Violation> violation = cluster.Run();
  if (violation) Report(*violation);
  playing.cluster = nullptr;
  ++totals.runs;
  totals.events += cluster.events();
  totals.requests += static_cast<int64_t>(scenario.requests.size());
  totals.fingerprint = cluster.fingerprint();
  totals.succeeded += cluster.requests_succeeded();
  totals.chunks.Add(cluster.chunk_coverage());
  return !violation.has_value();
}

// Returns true if two runs of a seed have the same fingerprint.
bool PlayTwice(const Scenario& scenario, uint64_t seed) {
  uint64_t fingerprints[2];
  for (uint64_t& fingerprint : fingerprints) {
    SimCluster cluster(scenario, seed, Mutant::kNone);
    cluster.Run();
    fingerprint = cluster.fingerprint();
  }
  if (fingerprints[0] == fingerprints[1]) return true;
  std::cout << "seed " << seed << ": two runs differ\n";
  return false;
}

int PlaySeeds(const Options& options, Mutant mutant) {
  const auto begin = std::chrono::steady_clock::now();
  Totals totals;
  for (int64_t i = 0; i < options.seeds; ++i) {
    const uint64_t seed = options.first_seed + static_cast<uint64_t>(i);
    const Scenario scenario = DrawScenario(seed, options.traffic(), options.fleets());
    if (options.verbose) std::cout << "seed " << seed << std::endl;
    if (!Play(scenario, seed, mutant, totals)) return 1;
    if (options.fingerprints) {
      std::printf("seed %llu: %016llx\n", static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(totals.fingerprint));
    }
    if (options.twice && !PlayTwice(scenario, seed)) return 1;
  }
  const ChunkCoverage& chunks = totals.chunks;
  std::cout << "chunked prompts: " << chunks.finished << " answers, " << chunks.handed_over
            << " handed over, " << chunks.preempted << " preempted; " << chunks.hits
            << " chunk hits, " << chunks.repaired_tokens << " repaired tokens, "
            << chunks.pulled_tokens << " pulled tokens, " << chunks.bypasses << " bypasses, "
            << chunks.evictions << " evictions, " << chunks.wakes << " wakes, " << chunks.damaged
            << " damaged\n";
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%lld seeds, %lld of %lld requests succeeded, %lld events; %.0f seeds/s\n",
              static_cast<long long>(totals.runs), static_cast<long long>(totals.succeeded),
              static_cast<long long>(totals.requests), static_cast<long long>(totals.events),
              static_cast<double>(totals.runs) / took.count());
  return 0;
}

// Returns false if a rule was violated. `seed` affects only the latencies.
bool SweepMessage(int64_t message, uint64_t seed, Traffic traffic, Totals& totals) {
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    for (const int32_t node : {Fault::kSender, Fault::kReceiver}) {
      Fault fault{.kind = static_cast<FaultKind>(kind), .at_message = message, .node = node};
      if (fault.kind <= FaultKind::kTruncate && node == Fault::kReceiver) continue;
      fault.duration_us = 1'500'000;
      fault.random = MixBits(static_cast<uint64_t>(message));
      Scenario scenario = SmallScenario(traffic);
      scenario.faults.push_back(fault);
      playing.name = std::string(FaultName(fault.kind)) + " at message " + std::to_string(message) +
                     (node == Fault::kSender ? ", sender, " : ", receiver, ");
      if (!Play(scenario, seed, Mutant::kNone, totals)) return false;
    }
  }
  return true;
}

int Sweep(Traffic traffic) {
  constexpr uint64_t kLatencySeeds = 5;
  playing.whole_story = true;
  Totals totals;
  int64_t messages = 0;
  for (uint64_t seed = 1; seed <= kLatencySeeds; ++seed) {
    const Scenario calm = SmallScenario(traffic);
    SimCluster counting(calm, seed, Mutant::kNone);
    counting.Run();
    messages += counting.scenario_messages();
    for (int64_t message = 0; message < counting.scenario_messages(); ++message) {
      if (!SweepMessage(message, seed, traffic, totals)) return 1;
    }
  }
  std::printf("%lld messages, %lld runs with one fault each, %lld of %lld requests succeeded\n",
              static_cast<long long>(messages), static_cast<long long>(totals.runs),
              static_cast<long long>(totals.succeeded), static_cast<long long>(totals.requests));
  return 0;
}

// Returns the oracle that caught the mutant, or how the process ended if no oracle reported. Empty:
// the mutant survived. Runs in a separate process, because a mutant may break its process.
std::string CaughtBy(const MutantInfo& info) {
  std::cout << std::flush;
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  const pid_t child = fork();
  CHECK_GE(child, 0);
  if (child == 0) {
    close(ends[0]);
    Options options;
    options.seeds = info.seeds;
    playing.name = std::string(info.name) + ", ";
    playing.oracle_pipe = ends[1];
    _exit(PlaySeeds(options, info.mutant));
  }
  close(ends[1]);
  std::string oracle;
  char buffer[64];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    oracle.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return absl::StrCat("signal ", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0 && oracle.empty()) {
    return absl::StrCat("exit code ", WEXITSTATUS(status));
  }
  return oracle;
}

// Returns 0 if every mutant's own oracle caught it. A crash or another oracle does not count.
int CheckMutants() {
  size_t caught = 0;
  for (const MutantInfo& info : Mutants()) {
    const std::string by = CaughtBy(info);
    if (by == info.oracle) {
      ++caught;
      std::cout << "mutant " << info.name << " was caught by oracle " << by << "\n";
    } else if (by.empty()) {
      std::cout << "mutant " << info.name << " (" << info.what << ") survived " << info.seeds
                << " seeds\n";
    } else {
      std::cout << "mutant " << info.name << " (" << info.what << ") was ended by " << by
                << ", but oracle " << info.oracle << " must catch it\n";
    }
  }
  std::cout << caught << " of " << Mutants().size() << " mutants were caught\n";
  return caught == Mutants().size() ? 0 : 1;
}

int ListMutants() {
  for (const MutantInfo& info : Mutants()) {
    std::cout << info.name << ": " << info.what << " (caught within " << info.seeds << " seeds)\n";
  }
  return 0;
}

int Main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::GLOG_ERROR;  // damaged host memory is no news here
  google::InstallFailureFunction(&ReportFailedCheck);
  Options options;
  bool list = false;
  bool sweep = false;
  bool check_mutants = false;
  CommandLine line("Deterministic simulation of a cluster, with faults", "cluster_sim");
  line.Add("--first-seed", &options.first_seed, "The first seed.");
  line.Add("--seeds", &options.seeds, "Number of seeds.");
  line.Add("--mutant", &options.mutant, "A known failure to build in; see --list-mutants.");
  line.AddFlag("--list-mutants", &list, "List the mutants and exit.");
  line.AddFlag(
      "--verbose", &options.verbose,
      "Print every seed before its run. After a violation, print the events of all requests.");
  line.AddFlag("--twice", &options.twice,
               "Run every seed two more times. Both runs must be equal.");
  line.AddFlag("--fingerprints", &options.fingerprints,
               "Print the fingerprint of every run, to compare two builds.");
  line.AddFlag("--chunks", &options.chunks,
               "Give every scenario prompt chunks, not only one in four. With --sweep: the small "
               "scenario too.");
  line.AddFlag("--both", &options.both,
               "Give all workers of every scenario both roles and small pools, not only of one in "
               "ten.");
  line.AddFlag("--sweep", &sweep,
               "Run the small scenario with one fault of each kind at each of its messages.");
  line.AddFlag("--check-mutants", &check_mutants,
               "Check that every mutant is caught by its oracle.");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  if (list) return ListMutants();
  if (sweep) return Sweep(options.traffic());
  if (check_mutants) return CheckMutants();
  const std::optional<Mutant> mutant =
      options.mutant.empty() ? Mutant::kNone : MutantNamed(options.mutant);
  if (!mutant) {
    std::cerr << "no mutant is named \"" << options.mutant << "\"; see --list-mutants\n";
    return 2;
  }
  playing.whole_story = options.verbose;
  return PlaySeeds(options, *mutant);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
