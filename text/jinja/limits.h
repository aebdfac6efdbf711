// Resource limits of templates. A template comes with a model file, so it is not trusted to
// terminate or to use little memory.
//
// JinjaMeter counts one render's use against its limits. max_steps and max_work_bytes together
// bound the time and memory of a render. Both are totals: freeing memory does not lower them.
// Thread safety: JinjaLimits is plain data; a JinjaMeter belongs to one render.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "text/jinja/error.h"

namespace baton {

struct JinjaLimits {
  size_t max_template_bytes = 256 * 1024;
  int max_nesting = 100;           // nesting of blocks and expressions; height of an expression
  int max_evaluation_depth = 250;  // nested evaluations, including macro calls
  int max_value_depth = 32;        // lists inside lists
  int64_t max_steps = 4'000'000;   // evaluated expressions; items, names, parameters visited
  size_t max_sequence_items = 100'000;
  size_t max_work_bytes = size_t{256} << 20;  // bytes of values that a render makes or reads
  size_t max_output_bytes = size_t{16} << 20;
};

// Overhead in bytes that a small value, a variable or an attribute is charged besides its own
// bytes: allocation, control block, header, map node.
inline constexpr size_t kJinjaValueBytes = 128;

class JinjaMeter {
 public:
  explicit JinjaMeter(const JinjaLimits& limits) : limits_(limits) {}

  const JinjaLimits& limits() const { return limits_; }

  absl::Status AddSteps(int64_t count) {
    steps_ += count;
    if (steps_ <= limits_.max_steps) return absl::OkStatus();
    return JinjaLimitReached("rendering took ", steps_, " steps; the limit is ", limits_.max_steps);
  }

  // Call this before making or reading the bytes. Looking up or comparing a name counts too.
  absl::Status AddBytes(size_t count) {
    if (count <= limits_.max_work_bytes - bytes_) {
      bytes_ += count;
      return absl::OkStatus();
    }
    return JinjaLimitReached("rendering exceeds the limit of ", limits_.max_work_bytes,
                             " bytes made or read");
  }

  // Charges a stable sort of `count` keys of at most `longest_bytes`: n (log2 n + 1) comparisons.
  absl::Status AddSort(size_t count, size_t longest_bytes) {
    const size_t comparisons = count * static_cast<size_t>(std::bit_width(count));
    const absl::Status steps = AddSteps(static_cast<int64_t>(comparisons));
    return steps.ok() ? AddBytes(comparisons * longest_bytes) : steps;
  }

 private:
  JinjaLimits limits_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
};

}  // namespace baton
