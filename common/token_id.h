// A token of the model's vocabulary.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

namespace baton {

// It is a plain integer because kernels and the wire use it everywhere.
using TokenId = int32_t;

}  // namespace baton
