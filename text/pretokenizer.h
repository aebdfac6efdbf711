// Pre-tokenizer: splits text into pieces ("pre-tokens"). Byte pairs merge only inside a piece.
//
// The splits equal those of the same pre-tokenizer in Hugging Face `tokenizers`. The names are
// GGUF's (`tokenizer.ggml.pre`):
//   smollm     splits off every number character, then applies GPT-2's pattern to the rest
//   gpt-2      GPT-2's pattern
//   llama-bpe  Llama 3's pattern (numbers in groups of up to three digits)
//   qwen2      Llama 3's pattern with single digits. Qwen's NFC normalisation is not applied.
//
// Invariants: pieces are not empty, and their concatenation is the text, for any bytes. A maximal
// run of invalid UTF-8 is one piece. The text before it and the text behind it are split
// separately.
//
// Time is linear in the text. Each alternative of a pattern repeats single characters only. A
// failed alternative therefore costs at most one pass over a run, and the next one consumes all of
// that run except possibly one character.
//
// Thread safety: immutable after creation. Many threads may call Split at the same time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace baton {

class PreTokenizer {
 public:
  // Returns Unimplemented, naming `name`, if it is not in the list above.
  static absl::StatusOr<PreTokenizer> Create(std::string_view name);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `visit` with each piece of `text`, in order.
  void Split(std::string_view text, absl::FunctionRef<void(std::string_view)> visit) const;

 private:
  struct Pattern;  // the compiled PCRE2 pattern
  explicit PreTokenizer(std::unique_ptr<const Pattern> pattern);

  std::unique_ptr<const Pattern> pattern_;
};

}  // namespace baton
