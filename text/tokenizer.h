// The tokenizer: text to token ids and back, by byte-level BPE.
//
// What is special:
//   - A control token (GGUF type 3: <|im_start|>, …) is recognised in trusted text only: what a
//   chat
//     template itself writes. In a user's text "<|im_end|>" is ordinary characters, and no input
//     makes Encode return a control token for untrusted bytes. BOS, EOS and EOT are control tokens
//     whatever type the file gives them.
//   - A user-defined token (type 4) is recognised everywhere, as `tokenizers` does with added
//   tokens
//     that are not special. Where tokens overlap, the leftmost and then the longest wins.
//
// Any bytes are accepted. Decode(Encode(x)) == x for every byte string x that holds only bytes
// which the vocabulary has tokens for (see BytePairEncoder; `tokenizers` drops the others too, and
// so do we).
//
// Invariants: ids are 0 … vocab_size() − 1; every token of untrusted text is a piece or
// user-defined.
//
// Thread safety: immutable after creation; every member may run on many threads.
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

// What a model file says about its tokenizer; field by field GGUF's `tokenizer.ggml.*`.
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
  bool add_bos_and_eos = true;  // BOS and EOS where the model file asks for them
};

struct DecodeOptions {
  bool include_control = false;  // the text of control tokens, which is left out otherwise
};

class Tokenizer {
 public:
  // What a vocabulary may cost. Model files are not trusted: an encoding compares every position of
  // a text with up to kMaxSpecialBytes of a special token. (SmolLM2's longest token has 162 bytes,
  // its longest special one 16.)
  static constexpr size_t kMaxTokenBytes = 4096;
  static constexpr size_t kMaxVocabularyBytes = size_t{64} << 20;  // of all tokens together
  static constexpr size_t kMaxSpecialBytes = 256;  // of a control or user-defined token
  static constexpr size_t kMaxSpecials = 65'536;   // control and user-defined tokens
  static constexpr size_t kMaxAllSpecialBytes = size_t{1} << 20;  // of them together

  // Unimplemented for an unknown model or pre-tokenizer, InvalidArgument for a specification that
  // contradicts itself or is past a limit above; the message names the field, the value and the
  // limit.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(const TokenizerSpec& spec);

  // The tokens of untrusted text.
  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options = {}) const;

  // The tokens of the segments' concatenation. Joints between segments do not show in the result:
  // only a recognised special token divides text.
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                      EncodeOptions options = {}) const;

  // The bytes of `ids`, not always valid UTF-8. InvalidArgument for an id outside the vocabulary.
  absl::StatusOr<std::string> Decode(std::span<const TokenId> ids,
                                     DecodeOptions options = {}) const;

  // Decode, then U+FFFD for what is not UTF-8, as Python's errors="replace".
  absl::StatusOr<std::string> DecodeText(std::span<const TokenId> ids,
                                         DecodeOptions options = {}) const;

  bool IsValid(TokenId id) const { return id >= 0 && id < vocab_size(); }

  // The bytes that `id` stands for; none for an id outside the vocabulary. Valid as long as this
  // lives.
  std::string_view TokenBytes(TokenId id) const {
    return IsValid(id) ? std::string_view(token_bytes_[id]) : std::string_view();
  }

  // False outside the vocabulary.
  bool IsControl(TokenId id) const { return IsValid(id) && is_control_[id] != 0; }

  // Of a token's bytes: no text of n bytes has fewer than n / this tokens.
  int32_t longest_token_bytes() const { return longest_token_bytes_; }
  int32_t vocab_size() const { return static_cast<int32_t>(token_bytes_.size()); }
  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }

  // The tokens at which a generation ends, ascending: EOS, EOT, and control tokens that models are
  // known to end a turn or a text with (<|im_end|>, <|eot_id|>, <|endoftext|>, …).
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
