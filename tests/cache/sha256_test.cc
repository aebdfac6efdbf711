#include "cache/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

std::string Hex(const std::array<uint8_t, 32>& digest) {
  std::string hex;
  for (const uint8_t byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(Hex(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, EveryPaddingLengthIsRight) {
  // Each digest is the next message's end, over lengths that cross two chunks; from Python's
  // hashlib.
  std::string digest;
  for (int length = 0; length < 130; ++length) {
    digest = Hex(Sha256(std::string(length, 'a') + digest));
  }
  EXPECT_EQ(digest, "bcdcbb3f3575589972cc95d96fde41a3d2dfb405dd12a1bda96226918d69c941");
}

}  // namespace
}  // namespace baton
