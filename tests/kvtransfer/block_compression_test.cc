#include "kvtransfer/pool/block_compression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace baton {
namespace {

// Floats that resemble KV: similar exponents, random mantissas.
std::vector<std::byte> Numbers(size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const float number = normal(random);
    std::memcpy(bytes.data() + i * sizeof(float), &number, sizeof(number));
  }
  return bytes;
}

TEST(BlockCompression, ReturnsTheSameBytesForNumbersOfEverySize) {
  for (const int32_t number_bytes : {1, 2, 4}) {
    BlockCompression compression(number_bytes);
    for (const size_t spare : {0, 1, 3}) {  // bytes behind the last whole number
      std::vector<std::byte> bytes = Numbers(5000);
      bytes.resize(bytes.size() - spare);
      std::vector<std::byte> compressed;
      if (!compression.Compress(bytes, compressed)) {
        EXPECT_EQ(number_bytes, 1) << "sorted bytes of floats take less memory";
        continue;
      }
      EXPECT_LT(compressed.size(), bytes.size());
      std::vector<std::byte> back(bytes.size());
      ASSERT_TRUE(compression.Decompress(compressed, back));
      EXPECT_EQ(back, bytes);
    }
  }
}

TEST(BlockCompression, BytesThatCannotShrinkAreRefused) {
  std::mt19937 random(7);
  std::vector<std::byte> noise(4096);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  std::vector<std::byte> out(5);
  EXPECT_FALSE(BlockCompression(2).Compress(noise, out));
  EXPECT_TRUE(out.empty());
}

TEST(BlockCompression, DamagedBytesNeverWriteBehindTheTarget) {
  BlockCompression compression(4);
  const std::vector<std::byte> bytes = Numbers(2000);
  std::vector<std::byte> compressed;
  ASSERT_TRUE(compression.Compress(bytes, compressed));
  std::vector<std::byte> back(bytes.size());
  EXPECT_FALSE(compression.Decompress(std::span(compressed).first(compressed.size() / 2), back));
  EXPECT_FALSE(compression.Decompress(compressed, std::span(back).first(100)));
  std::vector<std::byte> longer(bytes.size() + 4);
  EXPECT_FALSE(compression.Decompress(compressed, longer));
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> damaged = compressed;
    damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 + random() % 255);
    compression.Decompress(damaged, back);  // the caller's checksum tells
  }
  ASSERT_TRUE(compression.Decompress(compressed, back)) << "the object is still usable";
  EXPECT_EQ(back, bytes);
}

}  // namespace
}  // namespace baton
