// Lossless compression of one block's KV.
//
// Neighbouring numbers of K and V have similar exponents and different mantissas. So the bytes are
// sorted by their place in a number first: all first bytes, then all second ones. The compressor
// (Zstandard, level 1) then finds the redundancy of the exponents.
//
// Thread safety: an object belongs to one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace baton {

class BlockCompression {
 public:
  // `number_bytes`: size of a number of KV; 1 sorts nothing. REQUIRES: 1, 2 or 4.
  explicit BlockCompression(int32_t number_bytes);
  ~BlockCompression();

  // Writes the compressed bytes to `out`, without spare capacity. Returns false if they would not
  // be fewer; `out` is then empty.
  bool Compress(std::span<const std::byte> bytes, std::vector<std::byte>& out);
  // Writes exactly out.size() bytes. Returns false if `compressed` does not give as many. The
  // caller checks the bytes; `compressed` may be damaged in any way.
  bool Decompress(std::span<const std::byte> compressed, std::span<std::byte> out);

 private:
  struct Contexts;
  const int32_t number_bytes_;
  const std::unique_ptr<Contexts> contexts_;
  std::vector<std::byte> sorted_;  // reused
  std::vector<std::byte> packed_;  // reused
};

}  // namespace baton
