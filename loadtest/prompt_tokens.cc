#include "loadtest/prompt_tokens.h"

#include "common/check.h"
#include "loadtest/seeded_random.h"

namespace baton {

PromptTokens::PromptTokens(uint64_t seed, int32_t vocabulary)
    : seed_(MixBits(seed)),
      first_(vocabulary / 8),
      count_(static_cast<uint64_t>(vocabulary - 2 * (vocabulary / 8))) {
  CHECK_GE(vocabulary, 16);
}

void PromptTokens::Append(TokenKey kind, uint64_t key, int64_t begin, int64_t end,
                          std::vector<TokenId>& out) const {
  const uint64_t base = MixBits(MixBits(seed_ ^ static_cast<uint64_t>(kind)) ^ key);
  for (int64_t i = begin; i < end; ++i) {
    const uint64_t bits = MixBits(base + static_cast<uint64_t>(i));
    out.push_back(first_ + static_cast<TokenId>(bits % count_));
  }
}

std::vector<TokenId> PromptTokens::Of(TokenKey kind, uint64_t key, int64_t count) const {
  std::vector<TokenId> out;
  out.reserve(static_cast<size_t>(count));
  Append(kind, key, 0, count, out);
  return out;
}

}  // namespace baton
