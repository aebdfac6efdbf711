#include "routing/prompt_takers.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

absl::Status NotTaken(const RoutingInput& input, const std::string& why) {
  const bool resumes = !input.fingerprint.empty();
  return resumes ? absl::UnavailableError(why) : absl::FailedPreconditionError(why);
}

std::string WhyNot(const RoutingInput& input, std::span<const WorkerRecord> decode_workers) {
  const auto knows = [](const WorkerRecord& worker) {
    return worker.CanDecode() && worker.report.chunks != nullptr;
  };
  const auto begin = decode_workers.begin(), end = decode_workers.end();
  if (std::none_of(begin, end, knows)) {
    return "no worker of this fleet supports prompt chunks; send the prompt without chunks, or use "
           "`baton run`";
  }
  const auto refuses_repair = std::find_if(begin, end, [&](const WorkerRecord& worker) {
    return knows(worker) && worker.report.chunks->refusal.empty();
  });
  if (refuses_repair != end) {
    return absl::StrCat("chunk_repair ", ChunkRepairName(*input.chunk_repair),
                        " is not supported by any worker of this fleet; use none");
  }
  const WorkerReport& first = std::find_if(begin, end, knows)->report;
  return absl::StrCat("worker ", first.id, ": ", first.chunks->refusal);
}

}  // namespace

absl::Status CheckTaken(const RoutingInput& input, std::span<const WorkerRecord> workers) {
  if (!input.chunk_repair) return absl::OkStatus();
  // In a large fleet, most often the first worker decides.
  const auto none = [&](const auto& is) {
    return std::none_of(workers.begin(), workers.end(), is);
  };
  const auto decodes = [](const WorkerRecord& worker) { return worker.CanDecode(); };
  if (none(decodes)) return absl::OkStatus();
  const auto takes = [&](const WorkerRecord& worker) {
    return worker.CanDecode() && TakesPrompt(input, worker);
  };
  if (none(takes)) return NotTaken(input, WhyNot(input, workers));
  if (input.placement != Placement::kRemote) return absl::OkStatus();
  if (!input.chunk_repair->RepairsNothing()) {
    return NotTaken(input, absl::StrCat("chunk_repair ", ChunkRepairName(*input.chunk_repair),
                                        " is not possible on a worker that prefills for another "
                                        "one; leave the placement unset"));
  }
  const auto hands_over = [&](const WorkerRecord& worker) { return HandsOver(input, worker); };
  const auto prefills = [&](const WorkerRecord& worker) {
    return worker.CanPrefill() && HandsOver(input, worker);
  };
  const auto one = std::find_if(workers.begin(), workers.end(), hands_over);
  const bool two = one != workers.end() && std::any_of(one + 1, workers.end(), hands_over);
  if (two && !none(prefills)) return absl::OkStatus();
  return NotTaken(input,
                  "no prefill worker of this fleet hands over the KV of prompt chunks; leave the "
                  "placement unset");
}

}  // namespace baton
