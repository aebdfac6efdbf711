#include "loadtest/step_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton {

StepTimes::StepTimes(const EngineProfile& profile) : profile_(profile) {
  const TimeGrid& prefill = profile_.prefill;
  const double first_us = prefill.At(static_cast<double>(prefill.rows.front()),
                                     static_cast<double>(prefill.columns.front()));
  const double zero_us = prefill.At(static_cast<double>(prefill.rows.front()), 0);
  start_us_ = std::clamp(zero_us, 0.0, first_us);
}

double StepTimes::PieceUs(double begin, double tokens) const {
  return std::max(0.0, profile_.prefill.At(begin, tokens) - start_us_);
}

int64_t StepTimes::StepUs(int32_t sequences, int64_t context_tokens,
                          std::span<const PrefillPiece> pieces) const {
  if (sequences == 0 && pieces.empty()) return 0;
  double us = start_us_;
  if (sequences > 0) {
    us = profile_.decode.At(sequences,
                            static_cast<double>(context_tokens) / static_cast<double>(sequences));
  }
  double tokens = 0;
  double positions = 0;  // sum over the tokens
  for (const PrefillPiece& piece : pieces) {
    tokens += piece.tokens;
    positions += piece.tokens * (piece.begin + piece.tokens / 2.0);
  }
  if (tokens > 0) us += PieceUs(std::max(0.0, positions / tokens - tokens / 2), tokens);
  return std::max<int64_t>(1, std::llround(us));
}

double StepTimes::LeastPrefillUs(int64_t cached, int64_t total) const {
  constexpr int64_t kPart = 512;
  double us = 0;
  for (int64_t begin = cached; begin < total; begin += kPart) {
    double least = std::numeric_limits<double>::infinity();  // of a token at `begin`
    for (const int64_t column : profile_.prefill.columns) {
      const auto tokens = static_cast<double>(column);
      least = std::min(least, profile_.prefill.At(static_cast<double>(begin), tokens) / tokens);
    }
    us += least * static_cast<double>(std::min(kPart, total - begin));
  }
  return us;
}

double StepTimes::PrefillUs(int64_t cached, int64_t total, int32_t chunk) const {
  double us = 0;
  for (int64_t begin = cached; begin < total; begin += chunk) {
    us += PieceUs(static_cast<double>(begin),
                  static_cast<double>(std::min<int64_t>(chunk, total - begin)));
  }
  return us;
}

}  // namespace baton
