// Bounds on what a template may cost. Templates come with model files, so they are not trusted to
// end or to stay small.
//
// JinjaMeter counts one render against its limits; memory and time of a render are bounded by
// max_steps and max_work_bytes together. Both are totals: what is freed is not given back.
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
  int max_nesting = 100;           // of blocks and expressions, and height of an expression's tree
  int max_evaluation_depth = 250;  // of evaluations inside each other, macro calls included
  int max_value_depth = 32;        // of lists in lists
  int64_t max_steps = 4'000'000;   // expressions evaluated, items, names and parameters touched
  size_t max_sequence_items = 100'000;
  size_t max_work_bytes = size_t{256} << 20;  // of all values made during a render
  size_t max_output_bytes = size_t{16} << 20;
};

// What a small value, a variable or an attribute is charged besides its bytes: allocation, control
// block, header, a map's node.
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

  // Called before the bytes are made or read. A name that is looked up or compared counts, too.
  absl::Status AddBytes(size_t count) {
    if (count <= limits_.max_work_bytes - bytes_) {
      bytes_ += count;
      return absl::OkStatus();
    }
    return JinjaLimitReached("rendering worked through more than ", limits_.max_work_bytes,
                             " bytes, the limit");
  }

  // A stable sort of `count` keys, none longer than `longest_bytes`: n (log2 n + 1) comparisons.
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
