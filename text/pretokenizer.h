// Cuts text into the pieces inside which byte pairs may merge ("pre-tokens").
//
// The cuts are those of Hugging Face `tokenizers` for the same pre-tokenizer; names are GGUF's
// (`tokenizer.ggml.pre`):
//   smollm     every number character alone, then GPT-2's pattern between them
//   gpt-2      GPT-2's pattern
//   llama-bpe  Llama 3's pattern (numbers by three)
//   qwen2      Llama 3's pattern with each number alone. Qwen's NFC normalisation is not applied.
//
// Invariants: pieces are not empty and concatenate to the text, whatever its bytes. A maximal run
// of bytes that are not valid UTF-8 is one piece, and the text on either side of it is cut as if it
// stood alone.
// Time is linear in the text: each alternative of a pattern repeats single characters only, so that
// failing costs at most one pass over a run that is then consumed but for one character.
//
// Thread safety: immutable after creation; Split may run on many threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace baton {

class PreTokenizer {
 public:
  // Unimplemented, naming `name`, for one that is not in the list above.
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
