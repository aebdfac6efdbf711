#include "text/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace baton {
namespace {

TEST(ByteAlphabet, GivesEveryByteACharacterOfItsOwnAndBack) {
  std::set<std::string> characters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = ByteToAlphabet(static_cast<uint8_t>(byte));
    EXPECT_TRUE(characters.insert(character).second) << byte;
    EXPECT_EQ(BytesFromAlphabet(character), std::string(1, static_cast<char>(byte))) << byte;
  }
}

TEST(ByteAlphabet, WritesBytesAsGpt2Does) {
  EXPECT_EQ(ByteToAlphabet('a'), "a");
  EXPECT_EQ(ByteToAlphabet(' '), "Ġ");
  EXPECT_EQ(ByteToAlphabet('\n'), "Ċ");
  EXPECT_EQ(ByteToAlphabet(0x00), "Ā");
  EXPECT_EQ(ByteToAlphabet(0x7F), "ġ");
  EXPECT_EQ(ByteToAlphabet(0xAD), "Ń");
  EXPECT_EQ(ByteToAlphabet(0xFF), "ÿ");
  EXPECT_EQ(BytesFromAlphabet("ĠtheĊ"), " the\n");
  EXPECT_EQ(BytesFromAlphabet("ä½ł"), "你");
}

TEST(ByteAlphabet, RefusesWhatIsOutsideIt) {
  EXPECT_EQ(BytesFromAlphabet("a b"), std::nullopt);  // the space is written Ġ
  EXPECT_EQ(BytesFromAlphabet("你"), std::nullopt);
  EXPECT_EQ(BytesFromAlphabet("ń"), std::nullopt);  // U+0144, the first after the last
  EXPECT_EQ(BytesFromAlphabet("a\xFF"), std::nullopt);
  EXPECT_EQ(BytesFromAlphabet("a\xC4"), std::nullopt);
}

}  // namespace
}  // namespace baton
