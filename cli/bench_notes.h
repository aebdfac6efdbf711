// Notes about flags of `baton bench` and `baton simulate` that were given but have no effect.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <vector>

#include "common/command_line.h"
#include "loadtest/arrivals.h"
#include "loadtest/target_address.h"
#include "loadtest/workload.h"

namespace baton {

struct NotedLoad {
  ArrivalKind arrivals = ArrivalKind::kPoisson;
  WorkloadKind workload = WorkloadKind::kSynthetic;
  bool finds_rate = false;
};

// Each returns one sentence for each flag on `command`'s line that this load or this target
// ignores.
std::vector<std::string> LoadNotes(const CommandLine& command, const NotedLoad& load);
std::vector<std::string> TargetNotes(const CommandLine& command, const TargetAddress& target);

// Prints the notes to standard error, one a line.
void PrintNotes(const std::vector<std::string>& notes);

}  // namespace baton
