#include "cli/ledger_table.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/counted_noun.h"
#include "common/printable_text.h"

namespace baton {
namespace {

constexpr int64_t kUsPerMs = 1000;
constexpr int64_t kUsPerSecond = 1'000'000;

std::optional<int64_t> Figure(const JobResult& result, std::string_view name) {
  for (const auto& [key, value] : result.ledger) {
    if (key == name) return value;
  }
  return std::nullopt;
}

int64_t FigureOrZero(const JobResult& result, std::string_view name) {
  return Figure(result, name).value_or(0);
}

std::string Duration(int64_t us) {
  if (us < kUsPerMs) return absl::StrFormat("%d us", us);
  if (us < kUsPerSecond) return absl::StrFormat("%.2f ms", static_cast<double>(us) / kUsPerMs);
  return absl::StrFormat("%.2f s", static_cast<double>(us) / kUsPerSecond);
}

std::string Bytes(int64_t bytes) {
  constexpr double kKiB = 1024;
  const auto value = static_cast<double>(bytes);
  if (value < kKiB) return absl::StrFormat("%d B", bytes);
  if (value < kKiB * kKiB) return absl::StrFormat("%.1f KiB", value / kKiB);
  return absl::StrFormat("%.1f MiB", value / kKiB / kKiB);
}

// Returns the rate per second of `count` in `us` microseconds.
double PerSecond(int64_t count, int64_t us) {
  return static_cast<double>(count) * kUsPerSecond / static_cast<double>(us);
}

std::string PrefillNote(const JobResult& result) {
  const int64_t chunks = FigureOrZero(result, "prefill_chunks");
  const int64_t computed = FigureOrZero(result, "computed_tokens");
  const int64_t us = FigureOrZero(result, "prefill_us");
  std::string note =
      absl::StrCat(CountedNoun(chunks, "chunk"), ", ", CountedNoun(computed, "token"), " computed");
  if (us > 0) absl::StrAppendFormat(&note, ", %.0f tokens/s", PerSecond(computed, us));
  if (!result.prefill_worker.empty())
    absl::StrAppend(&note, ", on ", Printable(result.prefill_worker));
  return note;
}

std::string TransferNote(const JobResult& result) {
  const int64_t bytes = FigureOrZero(result, "kv_bytes");
  const int64_t us = FigureOrZero(result, "kv_transfer_us");
  if (us <= 0) return Bytes(bytes);
  constexpr double kBytesPerUsInGigabytes = 1000.0;
  std::string note = absl::StrFormat(
      "%s, %.2f GB/s", Bytes(bytes),
      static_cast<double>(bytes) / static_cast<double>(us) / kBytesPerUsInGigabytes);
  if (const int64_t exposed_us = FigureOrZero(result, "kv_exposed_us"); exposed_us > 0) {
    absl::StrAppend(&note, ", ", Duration(exposed_us), " after the prompt");
  }
  return note;
}

std::string CachedNote(const JobResult& result) {
  std::string note =
      absl::StrCat(result.prompt_tokens, " tokens, ", result.cached_tokens, " cached");
  const int64_t decode = FigureOrZero(result, "decode_cached_tokens");
  const int64_t prefill = FigureOrZero(result, "prefill_cached_tokens");
  if (decode > 0 || prefill > 0) {
    absl::StrAppend(&note, " (decode worker ", decode, ", prefill worker ", prefill, ")");
  }
  return note;
}

// Returns a line such as "8 prompt chunks, 6 cached; lookup 80 us, compute 210.00 ms, place 40 us".
// Leaves out work that the request did not need.
std::string ChunkLine(const JobResult& result, int64_t chunks) {
  std::string line = absl::StrCat(CountedNoun(chunks, "prompt chunk"), ", ",
                                  FigureOrZero(result, "chunk_hits"), " cached");
  if (const int64_t tokens = FigureOrZero(result, "chunk_repaired_tokens"); tokens > 0) {
    absl::StrAppend(&line, ", ", tokens, " tokens repaired");
  }
  if (const int64_t bytes = FigureOrZero(result, "chunk_pulled_bytes"); bytes > 0) {
    absl::StrAppend(&line, ", ", Bytes(bytes), " pulled");
  }
  const char* separator = "; ";
  for (const char* stage : {"lookup", "compute", "place", "repair", "wake"}) {
    const int64_t us = FigureOrZero(result, absl::StrCat("chunk_", stage, "_us"));
    if (us == 0) continue;
    absl::StrAppend(&line, separator, stage, " ", Duration(us));
    separator = ", ";
  }
  return line;
}

std::string NoteFor(std::string_view name, const JobResult& result) {
  if (name == "tokenize_us") return CachedNote(result);
  if (name == "route_us" && !result.decode_worker.empty()) {
    return absl::StrCat("to ", Printable(result.decode_worker));
  }
  if (name == "pull_us") {
    const int64_t tokens = FigureOrZero(result, "pulled_tokens");
    return tokens == 0 ? "nothing came"
                       : absl::StrCat(CountedNoun(tokens, "token"), " from ", result.pull_source);
  }
  if (name == "prefill_us") return PrefillNote(result);
  if (name == "kv_transfer_us") return TransferNote(result);
  if (name == "inter_token_us" && FigureOrZero(result, "inter_token_us") > 0) {
    return absl::StrFormat("%.1f tokens/s", PerSecond(1, FigureOrZero(result, "inter_token_us")));
  }
  if (name == "total_us")
    return absl::StrCat(CountedNoun(result.completion_tokens, "token"), " generated");
  return "";
}

}  // namespace

std::string LedgerTable(const JobResult& result) {
  struct Row {
    const char* name;
    const char* title;
  };
  constexpr Row kRows[] = {
      {"tokenize_us", "tokenise"},
      {"route_us", "route"},
      {"pull_us", "pull"},
      {"queue_us", "queue"},
      {"prefill_us", "prefill"},
      {"kv_transfer_us", "KV transfer"},
      {"admit_us", "admit"},
      {"first_token_us", "first token"},
      {"inter_token_us", "inter-token"},
      {"total_us", "total"},
  };
  std::string out = "latency ledger\n";
  for (const Row& row : kRows) {
    const std::optional<int64_t> us = Figure(result, row.name);
    if (!us || (*us == 0 && std::string_view(row.name) == "pull_us")) continue;
    const std::string note = NoteFor(row.name, result);
    absl::StrAppendFormat(&out, "  %-12s %10s%s%s\n", row.title, Duration(*us),
                          note.empty() ? "" : "   ", note);
  }
  if (const int64_t chunks = FigureOrZero(result, "chunks"); chunks > 0) {
    absl::StrAppend(&out, "  ", ChunkLine(result, chunks), "\n");
  }
  if (const int64_t resumes = FigureOrZero(result, "resumes"); resumes > 0) {
    absl::StrAppend(&out, "  resumed ", resumes, " times on another decode worker\n");
  }
  if (const int64_t preemptions = FigureOrZero(result, "preemptions"); preemptions > 0) {
    absl::StrAppend(&out, "  preempted ", preemptions, " times\n");
  }
  return out;
}

}  // namespace baton
