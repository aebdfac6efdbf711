#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace baton {
namespace {

enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

constexpr std::array<std::string_view, 7> kKnownEnds = {
    "<|im_end|>", "<|eot_id|>",      "<|eom_id|>",   "<|endoftext|>",
    "<|end|>",    "<|end_of_text|>", "<end_of_turn>"};

TokenType TypeOf(const TokenizerSpec& spec, size_t id) {
  for (const auto& special : {spec.bos, spec.eos, spec.eot}) {
    if (special.has_value() && static_cast<size_t>(*special) == id) return kControl;
  }
  return spec.token_types.empty() ? kNormal : static_cast<TokenType>(spec.token_types[id]);
}

bool IsSpecial(TokenType type) { return type == kControl || type == kUserDefined; }

// Special tokens are stored as plain text. Other tokens are stored in the byte-level alphabet. A
// token with a character outside that alphabet is plain text too, as in `tokenizers`.
std::string BytesOf(const std::string& token, TokenType type) {
  if (IsSpecial(type)) return token;
  return BytesFromAlphabet(token).value_or(token);
}

absl::Status ValidateTokens(const TokenizerSpec& spec) {
  constexpr size_t kMaxTokens = std::numeric_limits<TokenId>::max();
  if (spec.tokens.empty() || spec.tokens.size() > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens: ", spec.tokens.size(),
                                                   " tokens; must be 1 to ", kMaxTokens));
  }
  size_t bytes = 0;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const size_t size = spec.tokens[id].size();
    if (size > Tokenizer::kMaxTokenBytes) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens[", id, "] has ", size,
                                                     " bytes; the limit is ",
                                                     Tokenizer::kMaxTokenBytes));
    }
    bytes += size;
  }
  if (bytes > Tokenizer::kMaxVocabularyBytes) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens: ", bytes,
                                                   " bytes of tokens; the limit is ",
                                                   Tokenizer::kMaxVocabularyBytes));
  }
  absl::flat_hash_set<std::string_view> seen;
  seen.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty()) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens[", id, "] is empty"));
    }
    if (!seen.insert(spec.tokens[id]).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.ggml.tokens[", id, "]: \"", spec.tokens[id], "\" occurs twice in the list"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateTypes(const TokenizerSpec& spec) {
  if (!spec.token_types.empty() && spec.token_types.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type: there are ",
                                                   spec.token_types.size(), " types for ",
                                                   spec.tokens.size(), " tokens"));
  }
  for (size_t id = 0; id < spec.token_types.size(); ++id) {
    if (spec.token_types[id] < kNormal || spec.token_types[id] > kByte) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type[", id, "] is ",
                                                     spec.token_types[id], "; must be ", kNormal,
                                                     " to ", kByte));
    }
  }
  return absl::OkStatus();
}

// REQUIRES: ValidateTypes(spec).ok().
absl::Status ValidateSpecials(const TokenizerSpec& spec) {
  size_t specials = 0;
  size_t bytes = 0;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!IsSpecial(TypeOf(spec, id))) continue;
    ++specials;
    bytes += spec.tokens[id].size();
    if (spec.tokens[id].size() > Tokenizer::kMaxSpecialBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.ggml.tokens[", id, "] is a control or user-defined token of ",
          spec.tokens[id].size(), " bytes; the limit is ", Tokenizer::kMaxSpecialBytes));
    }
  }
  if (specials > Tokenizer::kMaxSpecials) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.token_type: ", specials,
                     " control and user-defined tokens; the limit is ", Tokenizer::kMaxSpecials));
  }
  if (bytes > Tokenizer::kMaxAllSpecialBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.tokens: the control and user-defined tokens have ", bytes,
                     " bytes in total; the limit is ", Tokenizer::kMaxAllSpecialBytes));
  }
  return absl::OkStatus();
}

absl::Status ValidateSpecialIds(const TokenizerSpec& spec) {
  const std::pair<const char*, std::optional<TokenId>> ids[] = {
      {"bos", spec.bos}, {"eos", spec.eos}, {"eot", spec.eot}};
  for (const auto& [name, id] : ids) {
    if (id.has_value() && (*id < 0 || static_cast<size_t>(*id) >= spec.tokens.size())) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", name, "_token_id is ", *id,
                                                     "; must be 0 to ", spec.tokens.size() - 1));
    }
  }
  if (spec.add_bos && !spec.bos.has_value()) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_bos_token is true without tokenizer.ggml.bos_token_id");
  }
  if (spec.add_eos && !spec.eos.has_value()) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_eos_token is true without tokenizer.ggml.eos_token_id");
  }
  return absl::OkStatus();
}

absl::StatusOr<BytePairEncoder> CreateEncoder(const TokenizerSpec& spec) {
  std::vector<uint8_t> is_piece(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenType type = TypeOf(spec, id);
    is_piece[id] = type == kNormal || type == kUserDefined || type == kByte;
  }
  return BytePairEncoder::Create({.tokens = spec.tokens,
                                  .is_piece = is_piece,
                                  .merges = spec.merges,
                                  .whole_token_first = spec.pre == "llama-bpe"});
}

}  // namespace

// The trusted bytes of a text, as ascending ranges with a gap between neighbours.
struct Tokenizer::Trust {
  struct Range {
    size_t begin;
    size_t end;
  };
  std::vector<Range> ranges;

  void Add(size_t begin, size_t end) {
    if (begin == end) return;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = end;
    } else {
      ranges.push_back({begin, end});
    }
  }
};

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Create(const TokenizerSpec& spec) {
  if (spec.model != "gpt2") {
    return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model: tokenizer \"", spec.model,
                                                 "\" is not supported (supported: gpt2)"));
  }
  ASSIGN_OR_RETURN(PreTokenizer pretokenizer, PreTokenizer::Create(spec.pre));
  RETURN_IF_ERROR(ValidateTokens(spec));
  RETURN_IF_ERROR(ValidateTypes(spec));
  RETURN_IF_ERROR(ValidateSpecials(spec));
  RETURN_IF_ERROR(ValidateSpecialIds(spec));
  ASSIGN_OR_RETURN(BytePairEncoder encoder, CreateEncoder(spec));
  return std::unique_ptr<const Tokenizer>(
      new Tokenizer(spec, std::move(pretokenizer), std::move(encoder)));
}

Tokenizer::Tokenizer(const TokenizerSpec& spec, PreTokenizer pretokenizer, BytePairEncoder encoder)
    : pretokenizer_(std::move(pretokenizer)),
      encoder_(std::move(encoder)),
      bos_(spec.bos),
      eos_(spec.eos),
      add_bos_(spec.add_bos),
      add_eos_(spec.add_eos) {
  token_bytes_.reserve(spec.tokens.size());
  is_control_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& token = spec.tokens[i];
    const auto id = static_cast<TokenId>(i);
    const TokenType type = TypeOf(spec, i);
    token_bytes_.push_back(BytesOf(token, type));
    longest_token_bytes_ =
        std::max(longest_token_bytes_, static_cast<int32_t>(token_bytes_.back().size()));
    is_control_.push_back(type == kControl);
    if (IsSpecial(type)) specials_.Add(token, id, type == kControl);
    const bool known_end = type == kControl && std::find(kKnownEnds.begin(), kKnownEnds.end(),
                                                         token) != kKnownEnds.end();
    if (known_end || id == spec.eos || id == spec.eot) end_of_generation_.push_back(id);
  }
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  return EncodeTrusting(text, Trust{}, options);
}

std::vector<TokenId> Tokenizer::EncodeSegments(std::span<const TextSegment> segments,
                                               EncodeOptions options) const {
  std::string text;
  Trust trust;
  for (const TextSegment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (segment.trusted) trust.Add(begin, text.size());
  }
  return EncodeTrusting(text, trust, options);
}

std::vector<TokenId> Tokenizer::EncodeTrusting(std::string_view text, const Trust& trust,
                                               EncodeOptions options) const {
  std::vector<TokenId> out;
  out.reserve(text.size() / 3 + 2);
  BytePairEncoder::Workspace workspace;
  if (options.add_bos && add_bos_) out.push_back(*bos_);
  size_t ordinary_begin = 0;
  auto range = trust.ranges.begin();
  for (size_t position = 0; position < text.size();) {
    while (range != trust.ranges.end() && range->end <= position) ++range;
    const bool trusted = range != trust.ranges.end() && range->begin <= position;
    if (!specials_.MayBegin(text[position], trusted)) {
      ++position;
      continue;
    }
    const auto match = specials_.LongestAt(text, position, trusted ? range->end : position);
    if (!match.has_value()) {
      ++position;
      continue;
    }
    AppendOrdinary(text.substr(ordinary_begin, position - ordinary_begin), workspace, out);
    out.push_back(match->id);
    position += match->length;
    ordinary_begin = position;
  }
  AppendOrdinary(text.substr(ordinary_begin), workspace, out);
  if (options.add_eos && add_eos_) out.push_back(*eos_);
  return out;
}

void Tokenizer::AppendOrdinary(std::string_view text, BytePairEncoder::Workspace& workspace,
                               std::vector<TokenId>& out) const {
  if (text.empty()) return;
  pretokenizer_.Split(text,
                      [&](std::string_view piece) { encoder_.Encode(piece, workspace, out); });
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const TokenId> ids,
                                              DecodeOptions options) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!IsValid(ids[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ids[", i, "] is ", ids[i], "; must be 0 to ", vocab_size() - 1));
    }
    if (options.include_control || !IsControl(ids[i])) bytes += TokenBytes(ids[i]);
  }
  return bytes;
}

absl::StatusOr<std::string> Tokenizer::DecodeText(std::span<const TokenId> ids,
                                                  DecodeOptions options) const {
  ASSIGN_OR_RETURN(const std::string bytes, Decode(ids, options));
  return ReplaceInvalidUtf8(bytes);
}

bool Tokenizer::EndsGeneration(TokenId id) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

}  // namespace baton
