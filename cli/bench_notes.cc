#include "cli/bench_notes.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

struct FlagScope {
  const char* flag;
  bool applies;
  const char* scope;  // what the flag is for
};

std::vector<std::string> NotesOf(const CommandLine& command, const std::vector<FlagScope>& scopes) {
  std::vector<std::string> out;
  for (const FlagScope& scope : scopes) {
    if (!scope.applies && command.IsGiven(scope.flag)) {
      out.push_back(absl::StrCat(scope.flag, " has no effect: it is for ", scope.scope));
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> LoadNotes(const CommandLine& command, const NotedLoad& load) {
  const WorkloadKind workload = load.workload;
  const bool has_lengths = !HasTrace(workload);
  const bool has_prefixes = workload == WorkloadKind::kSharedPrefix;
  const bool is_chat = workload == WorkloadKind::kChat;
  const bool is_chunks = workload == WorkloadKind::kChunks;
  const bool is_swing = workload == WorkloadKind::kSwing;
  return NotesOf(
      command,
      {{"--rate", load.arrivals != ArrivalKind::kClosed, "arrivals with a rate"},
       {"--burstiness", load.arrivals == ArrivalKind::kGamma, "--arrivals gamma"},
       {"--max-rate", load.finds_rate, "--find-rate"},
       {"--prompt-tokens", has_lengths, "workloads without a trace"},
       {"--output-tokens", has_lengths, "workloads without a trace"},
       {"--length-spread", has_lengths, "workloads without a trace"},
       {"--prefixes", has_prefixes, "--workload shared-prefix"},
       {"--prefix-tokens", has_prefixes, "--workload shared-prefix"},
       {"--system-tokens", is_chat || is_chunks, "--workload chat and chunks"},
       {"--turns", is_chat, "--workload chat"},
       {"--think-s", is_chat, "--workload chat"},
       {"--chunk-pool", is_chunks, "--workload chunks"},
       {"--chunks", is_chunks, "--workload chunks"},
       {"--chunk-tokens", is_chunks, "--workload chunks"},
       {"--swing-ratio", is_swing, "--workload swing"},
       {"--swing-period-s", is_swing, "--workload swing"},
       {"--trace-block-tokens", workload == WorkloadKind::kMooncake, "--workload mooncake"}});
}

std::vector<std::string> TargetNotes(const CommandLine& command, const TargetAddress& target) {
  return NotesOf(command, {{"--connections", !target.is_http, "a grpc:// target"},
                           {"--model", target.is_http, "an http:// or https:// target"}});
}

void PrintNotes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "baton: %s\n", note.c_str());
}

}  // namespace baton
