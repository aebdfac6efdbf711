#include "text/streaming_detokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/text/small_vocabulary.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace baton {
namespace {

class StreamingDetokenizerTest : public ::testing::Test {
 protected:
  StreamingDetokenizerTest() : tokenizer_(Tokenizer::Create(SmallVocabulary("gpt-2")).value()) {}

  // Returns the token of one byte.
  TokenId ByteToken(uint8_t byte) const {
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (tokenizer_->TokenBytes(id) == std::string_view(reinterpret_cast<char*>(&byte), 1)) {
        return id;
      }
    }
    ADD_FAILURE() << "no token for byte " << int{byte};
    return -1;
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(StreamingDetokenizerTest, HoldsACharacterBackUntilItsLastByte) {
  StreamingDetokenizer detokenizer(*tokenizer_);
  EXPECT_EQ(detokenizer.Append(ByteToken(0xF0)), "");
  EXPECT_EQ(detokenizer.Append(ByteToken(0x9F)), "");
  EXPECT_EQ(detokenizer.Append(ByteToken(0x98)), "");
  EXPECT_EQ(detokenizer.Append(ByteToken(0x80)), "😀");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST_F(StreamingDetokenizerTest, ReplacesBytesThatCannotBecomeACharacter) {
  StreamingDetokenizer detokenizer(*tokenizer_);
  EXPECT_EQ(detokenizer.Append(ByteToken(0xFF)), "\uFFFD");
  EXPECT_EQ(detokenizer.Append(ByteToken(0xE4)), "");
  EXPECT_EQ(detokenizer.Append(ByteToken('a')), "\uFFFDa");
  EXPECT_EQ(detokenizer.Append(ByteToken(0xE4)), "");
  EXPECT_EQ(detokenizer.Append(ByteToken(0xBD)), "");
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST_F(StreamingDetokenizerTest, LeavesControlTokensOutUnlessAskedForThem) {
  const TokenId end = SmallVocabularyId("<|im_end|>");
  StreamingDetokenizer without(*tokenizer_);
  EXPECT_EQ(without.Append(ByteToken(0xC3)), "");
  EXPECT_EQ(without.Append(end), "");
  EXPECT_EQ(without.Append(ByteToken(0xA9)), "é");
  StreamingDetokenizer with(*tokenizer_, {.include_control = true});
  EXPECT_EQ(with.Append(end), "<|im_end|>");
}

TEST_F(StreamingDetokenizerTest, AnIdOutsideTheVocabularyAddsNothing) {
  StreamingDetokenizer detokenizer(*tokenizer_);
  EXPECT_EQ(detokenizer.Append(-1), "");
  EXPECT_EQ(detokenizer.Append(tokenizer_->vocab_size()), "");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST_F(StreamingDetokenizerTest, TheStreamEqualsTheWholeAndIsValidAtEveryStep) {
  const unsigned seed = 23;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 1000; ++round) {
    const DecodeOptions options{.include_control = round % 2 == 1};
    StreamingDetokenizer detokenizer(*tokenizer_, options);
    std::vector<TokenId> ids(random() % 30);
    std::string stream;
    for (TokenId& id : ids) {
      // The first 259 ids are control tokens and single bytes, mostly invalid UTF-8. The others are
      // mostly text.
      id = static_cast<TokenId>(random() % (random() % 2 == 0 ? 259 : tokenizer_->vocab_size()));
      const std::string text = detokenizer.Append(id);
      ASSERT_EQ(ValidUtf8Prefix(text), text.size());
      stream += text;
    }
    stream += detokenizer.Finish();
    ASSERT_EQ(stream, tokenizer_->DecodeText(ids, options).value());
  }
}

}  // namespace
}  // namespace baton
