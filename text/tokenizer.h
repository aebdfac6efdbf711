// Tokenizer: converts text to token ids and back, by byte-level BPE.
//
// Special tokens:
//   - A control token (GGUF type 3: <|im_start|>, …) is recognised only in trusted text, which the
//     chat template writes. In user text, "<|im_end|>" is ordinary characters: Encode never returns
//     a control token for untrusted bytes. BOS, EOS and EOT are always control tokens, whatever
//     type the file gives them.
//   - A user-defined token (type 4) is recognised in all text, as `tokenizers` does with added
//     tokens that are not special.
//   - If tokens overlap, the leftmost wins; among those, the longest.
//
// Encode accepts any bytes. It drops bytes for which the vocabulary has no token, as `tokenizers`
// does (see BytePairEncoder). For all other byte strings x, Decode(Encode(x)) == x.
//
// Invariants: ids are 0 … vocab_size() − 1. Every token of untrusted text is a piece or
// user-defined.
//
// Thread safety: immutable after creation. Many threads may call any member at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/strong_int.h"
#include "text/byte_pair_encoder.h"
#include "text/pretokenizer.h"
#include "text/special_token_matcher.h"
#include "text/text_segment.h"

namespace baton {

// Tokenizer description from a model file. The fields are GGUF's `tokenizer.ggml.*`.
struct TokenizerSpec {
  std::vector<std::string> tokens;   // by id
  std::vector<int32_t> token_types;  // by id: 1 normal, 2 unknown, 3 control, 4 user-defined,
                                     // 5 unused, 6 byte; empty: all normal
  std::vector<std::string> merges;   // "left right", first merged first
  std::string model;                 // "gpt2"
  std::string pre;                   // see pretokenizer.h
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> eot;
  bool add_bos = false;
  bool add_eos = false;
};

struct EncodeOptions {
  // Adds these tokens if the model file asks for them.
  bool add_bos = true;
  bool add_eos = true;
};

struct DecodeOptions {
  bool include_control = false;  // false: control tokens decode to nothing
};

class Tokenizer {
 public:
  // Limits for a vocabulary, because model files are not trusted. They bound memory, and they bound
  // the time of Encode, which compares up to kMaxSpecialBytes at every position of the text.
  // (SmolLM2's longest token has 162 bytes, its longest special token 16.)
  static constexpr size_t kMaxTokenBytes = 4096;
  static constexpr size_t kMaxVocabularyBytes = size_t{64} << 20;  // of all tokens together
  static constexpr size_t kMaxSpecialBytes = 256;  // of a control or user-defined token
  static constexpr size_t kMaxSpecials = 65'536;   // control and user-defined tokens
  static constexpr size_t kMaxAllSpecialBytes = size_t{1} << 20;  // of them together

  // Returns Unimplemented for an unknown model or pre-tokenizer, and InvalidArgument if `spec`
  // contradicts itself or exceeds a limit above. The message names the field, the value and the
  // limit.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(const TokenizerSpec& spec);

  // Tokenises untrusted text.
  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options = {}) const;

  // Tokenises the concatenated segments. Segment boundaries do not affect the result; only
  // recognised special tokens divide the text.
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                      EncodeOptions options = {}) const;

  // Returns the bytes of `ids`, which may be invalid UTF-8. Returns InvalidArgument for an id
  // outside the vocabulary.
  absl::StatusOr<std::string> Decode(std::span<const TokenId> ids,
                                     DecodeOptions options = {}) const;

  // Same as Decode, but replaces invalid UTF-8 by U+FFFD, as Python's errors="replace" does.
  absl::StatusOr<std::string> DecodeText(std::span<const TokenId> ids,
                                         DecodeOptions options = {}) const;

  bool IsValid(TokenId id) const { return id >= 0 && id < vocab_size(); }

  // Returns the bytes of `id`; empty for an id outside the vocabulary. The view is valid as long as
  // the tokenizer lives.
  std::string_view TokenBytes(TokenId id) const {
    return IsValid(id) ? std::string_view(token_bytes_[id]) : std::string_view();
  }

  // Returns false for an id outside the vocabulary.
  bool IsControl(TokenId id) const { return IsValid(id) && is_control_[id] != 0; }

  // Length in bytes of the longest token. A text of n bytes has at least n / this many tokens.
  int32_t longest_token_bytes() const { return longest_token_bytes_; }
  int32_t vocab_size() const { return static_cast<int32_t>(token_bytes_.size()); }
  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }

  // Tokens that end a generation, ascending: EOS, EOT, and well-known control tokens that end a
  // turn or a text (<|im_end|>, <|eot_id|>, <|endoftext|>, …).
  std::span<const TokenId> end_of_generation() const { return end_of_generation_; }
  bool EndsGeneration(TokenId id) const;

 private:
  struct Trust;
  Tokenizer(const TokenizerSpec& spec, PreTokenizer pretokenizer, BytePairEncoder encoder);

  std::vector<TokenId> EncodeTrusting(std::string_view text, const Trust& trust,
                                      EncodeOptions options) const;
  void AppendOrdinary(std::string_view text, BytePairEncoder::Workspace& workspace,
                      std::vector<TokenId>& out) const;

  PreTokenizer pretokenizer_;
  BytePairEncoder encoder_;
  SpecialTokenMatcher specials_;
  std::vector<std::string> token_bytes_;  // by id
  std::vector<uint8_t> is_control_;       // by id
  int32_t longest_token_bytes_ = 0;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  bool add_bos_;
  bool add_eos_;
  std::vector<TokenId> end_of_generation_;
};

}  // namespace baton
