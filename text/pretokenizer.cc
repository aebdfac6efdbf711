#include "text/pretokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace baton {
namespace {

// Contents of character classes, equal to those of `tokenizers`. White space is written out because
// PCRE2's \s also contains U+180E. Letters and numbers that PCRE2 10.42 (Unicode 14) does not know
// are added by hand. A newer PCRE2 knows them too, and then the duplicates do no harm.
// tests/oracle/tokenizer_compare.py compares every code point.
constexpr absl::string_view kSpace =
    R"(\t-\r\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

constexpr absl::string_view kLetter =  // \p{L} of Unicode 16
    R"(\p{L}\x{1C89}\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3})"
    R"(\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
    R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF})"
    R"(\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB})"
    R"(\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";

constexpr absl::string_view kNumber =  // \p{N} of Unicode 16
    R"(\p{N}\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
    R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
    R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";

// Number characters added in Unicode 17. The Digits pre-tokenizer uses Unicode 17's tables.
constexpr absl::string_view kNumberSince17 = R"(\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6})";

std::string Gpt2Pattern() {
  return absl::StrCat("'(?:[sdmt]|ll|ve|re)", "| ?[", kLetter, "]+", "| ?[", kNumber, "]+", "| ?[^",
                      kSpace, kLetter, kNumber, "]+",  //
                      "|[", kSpace, "]+(?![^", kSpace, "])", "|[", kSpace, "]+");
}

// Splits off numbers and applies GPT-2's pattern to the text between them, in one pass. The pattern
// treats a number as the end of the text: the look-ahead accepts a number where GPT-2's expects the
// end, and a space never joins a number.
std::string SmolLmPattern() {
  const std::string digit = absl::StrCat(kNumber, kNumberSince17);
  return absl::StrCat("[", digit, "]", "|'(?:[sdmt]|ll|ve|re)", "| ?[", kLetter, "]+", "| ?[^",
                      kSpace, kLetter, digit, "]+",  //
                      "|[", kSpace, "]+(?![^", kSpace, digit, "])", "|[", kSpace, "]+");
}

std::string Llama3Pattern(absl::string_view number_repeat) {
  return absl::StrCat("(?i:'(?:[sdmt]|ll|ve|re))",  //
                      "|[^\\r\\n", kLetter, kNumber, "]?[", kLetter, "]+", "|[", kNumber, "]",
                      number_repeat,  //
                      "| ?[^", kSpace, kLetter, kNumber, "]+[\\r\\n]*", "|[", kSpace, "]*[\\r\\n]+",
                      "|[", kSpace, "]+(?![^", kSpace, "])", "|[", kSpace, "]+");
}

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct PreTokenizer::Pattern {
  explicit Pattern(const std::string& source) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                         PCRE2_UTF | PCRE2_ANCHORED, &error, &offset, nullptr);
    CHECK(code != nullptr) << "pattern does not compile: error " << error << " at " << offset;
    // If the system grants no executable memory, this fails and pcre2_match interprets the pattern.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    // PCRE2's match limits guard against exponential patterns. These patterns backtrack at most
    // once along one run, so they need no limit.
    limits = pcre2_match_context_create(nullptr);
    CHECK(limits != nullptr);
    pcre2_set_match_limit(limits, UINT32_MAX);
  }
  ~Pattern() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // Returns the length in bytes of the piece that starts at `offset`. There is always a match,
  // because every character starts some alternative. REQUIRES: valid UTF-8; offset < text.size().
  size_t PieceLength(std::string_view text, size_t offset, pcre2_match_data* data) const {
    const int matched = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    offset, PCRE2_NO_UTF_CHECK, data, limits);
    CHECK_GT(matched, 0) << "PCRE2 error on valid UTF-8";
    return pcre2_get_ovector_pointer(data)[1] - offset;
  }

  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
};

PreTokenizer::PreTokenizer(std::unique_ptr<const Pattern> pattern) : pattern_(std::move(pattern)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::string_view name) {
  std::string source;
  if (name == "smollm") {
    source = SmolLmPattern();
  } else if (name == "gpt-2") {
    source = Gpt2Pattern();
  } else if (name == "llama-bpe") {
    source = Llama3Pattern("{1,3}");
  } else if (name == "qwen2") {
    source = Llama3Pattern("");
  } else {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer.ggml.pre: pre-tokenizer \"", std::string(name),
                     "\" is not supported (supported: smollm, gpt-2, llama-bpe, qwen2)"));
  }
  return PreTokenizer(std::make_unique<const Pattern>(source));
}

void PreTokenizer::Split(std::string_view text,
                         absl::FunctionRef<void(std::string_view)> visit) const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create(1, nullptr));
  CHECK(data != nullptr);
  while (!text.empty()) {
    const std::string_view run = text.substr(0, ValidUtf8Prefix(text));
    for (size_t offset = 0; offset < run.size();) {
      const size_t length = pattern_->PieceLength(run, offset, data.get());
      visit(run.substr(offset, length));
      offset += length;
    }
    text.remove_prefix(run.size());

    size_t damaged = 0;
    while (damaged < text.size()) {
      const Utf8Step step = NextUtf8(text.substr(damaged));
      if (step.kind == Utf8Kind::kCharacter) break;
      damaged += step.length;
    }
    if (damaged > 0) visit(text.substr(0, damaged));
    text.remove_prefix(damaged);
  }
}

}  // namespace baton
