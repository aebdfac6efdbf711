// Parameters of the kernels in add_value.cu, which tests of streams and graphs launch.
#pragma once

#include <cstdint>

namespace baton {

struct AddValueParams {
  int32_t* values = nullptr;  // [count]
  int64_t count = 0;
  int32_t value = 0;
};

}  // namespace baton
