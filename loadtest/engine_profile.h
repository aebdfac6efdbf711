// Profile of an engine: how long steps of a model take on one worker. `engine_bench --profile FILE`
// measures it, and `baton simulate --profile FILE` plays fleets of such workers.
//
// A profile is one JSON object:
//
//   {"format": "baton-engine-profile", "version": 1,
//    "model": "SmolLM2-135M", "device": "cpu, 2 threads",   for readers
//    "kv_bytes_per_token": 23040,
//    "max_context": 8192,                   tokens of a sequence
//    "prefill": {"begin": [0, 2048], "tokens": [16, 512], "us": [[…, …], […, …]]},
//    "decode": {"sequences": [1, 16], "context": [64, 2048], "us": [[…, …], […, …]]}}
//
// - prefill.us[i][j]: a step that computes tokens[j] tokens of one prompt behind begin[i] tokens.
// - decode.us[i][j]: a step with one token of each of sequences[i] sequences, each behind
//   context[j] tokens.
//
// All times are microseconds. Other keys are ignored, so that a later version can add some.
//
// Thread safety: plain data; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

inline constexpr char kProfileFormat[] = "baton-engine-profile";
inline constexpr int32_t kProfileVersion = 1;

// Times on a grid of two axes.
struct TimeGrid {
  std::vector<int64_t> rows;            // rising
  std::vector<int64_t> columns;         // rising
  std::vector<std::vector<double>> us;  // us[row][column]

  // Between the grid's points, the time is interpolated along both axes. Outside, it continues the
  // line of the nearest two points, unless that line falls as the work grows: then it is level.
  double At(double row, double column) const;
};

struct EngineProfile {
  static constexpr size_t kMostPoints = 256;  // of an axis
  static constexpr int64_t kMostTokens = int64_t{1} << 24;
  static constexpr int64_t kMostSequences = int64_t{1} << 16;
  static constexpr double kMostUs = 3.6e9;
  static constexpr int64_t kMostKvBytes = int64_t{1} << 30;

  std::string model;
  std::string device;
  int64_t kv_bytes_per_token = 0;
  int64_t max_context = 0;
  TimeGrid prefill;  // rows: begin, columns: tokens
  TimeGrid decode;   // rows: sequences, columns: context
};

// An accelerator with 3 TB/s and 400 dense TFLOP/s, and a model of 8 billion parameters: 40 us a
// prompt token, plus 1.3 ns for each token before it; 6 ms to read the weights; 25 us a decoding
// sequence, plus 0.044 us a token of its context. It is computed, not measured.
EngineProfile ComputedProfile();

// Parses an untrusted profile. InvalidArgument names the field, the value and the limit.
absl::StatusOr<EngineProfile> ParseProfile(std::string_view text);
// The inverse: several lines, each with a newline.
std::string ProfileText(const EngineProfile& profile);

}  // namespace baton
