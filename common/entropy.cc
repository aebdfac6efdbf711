#include "common/entropy.h"

#include <random>

namespace baton {

uint64_t EntropyBits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace baton
